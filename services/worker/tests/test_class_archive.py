"""Class-data archive for faster starts of Spark's JVM: used when it exists, for its own Java only, and never a
hindrance.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from herdmesh.sdk.spark import class_archive
from herdmesh.worker.spark import __main__ as maker
from herdmesh.worker.spark.session import spark_conf


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate environment, in a folder whose name must be quoted."""
    folder = tmp_path / "an environment"
    monkeypatch.setattr(sys, "prefix", str(folder))
    return folder


def _written(content: bytes) -> Path:
    archive = class_archive.archive_path()
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    return archive


def _options() -> str:
    return spark_conf("", 1, "512m")["spark.driver.extraJavaOptions"]


def test_an_existing_archive_is_used(environment: Path) -> None:
    assert "jsa" not in _options()
    archive = _written(b"classes")
    assert archive.is_relative_to(environment)
    assert f"-XX:SharedArchiveFile={archive}" in shlex.split(_options())


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[Path] = set()
    for name in ("one", "two"):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / name))
        found.add(class_archive.archive_path())
    assert len(found) == 2


def test_a_jvm_that_cannot_use_the_archive_starts_without_a_message() -> None:
    _written(b"of another build")
    options = shlex.split(class_archive.use_options())
    assert len(options) == 4
    java = shutil.which("java")
    assert java is not None
    ended = subprocess.run([java, *options, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "warning" not in ended.stdout.lower()


def test_a_spark_that_does_not_end_normally_leaves_no_archive(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every JVM would refuse a partial archive, and it would never be replaced."""

    class Killed:
        jvm_exit_code = -9

        def __init__(self, conf: dict[str, str], exit_timeout_s: float) -> None:
            options = shlex.split(conf["spark.driver.extraJavaOptions"])
            (written,) = [one for one in options if one.startswith("-XX:ArchiveClassesAtExit=")]
            self._fresh = Path(written.partition("=")[2])
            self.exit_timeout_s = exit_timeout_s

        async def start(self) -> None:
            self._fresh.write_bytes(b"half")

        async def open_session(self) -> None:
            assert self._fresh.exists()

        async def stop(self, timeout_s: float) -> None:
            assert timeout_s >= self.exit_timeout_s

    monkeypatch.setattr(maker, "SparkHost", Killed)
    assert maker.main() == 0
    assert "exit code -9" in capsys.readouterr().err
    assert not list(environment.rglob("spark-*"))

    monkeypatch.setattr(Killed, "jvm_exit_code", 0)
    assert maker.main() == 0
    assert class_archive.archive_path().read_bytes() == b"half"
