"""Measurement, in a run's process, of the time without progress of its loop, and the log of its stacks."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from herdmesh.engine.runtime import progress_ticks
from herdmesh.worker.run.run_watch import STUCK_S, RunWatch

pytestmark = pytest.mark.timed

#: The main thread hangs until its input ends and holds the interpreter's lock, so no other thread of Python can run.
HANGS = """
import ctypes, time
from herdmesh.worker.run.run_watch import RunWatch

def a_call_that_does_not_return():
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)

watch = RunWatch(400, 10_000, time.monotonic())
a_call_that_does_not_return()
"""


class Timer:
    """Replacement for faulthandler's timer: the last number of seconds, None = cancelled."""

    def __init__(self) -> None:
        self.asked: list[float | None] = []

    def dump_traceback_later(self, timeout: float) -> None:
        self.asked.append(timeout)

    def cancel_dump_traceback_later(self) -> None:
        self.asked.append(None)


def test_time_without_progress_grows_until_the_loop_moves() -> None:
    watch = RunWatch(30_000, 300_000, 0.0, Timer())
    assert watch.interval_s == 2.0
    assert watch.wait_s(0.5) == 1.5
    progress_ticks.moved()
    assert watch.look(2.0) == 0
    assert [watch.look(now_s) for now_s in (4.0, 6.0, 8.0)] == [2_000, 4_000, 6_000]
    progress_ticks.moved()
    assert watch.look(10.0) == 0
    assert watch.look(12.0) == 2_000


def test_time_in_which_the_whole_process_was_frozen_is_capped() -> None:
    watch = RunWatch(30_000, 300_000, 0.0, Timer())
    assert watch.look(600.0) == 4_000


def test_short_limits_shorten_the_interval_of_checks() -> None:
    assert RunWatch(1_000, 300_000, 0.0, Timer()).interval_s == 0.25
    assert RunWatch(30_000, 2_000, 0.0, Timer()).interval_s == 0.5


def test_stacks_are_logged_when_a_run_stalls_and_before_it_is_ended() -> None:
    timer = Timer()
    watch = RunWatch(30_000, 300_000, 0.0, timer)
    assert timer.asked == [29.0], "armed before anything hangs"
    progress_ticks.moved()
    watch.look(2.0)
    assert timer.asked == [29.0, 29.0], "put off while it moves"
    for look in range(2, 16):
        watch.look(look * 2.0)
    assert timer.asked == [29.0, 29.0], "now it fires"
    watch.look(32.0)
    assert timer.asked[2:] == [269.0], "again at 299 s of silence"
    watch.look(34.0)
    assert len(timer.asked) == 3


def test_the_timer_of_a_stop_command_is_not_postponed() -> None:
    timer = Timer()
    watch = RunWatch(30_000, 300_000, 0.0, timer)
    watch.on_stop_command()
    progress_ticks.moved()
    watch.look(2.0)
    assert timer.asked == [29.0, STUCK_S]
    watch.over()
    progress_ticks.moved()
    watch.look(4.0)
    assert timer.asked == [29.0, STUCK_S, None]


def test_stacks_are_logged_when_the_hanging_thread_holds_the_gil() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGS], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        never = threading.Timer(60, child.kill)
        never.start()
        try:
            assert any(b"in a_call_that_does_not_return" in line for line in child.stderr), "it hangs without a word"
            # Stacks are read without a lock: a thread that continues while its own is read can crash the process.
            assert any(b"in <module>" in line for line in child.stderr)
        finally:
            never.cancel()
            child.stdin.close()
    assert child.returncode == 0
