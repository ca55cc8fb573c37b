"""Tests of the rotation of logs whose writers keep their file descriptors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from herdmesh.devstack.supervision.log_rotation import BYTES_MAX, rotate, rotate_all

#: A service: it appends the lines that it gets, through a file descriptor that it inherited.
WRITER = """
import sys
for line in sys.stdin:
    print(line, end="", flush=True)
    print("written", file=sys.stderr, flush=True)
"""


def test_a_writer_continues_in_the_emptied_log(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    with log.open("ab") as appended:
        command = [sys.executable, "-c", WRITER]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=appended, stderr=pipe, text=True) as writer:
            assert writer.stdin is not None
            assert writer.stderr is not None
            for line in ("one\n", "two\n", "three\n"):
                writer.stdin.write(line)
                writer.stdin.flush()
                assert writer.stderr.readline() == "written\n"
                rotate(log, bytes_max=4, kept=2)
            writer.stdin.close()
    # "one\n" has 4 bytes, which is not more than the limit: it is rotated with the next line
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {"worker-1.log": "", "worker-1.log.1": "three\n", "worker-1.log.2": "one\ntwo\n"}


def test_the_oldest_is_removed(tmp_path: Path) -> None:
    log = tmp_path / "herder.log"
    for number in range(5):
        log.write_text(f"{number}\n")
        assert rotate(log, bytes_max=1, kept=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["herder.log", "herder.log.1", "herder.log.2"]
    assert [(tmp_path / f"herder.log.{number}").read_text() for number in (1, 2)] == ["4\n", "3\n"]


def test_a_small_or_missing_log_stays(tmp_path: Path) -> None:
    log = tmp_path / "herder.log"
    assert not rotate(log, bytes_max=4)
    log.write_text("1234")
    assert not rotate(log, bytes_max=4)
    assert log.read_text() == "1234"


def test_a_log_that_cannot_be_copied_is_unchanged(tmp_path: Path) -> None:
    log = tmp_path / "herder.log"
    log.write_text("12345")
    (tmp_path / "herder.log.1").mkdir()  # no file can take its name
    with pytest.raises(OSError, match=r"herder\.log"):
        rotate(log, bytes_max=4, kept=1)
    assert not (tmp_path / "herder.log.partial").exists()


async def test_one_log_that_cannot_be_rotated_hinders_no_other(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.log", tmp_path / "good.log"
    for log in (bad, good):
        log.write_bytes(b"x" * (BYTES_MAX + 1))
    (tmp_path / "bad.log.partial").mkdir()
    asked: list[None] = []
    all_done = asyncio.Event()

    def logs() -> list[Path]:
        asked.append(None)
        if len(asked) == 2:
            all_done.set()
        return [bad, good]

    rotating = asyncio.create_task(rotate_all(logs, interval_s=0.01))
    async with asyncio.timeout(60):
        await all_done.wait()
    rotating.cancel()
    assert good.stat().st_size == 0
    assert (tmp_path / "good.log.1").stat().st_size == bad.stat().st_size == BYTES_MAX + 1
