"""Tests of Hadoop's client beside a process: writes and
refusals, its end with the process, and its leftovers.

`test_staging_contract` has the tests of a folder in HDFS that apply to every folder.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from herdmesh.connect.errors import ConfigError, UnreachableError
from herdmesh.connectors.files import hadoop
from herdmesh.connectors.files.locations import Access, Location, opener
from herdmesh.connectors.files.remote_files import RemoteFiles
from herdmesh.engine.sink.staging import StagingFolder
from libs.connectors.tests.files.places import hdfs_place

WAIT_S = 60.0
P0 = ("flights", 0)
LARGE_BYTES = 3_000_077
OWNER = """
import sys
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.sink.staging import StagingFolder
from herdmesh.connectors.files.locations import Access, opener
from herdmesh.connectors.files.hadoop import shared_jvm
folder = StagingFolder(opener(Access())(sys.argv[1]), "group", "run-1")
with folder.writing(folder.new_name(("flights", 0), 0, 9, ".txt")) as file:
    file.write(b"rows")
print(shared_jvm()._process.pid, flush=True)
sys.stdin.read()
"""
"""Program that stages a file, prints its JVM's process id and waits."""


def test_files_are_written_read_renamed_and_never_replaced(hdfs: str) -> None:
    place = hdfs_place(hdfs)
    folder = "/" + Location.parse(place.directory).path
    at = hadoop.HadoopFileSystem(hadoop.shared_jvm(), hdfs, None)
    content = os.urandom(LARGE_BYTES)
    for name, data in (("a", content), ("b", b"b")):
        with at.open_output_stream(f"{folder}/{name}") as file:
            file.write(data)
    with at.open_input_stream(f"{folder}/a") as file:
        assert file.read() == content
    with pytest.raises(OSError, match="was not renamed"):
        at.move(f"{folder}/a", f"{folder}/b")
    at.move(f"{folder}/a", f"{folder}/c")
    assert place.look() == {"b": b"b", "c": content}
    assert at.get_file_info(f"{folder}/a").type == fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        at.delete_file(f"{folder}/a")


def test_a_jvm_ends_with_its_process_and_the_next_owner_deletes_its_staged_files(hdfs: str) -> None:
    place = hdfs_place(hdfs)
    command = [sys.executable, "-c", OWNER, place.directory]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        jvm = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
    ended, _, _ = select.select([jvm], [], [], WAIT_S)
    if not ended:
        signal.pidfd_send_signal(jvm, signal.SIGKILL)
    os.close(jvm)
    assert ended
    assert place.visible() == {}
    assert len(place.hidden()) == 1
    StagingFolder(place.files(), "group", "run-2", place.open).recover({P0: None})
    assert place.look() == {}


def test_a_refusal_of_hdfs_is_a_problem_of_the_folder(hdfs: str) -> None:
    place = hdfs_place(hdfs)
    with place.files().writing("a") as file:
        file.write(b"a")
    with pytest.raises(ConfigError, match="Permission denied: user=nobody") as refused:
        opener(Access(hadoop_user="nobody"))(place.directory).delete("a")
    assert (refused.value.field, "hadoop.user" in refused.value.fix) == ("directory", True)
    with pytest.raises(ConfigError, match="not a valid DFS filename") as colon, place.files().writing("at=10:30/a"):
        pass
    assert (colon.value.field, "colon" in colon.value.fix) == ("directory", True)


@contextmanager
def silent(backlog: int) -> Generator[str]:
    """Yield the address of a silent server: with a backlog, clients connect; without, not even that (the backlog is
    full, so the kernel drops further connects).
    """
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(backlog)
        for _ in range(0 if backlog else 4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_silent_name_node_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By our time-outs, lowered here, or by those of the user's configuration, which win."""
    theirs = "<property><name>ipc.client.rpc-timeout.ms</name><value>200</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{theirs}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    ours = hadoop.Patience(connect_ms=200, silent_retries=1, answer_ms=3_600_000)
    jvm = hadoop.HadoopJvm()
    try:
        for backlog in (0, 16):
            with silent(backlog) as address:
                at = hadoop.HadoopFileSystem(jvm, f"hdfs://{address}", None, ours)
                told = rf"failed: .*200 millis.*{address}\b.*check that the name node runs there.*ipc\.client"
                with pytest.raises(UnreachableError, match=told):
                    RemoteFiles(at, "/", f"hdfs://{address}", renames=True).read("a")
    finally:
        jvm.close()
