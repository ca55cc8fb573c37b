"""Tests of the shared jar cache: downloads, refusals, and two processes at once."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from herdmesh.devstack.errors import JarsUnavailable
from herdmesh.devstack.jars import ensure_jars, fetch_ahead, to_fetch

JARS = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
NO_DELAYS = (0.0, 0.0)


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deploy folder that pins two small jars as group `tiny`, and an empty cache."""
    jars = tmp_path / "deploy" / "jars"
    jars.mkdir(parents=True)
    (jars / "ivy.xml").write_text("<ivy-module/>")
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in JARS.items()]
    (jars / "tiny.sha256").write_text("".join(sums))
    monkeypatch.setenv("HERDMESH_DEPLOY_DIR", str(tmp_path / "deploy"))
    monkeypatch.setenv("HERDMESH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


class Source:
    """Stand-in for the network: counts downloads, and delivers the content of each test."""

    def __init__(self, *deliveries: Callable[[Path], None]) -> None:
        self.fetches = 0
        self._deliveries = deliveries

    def __call__(self, group: str, folder: Path) -> None:
        assert group == "tiny"
        deliver = self._deliveries[min(self.fetches, len(self._deliveries) - 1)]
        self.fetches += 1
        deliver(folder)


def whole(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in JARS.items():
        (folder / name).write_bytes(content)


def half(folder: Path) -> None:
    whole(folder)
    (folder / "two-2.0.jar").write_bytes(b"sec")


def one_missing(folder: Path) -> None:
    whole(folder)
    (folder / "two-2.0.jar").unlink()


def broken_off(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "one-1.0.jar").write_bytes(b"fir")
    raise JarsUnavailable("the connection broke")


def no_more(folder: Path) -> None:
    pytest.fail("fetched again")


def contents(classpath: str) -> list[bytes]:
    return [Path(jar).read_bytes() for jar in classpath.split(os.pathsep)]


def test_jars_are_fetched_once() -> None:
    source = Source(whole, no_more)
    classpath = ensure_jars("tiny", fetch=source)
    assert contents(classpath) == [b"first", b"second"]
    assert ensure_jars("tiny", fetch=source) == classpath


@pytest.mark.parametrize("bad", [half, one_missing, broken_off])
def test_a_bad_download_is_retried_and_never_used(bad: Callable[[Path], None]) -> None:
    source = Source(bad, bad, whole)
    assert contents(ensure_jars("tiny", fetch=source, retry_delays_s=NO_DELAYS)) == [b"first", b"second"]
    assert source.fetches == 3


@pytest.mark.parametrize("bad", [half, one_missing, broken_off])
def test_three_failed_attempts_raise_and_leave_nothing(bad: Callable[[Path], None], checkout: Path) -> None:
    source = Source(bad)
    with pytest.raises(JarsUnavailable, match=r"3 attempts[\s\S]*(two-2.0.jar|connection broke)"):
        ensure_jars("tiny", fetch=source, retry_delays_s=NO_DELAYS)
    assert source.fetches == 3
    assert [path.suffix for path in (checkout / "cache" / "jars").iterdir()] == [".lock"]


def altered(jar: Path) -> None:
    jar.write_bytes(b"FIRST")


@pytest.mark.parametrize("damage", [altered, Path.unlink])
def test_a_damaged_cache_is_fetched_again(damage: Callable[[Path], None]) -> None:
    classpath = ensure_jars("tiny", fetch=Source(whole))
    damage(Path(classpath.split(os.pathsep)[0]))
    source = Source(whole)
    assert contents(ensure_jars("tiny", fetch=source)) == [b"first", b"second"]
    assert source.fetches == 1


@pytest.mark.parametrize("now", [b"changed", b""])
def test_damage_of_jars_read_before_is_detected(monkeypatch: pytest.MonkeyPatch, now: bytes) -> None:
    monkeypatch.setattr("herdmesh.devstack.jars._TICK_NS", 0)  # as if the jars had existed for long
    source = Source(whole)
    classpath = ensure_jars("tiny", fetch=source)
    assert ensure_jars("tiny", fetch=source) == classpath
    assert source.fetches == 1
    Path(classpath.split(os.pathsep)[0]).write_bytes(now)
    assert contents(ensure_jars("tiny", fetch=source)) == [b"first", b"second"]
    assert source.fetches == 2


def test_a_download_cut_off_by_a_kill_is_discarded(checkout: Path) -> None:
    classpath = ensure_jars("tiny", fetch=Source(whole))
    folder = Path(classpath.split(os.pathsep)[0]).parent
    os.rename(folder, folder.with_suffix(".partial"))  # as if killed before the rename, and worse: with content
    (folder.with_suffix(".partial") / "leftover").touch()
    ensure_jars("tiny", fetch=Source(whole))
    assert sorted(path.name for path in folder.iterdir()) == sorted(JARS)
    assert not folder.with_suffix(".partial").exists()


def test_a_killed_fetch_continues_with_the_files_that_ivy_has(checkout: Path) -> None:
    classpath = ensure_jars("tiny", fetch=Source(whole))
    folder = Path(classpath.split(os.pathsep)[0]).parent
    os.rename(folder, folder.with_name("moved"))
    kept = folder.with_suffix(".partial") / "ivy" / "one.jar"
    kept.parent.mkdir(parents=True)
    kept.touch()

    def with_ivys_files(fresh: Path) -> None:
        assert kept.exists()
        whole(fresh)

    ensure_jars("tiny", fetch=Source(with_ivys_files))
    assert not folder.with_suffix(".partial").exists()


def test_a_group_is_to_be_fetched_until_it_was() -> None:
    assert to_fetch("tiny") == len(JARS)
    ensure_jars("tiny", fetch=Source(whole))
    assert to_fetch("tiny") == 0


async def test_a_fetch_in_its_own_process_reports_the_error() -> None:
    with pytest.raises(JarsUnavailable, match="'huge'; there are: tiny"):
        await fetch_ahead("huge")


async def test_a_cancelled_fetch_leaves_no_process() -> None:
    """Ctrl-C during the first `herd up`."""
    before = set(psutil.Process().children())
    fetching = asyncio.create_task(fetch_ahead("tiny"))
    started = await asyncio.to_thread(_child_besides, before)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert not started.is_running()


def _child_besides(others: set[psutil.Process]) -> psutil.Process:
    while not (started := set(psutil.Process().children()) - others):
        time.sleep(0.01)
    return started.pop()


def test_other_checksums_use_another_folder(checkout: Path) -> None:
    before = ensure_jars("tiny", fetch=Source(whole))
    sums = checkout / "deploy" / "jars" / "tiny.sha256"
    sums.write_text(sums.read_text().splitlines()[0] + "\n")
    after = ensure_jars("tiny", fetch=Source(whole))
    assert contents(after) == [b"first"]
    assert contents(before) == [b"first", b"second"]


def test_two_concurrent_set_ups_fetch_once() -> None:
    both_started = threading.Barrier(2)
    source = Source(whole, no_more)

    def set_up() -> str:
        both_started.wait(60)
        return ensure_jars("tiny", fetch=source)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(set_up), pool.submit(set_up)
        assert first.result(60) == second.result(60)
    assert source.fetches == 1


def test_an_unknown_group_is_refused_with_the_known_ones() -> None:
    with pytest.raises(JarsUnavailable, match="'huge'; there are: tiny"):
        ensure_jars("huge")


def test_an_ivy_that_cannot_resolve_is_reported_with_its_message(checkout: Path) -> None:
    """Runs the real Ivy, kept off the network by settings that have only an empty local folder."""
    settings = checkout / "settings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{checkout}/none/[artifact].jar"/></filesystem></resolvers></ivysettings>'
    )
    (checkout / "deploy" / "jars" / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="a" module="b"/><configurations><conf name="tiny"/>'
        '</configurations><dependencies><dependency org="no" name="such" rev="1" conf="tiny->default"/></dependencies>'
        "</ivy-module>"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from herdmesh.devstack.jars import ensure_jars; ensure_jars('tiny', retry_delays_s=())",
        ],
        env={**os.environ, "HERDMESH_IVY_SETTINGS": str(settings)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 1
    assert "no#such;1: not found" in done.stderr


def test_a_cache_that_cannot_be_written_is_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = checkout / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("HERDMESH_CACHE_DIR", str(file))
    with pytest.raises(
        JarsUnavailable, match=rf"cannot be kept: {file}/jars: Not a directory\. HERDMESH_CACHE_DIR=DIR"
    ):
        ensure_jars("tiny", fetch=Source(no_more))


def test_a_full_disk_is_the_reason_and_ends_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.devstack.jars._SPACE_MIN", 1 << 60)
    source = Source(broken_off)
    with pytest.raises(JarsUnavailable, match=r"the disk of .* is full\. Free space"):
        ensure_jars("tiny", fetch=source, retry_delays_s=NO_DELAYS)
    assert source.fetches == 1
