"""Tests of folders of `SparkStreamSource`'s runs: the leftovers
of killed runs, and folders that must not be touched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from herdmesh.scratch import ScratchFolder
from libs.connectors.tests.spark.stream_reading import RATE, Reader
from tests.support.sizes import SOAKING

OWNER = """
import sys
from herdmesh.scratch import ScratchFolder
scratch = ScratchFolder("herdmesh-spark-stream-")
(scratch.path / "slice").mkdir()
(scratch.path / "slice" / "rows").write_text("rows")
print(scratch.path, flush=True)
sys.stdin.read()
"""
"""Program of a run that has a slice, prints its folder and waits."""
RUN = """
import json, sys
from herdmesh.connect.spi.connector import SourceTaskContext
from herdmesh.connectors.spark.stream_source.task import SparkStreamTask
task = SparkStreamTask()
task.start({"topic": "t", **json.loads(sys.argv[1])}, SourceTaskContext("c", 0, 1, "run", lambda _: None))
task.poll()  # where it begins
assert len(task.poll().values) == 4
print(task._stream._scratch.path, flush=True)
sys.stdin.read()
"""
"""Program of a task in the middle of its first slice."""
WORKER = """
import asyncio, structlog, sys
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
from herdmesh.worker.spark.session import SparkHost, spark_conf
async def main():
    host = SparkHost(spark_conf("", 1, "512m"))
    await host.start()
    print(host._scratch.path, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await host.stop(20)
asyncio.run(main())
"""
"""Program of a worker's Spark that runs until it is stopped."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the temporary folder of this process, and of its child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def killed(code: str, *arguments: str) -> Path:
    """Return the folder of a run that was killed when it had one."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().decode().strip())
        owner.kill()
    return path


def test_the_next_run_removes_a_killed_runs_folder_and_no_living_ones(temporary: Path) -> None:
    (temporary / "others").mkdir()
    living = ScratchFolder("herdmesh-spark-stream-")
    (living.path / "rows").write_text("rows")
    left = killed(OWNER)
    assert [path.name for path in left.iterdir()] == ["slice"]
    following = ScratchFolder("herdmesh-spark-stream-")
    assert set(temporary.iterdir()) == {temporary / "others", living.path, following.path}
    assert (living.path / "rows").read_text() == "rows"
    living.close()
    living.close()
    following.close()
    assert set(temporary.iterdir()) == {temporary / "others"}


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("spark")
@pytest.mark.skipif(not SOAKING, reason="a JVM of its own: make soak ARGS=lakehouse")
def test_a_run_killed_within_a_slice_leaves_nothing_after_the_next(temporary: Path) -> None:
    left = killed(RUN, json.dumps(RATE))
    assert list(left.glob("slice-*/rows/part-*"))
    Reader(**RATE).run()
    assert not left.exists()
    assert not list(temporary.glob("herdmesh-*"))


@pytest.mark.spark
@pytest.mark.skipif(not SOAKING, reason="two JVMs of its own: make soak ARGS=lakehouse")
def test_a_killed_worker_leaves_one_folder_that_the_next_one_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains Spark's blocks, the traces of crashes and
    the socket of deaths; a stopped worker leaves nothing.
    """
    with tempfile.TemporaryDirectory(prefix="w-") as short:  # socket names must be short
        monkeypatch.setenv("TMPDIR", short)
        _kill_and_follow(Path(short))


def _kill_and_follow(temporary: Path) -> None:
    left = killed(WORKER)
    assert left.parent == temporary
    names = {one.name.partition("-")[0] for one in left.iterdir()}
    assert {"deaths", "blockmgr"} <= names
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        assert path.is_dir()
        assert not left.exists()
        owner.communicate("stop\n")
    assert not [one.name for one in temporary.iterdir() if not one.name.startswith("hsperfdata")]
