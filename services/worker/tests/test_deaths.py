"""Exit statuses of processes, sent by their parent: real forks, real signals, and Spark's own daemon loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from herdmesh.worker.spark import deaths
from herdmesh.worker.spark.deaths import Deaths, is_own_doing, words_for

#: Like Spark's daemon: ignores its children's ends when it begins, and then forks one for each way to end.
PROGRAM = """
import ctypes, os, signal, subprocess, sys
from herdmesh.worker.spark import deaths

def own_child():
    pid = os.fork()  # not the daemon's: its end is this process' to ask for
    if pid == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert subprocess.run(["false"]).returncode == 1
    os._exit(5)

ENDS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashed": lambda: ctypes.string_at(0),
    "aborted": os.abort,
    "exited": lambda: os._exit(3),
    "left": lambda: os._exit(0),
    "parent": own_child,
}
deaths.watch_children()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:  # Spark's first fork is nobody's run
    os._exit(0)
for name, end in ENDS.items():
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        deaths.say_begun(name)
        end()
        os._exit(1)
sys.stdin.read()
"""


@pytest.fixture
async def heard() -> AsyncIterator[tuple[Deaths, str]]:
    listening = Deaths()
    with tempfile.TemporaryDirectory(prefix="d-") as folder:  # short enough for a socket's path
        yield listening, await listening.start(Path(folder))
        listening.close()
        assert not os.listdir(folder)


async def test_each_childs_exit_status_is_reported_under_its_process_id(heard: tuple[Deaths, str]) -> None:
    listening, path = heard
    env = {**os.environ, deaths.SOCKET_VARIABLE: path}
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, env=env, stdin=asyncio.subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        names = ("killed", "crashed", "aborted", "exited", "left", "parent")
        found = await asyncio.gather(*(_until_known(listening, name) for name in names))
    finally:
        await daemon.communicate(b"")
    assert [os.waitstatus_to_exitcode(one) for one in found] == [
        -signal.SIGKILL,
        -signal.SIGSEGV,
        -signal.SIGABRT,
        3,
        0,
        5,
    ]
    assert await listening.status_of("killed") is None, "told once"


async def _until_known(listening: Deaths, name: str) -> int:
    """Wait however long the machine takes to start a Python."""
    for _ in range(20):
        if (status := await listening.status_of(name)) is not None:
            return status
    raise AssertionError(f"nothing heard of {name}")


async def test_no_status_is_lost_while_the_worker_is_busy(
    heard: tuple[Deaths, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more of them than a kernel buffers for a socket."""
    listening, path = heard
    monkeypatch.setenv(deaths.SOCKET_VARIABLE, path)
    names = [f"p{number}" for number in range(100)]

    def tell_all() -> None:
        for name in names:
            deaths.say_begun(name)  # all of this process, whose pid is used again
            deaths._send("ended", os.getpid(), signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]

    teller = threading.Thread(target=tell_all)
    teller.start()
    teller.join(0.1)  # the loop does nothing else meanwhile
    found = await asyncio.gather(*(_until_known(listening, name) for name in names))
    assert set(found) == {signal.SIGKILL}
    teller.join()


async def test_a_status_that_arrives_in_the_step_of_the_timeout_is_returned(
    heard: tuple[Deaths, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, _ = heard
    monkeypatch.setattr(deaths, "_TELL_S", 0.05)
    loop = asyncio.get_running_loop()
    due = loop.time() + deaths._TELL_S  # pyright: ignore[reportPrivateUsage]
    asked = asyncio.create_task(listening.status_of("p"))

    def tell() -> None:
        listening.datagram_received(b"begun 7 p", None)
        listening.datagram_received(b"ended 7 9", None)

    loop.call_at(due + 0.005, tell)
    await asyncio.sleep(0)  # the query starts
    while loop.time() < due + 0.01:
        pass  # a busy loop: at its next step both are due
    assert await asked == signal.SIGKILL


def test_a_child_without_a_listener_keeps_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(deaths.SOCKET_VARIABLE, str(tmp_path / "nobody"))
    deaths.say_begun("p")
    monkeypatch.delenv(deaths.SOCKET_VARIABLE)
    deaths.say_begun("p")


def test_a_reused_pid_names_only_the_later_process() -> None:
    listening = Deaths()
    for line in (b"begun 7 first", b"begun 7 second", b"ended 7 9", b"ended 7 11", b"ended x", b"\xff", b"begun"):
        listening.datagram_received(line, None)
    assert asyncio.run(listening.status_of("second")) == signal.SIGKILL


def test_unread_statuses_are_bounded() -> None:
    listening = Deaths()
    for number in range(1_001):
        listening.datagram_received(f"begun {number} p{number}".encode(), None)
        listening.datagram_received(f"ended {number} 9".encode(), None)
    assert asyncio.run(listening.status_of("p1000")) == signal.SIGKILL
    assert len(listening.kept()) == 999


@pytest.mark.parametrize(
    ("status", "words", "own"),
    [
        (signal.SIGSEGV, "its process was killed by SIGSEGV (Segmentation fault)", True),
        (signal.SIGABRT | 0x80, "its process was killed by SIGABRT (Aborted)", True),
        (signal.SIGTERM, "its process was killed by SIGTERM (Terminated)", False),
        (
            signal.SIGKILL,
            "its process was killed by SIGKILL (Killed): by the kernel because memory ran out, or by another process",
            False,
        ),
        (3 << 8, "its process exited with code 3 before its run ended", True),
        (0, "its process exited with code 0 before its run ended", True),
    ],
)
def test_texts_and_blame_for_each_kind_of_end(status: int, words: str, own: bool) -> None:
    assert words_for(status) == words
    assert is_own_doing(status) is own
