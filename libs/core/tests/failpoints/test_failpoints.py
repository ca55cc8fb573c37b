"""Failpoints in a real process: the places where it stops, where it dies, and the log entry written before."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from herdmesh.failpoints import LOG_VARIABLE, VARIABLE, Failpoints
from herdmesh.topicstore import WriteStage
from herdmesh.topicstore.stages import failpoints_of

#: Hits the failpoint named on each line of stdin, in a thread as the topic store's writer does, and prints when it has
#: passed.
_CHILD = """
import sys, threading
from herdmesh.failpoints import Failpoints
points = Failpoints(["first", "second"])
points.arm("me")
def hit(name):
    points.rearm_if_changed()
    points.hit(name)
    print("passed", name, flush=True)
for line in sys.stdin:
    thread = threading.Thread(target=hit, args=(line.strip(),))
    thread.start()
    thread.join()
"""


@dataclass
class Child:
    process: subprocess.Popen[str]
    log: Path

    def hit(self, name: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until_stopped_or_ended(self) -> int:
        """Return the raw wait status; the process did not pass its failpoint."""
        status = os.waitpid(self.process.pid, os.WUNTRACED)[1]
        assert self.process.stdout is not None
        said = select.select([self.process.stdout.fileno()], [], [], 0)[0] if os.WIFSTOPPED(status) else []
        assert not said, self.said()
        return status

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


Start = Callable[[str], Child]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Start a child with these entries; all children share one log."""
    children: list[Child] = []

    def begin(entries: str) -> Child:
        log = tmp_path / "log"
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, VARIABLE: entries, LOG_VARIABLE: str(log)},
        )
        children.append(Child(process, log))
        return children[-1]

    yield begin
    for child in children:
        child.process.kill()
        child.process.wait()
        assert child.process.stdin is not None
        assert child.process.stdout is not None
        child.process.stdout.close()
        try:
            child.process.stdin.close()
        except BrokenPipeError:
            pass


def test_failpoint_stops_a_process_before_the_next_step_and_fires_once_for_all_processes(start: Start) -> None:
    child = start("other/second=stop, me/first=stop")
    child.hit("second")  # armed for another owner
    assert child.said() == "passed second"
    child.hit("first")
    assert os.WIFSTOPPED(child.until_stopped_or_ended())
    assert child.lines() == [f"first {child.process.pid} me"]
    child.process.send_signal(signal.SIGCONT)
    assert child.said() == "passed first"
    again = start("me/first=stop")
    for process in (child, again):
        process.hit("first")
        assert process.said() == "passed first"
    assert len(child.lines()) == 1


def test_always_fires_at_every_hit(start: Start) -> None:
    child = start("first=stop:always")
    for round_ in (1, 2):
        child.hit("first")
        assert os.WIFSTOPPED(child.until_stopped_or_ended())
        assert len(child.lines()) == round_
        child.process.send_signal(signal.SIGCONT)
        assert child.said() == "passed first"


def test_process_dies_at_its_failpoint_and_its_successor_does_not(start: Start) -> None:
    child = start("first=kill")
    child.hit("first")
    status = child.until_stopped_or_ended()
    assert os.WTERMSIG(status) == signal.SIGKILL
    child.process.returncode = -signal.SIGKILL  # the test waited for it already
    assert child.said() == ""
    assert child.lines() == [f"first {child.process.pid} me"]
    successor = start("first=kill")
    successor.hit("first")
    assert successor.said() == "passed first"


def test_held_thread_stays_at_its_failpoint_while_its_process_continues(start: Start) -> None:
    child = start("first=hold")
    child.hit("first")
    assert child.process.stdout is not None
    while not child.lines():
        assert child.process.poll() is None
        time.sleep(0.01)
    assert child.lines() == [f"first {child.process.pid} me"]
    # The child hits its points one after the other: its main thread runs, and waits for the held thread.
    child.hit("second")
    assert not select.select([child.process.stdout.fileno()], [], [], 0.2)[0]
    assert psutil.Process(child.process.pid).status() != psutil.STATUS_STOPPED


def test_running_process_can_be_armed(start: Start, tmp_path: Path) -> None:
    child = start(f"@{tmp_path / 'armed'}")
    child.hit("first")
    assert child.said() == "passed first"
    (tmp_path / "new").write_text("first=stop\n")
    (tmp_path / "new").replace(tmp_path / "armed")
    child.hit("first")
    assert os.WIFSTOPPED(child.until_stopped_or_ended())
    (tmp_path / "armed").unlink()
    child.process.send_signal(signal.SIGCONT)
    assert child.said() == "passed first"
    child.log.unlink()
    child.hit("first")
    assert child.said() == "passed first"


@pytest.mark.parametrize(
    "entries",
    [
        "lunch=stop",
        "first",
        "first=sleep",
        "first=stop:twice",
        "first=kill:always",
        "first=hold:always",
        "first=stop,second=",
        "=stop",
    ],
)
def test_mistyped_entry_is_an_error(entries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, entries)
    with pytest.raises(ValueError, match=VARIABLE):
        Failpoints(["first", "second"]).arm("me")


def test_store_has_exactly_six_write_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "other-topic/before-send=stop,other-topic/before-answer=kill")
    on_stage = failpoints_of("topic")
    for stage in WriteStage:
        on_stage(stage)  # armed for another topic
    assert [stage.value for stage in WriteStage] == [
        *("before-send", "after-send", "before-commit", "after-commit", "before-read-back", "before-answer")
    ]
    monkeypatch.setenv(VARIABLE, "before-write=stop")  # a failpoint of the record loop
    with pytest.raises(ValueError, match="before-write"):
        failpoints_of("topic")
