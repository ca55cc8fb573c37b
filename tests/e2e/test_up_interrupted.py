"""`herd up`, `herd up --detach` and `herd down` that are interrupted: by each signal, once and twice, by kill -9 of the
supervisor while its broker starts, by the removal of the folder. Real processes; afterwards none of them is left.

The broker is frozen (SIGSTOP) where a stop has to last, so that the second signal comes while it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from herdmesh.devstack.broker import QUICK_JVM, STOP_TIMEOUT_S
from herdmesh.devstack.layout import StackLayout, StackState
from herdmesh.devstack.ports import PortReservations

pytestmark = [pytest.mark.own_broker, pytest.mark.slow, pytest.mark.timeout(120)]
WAIT_S = 60.0
MARKER = "HERDMESH_TEST_MARKER"
SERVICES = ("config-store", "status-store", "herder", "worker-1")
FORCED = "stopped by force; uncommitted work is repeated at the next start"
STILL = "stopping in order; Ctrl-C again ends all at once"


def _with_default_signals() -> None:
    """As in a terminal, also where the tests run under nohup, which has its processes ignore SIGHUP."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """Commands of `herd` in one folder. Every process that they start inherits a variable, by which it is found."""

    def __init__(self, folder: Path, data: Path = Path(".herd")) -> None:
        self.folder = folder
        self.layout = StackLayout(folder / data)
        self.layout.choose_ports(SERVICES, PortReservations(), usual=False)
        self.layout.broker_dir.mkdir()
        self.marker = uuid.uuid4().hex
        self.output = folder / "output-0"
        """The output of the latest command."""
        self._count = 0

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        self._count += 1
        self.output = self.folder / f"output-{self._count}"
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "herdmesh.cli", *arguments],
                cwd=self.folder,
                env={
                    **os.environ,
                    MARKER: self.marker,
                    "JDK_JAVA_OPTIONS": " ".join(QUICK_JVM),
                    "XDG_CONFIG_HOME": str(self.folder / "config"),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_with_default_signals,
            )

    def printed(self) -> str:
        return " ".join(self.output.read_text().split())

    def all_printed(self) -> str:
        """The output of all commands."""
        return " ".join(" ".join(one.read_text().split()) for one in self.folder.glob("output-*"))

    def state_when(self, holds: Callable[[StackState], object]) -> StackState:
        """Wait until the state file says so."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            state = self.layout.read_state()
            if state is not None and holds(state):
                return state
            assert time.monotonic() < deadline_s, self.output.read_text()
            time.sleep(0.02)

    def until_printed(self, text: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while text not in self.printed():
            assert time.monotonic() < deadline_s, self.output.read_text()
            time.sleep(0.02)

    def forced_by(self, process: subprocess.Popen[bytes], number: signal.Signals) -> int:
        """Send the signal until the process says that it ends everything, sooner than the frozen broker would be
        killed; returns its exit code. Two signals within half a second are one.
        """
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while FORCED not in self.printed() and process.poll() is None:
            assert time.monotonic() < deadline_s
            process.send_signal(number)
            time.sleep(0.2)
        return process.wait(WAIT_S)

    def broker(self) -> psutil.Process:
        """Wait until the broker serves and the services were started."""
        state = self.state_when(lambda state: any(one.name == "worker-1" and one.mark for one in state.services))
        (broker,) = [one for one in state.services if one.name == "broker"]
        assert broker.mark is not None
        return psutil.Process(broker.mark.pid)

    def left(self) -> list[str]:
        """Processes that are still there."""
        found: list[str] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARKER) == self.marker and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline())[-200:])
        return found


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        yield terminal
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARKER) == terminal.marker:
                    process.kill()


def test_a_closed_terminal_stops_everything_while_up_starts(terminal: Terminal) -> None:
    up = terminal.start("up")
    terminal.broker()
    up.send_signal(signal.SIGHUP)
    assert up.wait(WAIT_S) == 0
    assert terminal.output.read_text().splitlines()[-1] == "stopped"
    assert terminal.left() == []


def test_the_second_signal_ends_up_at_once(terminal: Terminal) -> None:
    up = terminal.start("up")
    terminal.broker().suspend()
    up.send_signal(signal.SIGINT)
    terminal.until_printed("stopping")
    assert terminal.forced_by(up, signal.SIGTERM) == 130
    assert terminal.output.read_text().splitlines()[-1] == FORCED
    assert terminal.left() == []


@pytest.mark.parametrize("twice", [False, True])
def test_an_interrupted_start_in_the_background_leaves_nothing(terminal: Terminal, twice: bool) -> None:
    up = terminal.start("up", "--detach")
    broker = terminal.broker()
    if twice:
        broker.suspend()
    up.send_signal(signal.SIGINT if twice else signal.SIGHUP)
    terminal.until_printed(STILL)
    assert (terminal.forced_by(up, signal.SIGINT) if twice else up.wait(WAIT_S)) == 130
    says = FORCED if twice else "the start was interrupted, and everything that it had started is stopped"
    assert says in terminal.printed()
    assert terminal.left() == []


def test_the_second_signal_of_down_ends_everything_at_once(terminal: Terminal) -> None:
    up = terminal.start("up", "--detach")
    broker = terminal.broker()
    broker.suspend()
    down = terminal.start("down")
    terminal.state_when(lambda state: any(one.state == "stopped" for one in state.services))
    down.send_signal(signal.SIGINT)
    terminal.until_printed(STILL)
    assert broker.is_running(), "the first signal changes nothing"
    assert terminal.forced_by(down, signal.SIGINT) == 130
    assert FORCED in terminal.printed()
    assert up.wait(WAIT_S) == 1
    assert terminal.left() == []
    assert terminal.start("down").wait(WAIT_S) == 0
    assert "nothing runs in" in terminal.printed()


@pytest.mark.parametrize("then", ["down", "up"])
def test_a_supervisor_killed_while_its_broker_starts_leaves_nothing_for_ever(terminal: Terminal, then: str) -> None:
    """Nobody knows the ports of such a broker: it held its folder for ever, and `herd up` was refused."""
    up = terminal.start("up")
    lock = terminal.layout.broker_dir / "broker.lock"
    deadline_s = time.monotonic() + WAIT_S
    while not (lock.exists() and lock.read_text().strip()):
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    broker = psutil.Process(int(lock.read_text()))
    broker.suspend()  # it does not come to serve
    up.kill()
    up.wait(WAIT_S)
    broker.resume()
    assert not (terminal.layout.broker_dir / "ports.json").exists()
    after = terminal.start(then)
    if then == "up":
        assert terminal.broker() != broker
        after.send_signal(signal.SIGTERM)
    assert after.wait(WAIT_S) == 0
    assert terminal.left() == []


def test_a_closed_terminal_ends_the_demo(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Path("demo/stack"))
    terminal.layout.write_state(StackState())  # the folder is of an earlier demo
    demo = terminal.start("demo", "--data", "demo")
    terminal.broker()
    demo.send_signal(signal.SIGHUP)
    assert demo.wait(WAIT_S) == 130
    assert STILL in terminal.printed()
    assert not (tmp_path / "demo").exists()
    assert terminal.left() == []


def test_two_starts_in_one_folder_make_one_stack(terminal: Terminal, tmp_path: Path) -> None:
    """At the same moment: one wins, and the other names it. `herd down` in a copy of the folder stops neither."""
    first, second = terminal.start("up"), terminal.start("up", "-o", "json")
    broker = terminal.broker()
    deadline_s = time.monotonic() + WAIT_S
    while first.poll() is None and second.poll() is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    winner, loser = (second, first) if second.poll() is None else (first, second)
    assert loser.wait(WAIT_S) == 1
    state = terminal.layout.read_state()
    assert state is not None
    assert state.supervisor is not None
    assert state.supervisor.pid == winner.pid
    assert f"is already in use by process {winner.pid}: `herd down` stops it" in terminal.all_printed()
    copy = tmp_path / "copy" / ".herd"
    shutil.copytree(terminal.layout.data_dir, copy, ignore=shutil.ignore_patterns("tmp"))
    command = [sys.executable, "-m", "herdmesh.cli", "down", "-o", "json", "--data", str(copy)]
    down = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(down.stdout)["result"] == "not_running", "the stack of a copied folder is not the copy's"
    assert broker.is_running()
    winner.terminate()
    assert winner.wait(WAIT_S) == 0
    assert terminal.left() == []


def test_a_stack_without_its_folder_stops_and_says_why(terminal: Terminal) -> None:
    """`rm -r .herd` while it runs: no command found its processes afterwards."""
    up = terminal.start("up")
    terminal.broker()
    shutil.rmtree(terminal.layout.data_dir)
    assert up.wait(WAIT_S) == 1
    assert f"{terminal.layout.data_dir} was moved or removed while its stack ran" in terminal.printed()
    assert "stopped" in terminal.output.read_text().splitlines()
    # The folder itself may be there again: a broker that creates a partition at that moment creates its folders.
    assert not terminal.layout.state_file.exists()
    assert terminal.left() == []
