"""Watchdog of a run's loop: time without progress, and the verdict about it.

Owns the arithmetic and the texts for an operator. The consequences are up to `tasks`. Times are seconds of the worker's
clock unless their names say otherwise.

A run reports how long its loop has not moved (`RunLiveness`), and that is trusted. A missing report of the whole
process counts as well: a loop can hang while it holds the interpreter's lock, and then nothing of that process can
report. But a worker that was frozen itself receives its runs' reports late, so it acts on missing reports only at a
second check, `CONFIRM_S` after the first.

Invariants: a run that was reported to move less than the limit ago is left alone. A run whose limit is above that for
STALLED (`end_ms` above `stalled_ms`) is never ended before it was found STALLED, however late its reports are: beyond
the limit at the first check it becomes STALLED, and is ended at the next. So a task that was RUNNING is shown as
STALLED before it is FAILED for it. One that never became RUNNING (its start hangs) has no such status.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto, unique
from typing import Final

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import Wait
from herdmesh.session.model import Condition, Failure, UnitId

STALLED: Final = "STALLED"
CONFIRM_S: Final = 2.5
"""More than the interval of the reports."""
_SETTING: Final = "max.poll.interval.ms"
_UNNAMED: Final = "the connector's code does not return, and reports no wait (`herdmesh.sdk.waits`)"


@unique
class Verdict(Enum):
    """Verdict about a run."""

    SAME = auto()
    MOVES = auto()
    """It moves again after it had stalled."""
    STALLED = auto()
    """It is stalled since this check."""
    OVER = auto()
    """It must be ended."""


@dataclass(slots=True)
class Silence:
    """Time without progress of one run, since the first message of its process."""

    received_at: float
    """Time of the process' last message."""
    end_ms: int
    """Time without progress after which the run is ended."""
    moved_ms: int = 0
    """Epoch time of the loop's last known move; 0 = unknown."""
    stalled: bool = False
    _silent_s: float = 0.0
    """Time without progress of the loop at the process' last message."""
    _doubted: float | None = None
    """Time of the first check that found no message."""

    def deadline(self, stalled_s: float) -> float:
        """Time of the next check, if no message arrives."""
        if self._doubted is not None:
            return self._doubted + CONFIRM_S
        end_s = self.end_ms / 1000
        return self.received_at + (end_s if self.stalled else min(stalled_s, end_s)) - self._silent_s

    def on_report(self, silent_ms: int, moved_ms: int, stalled_s: float, now: float) -> Verdict:
        """Handle a report: time since the loop's last move, 0 = it moves; `moved_ms` 0 = the report has no time of the
        last move.
        """
        self.received_at, self._silent_s, self._doubted = now, silent_ms / 1000, None
        self.moved_ms = moved_ms or self.moved_ms
        return self._verdict(self._silent_s, stalled_s)

    def look(self, stalled_s: float, now: float) -> Verdict:
        """Check whether the deadline has passed without a message."""
        if self.deadline(stalled_s) > now:
            return Verdict.SAME
        if self._doubted is None:
            self._doubted = now
            return Verdict.SAME
        self._doubted = None
        return self._verdict(self._silent_s + now - self.received_at, stalled_s)

    def _verdict(self, silent_s: float, stalled_s: float) -> Verdict:
        end_s = self.end_ms / 1000
        if silent_s >= end_s and (self.stalled or end_s <= stalled_s):
            return Verdict.OVER
        was, self.stalled = self.stalled, silent_s >= stalled_s
        if was == self.stalled:
            return Verdict.SAME
        return Verdict.STALLED if self.stalled else Verdict.MOVES

    def condition(self, unit: UnitId, wait: Wait | None = None) -> Condition:
        """Condition of a stalled task's status. `wait`: the wait that the run reported."""
        since = f" since {_text(self.moved_ms)}" if self.moved_ms else ""
        where = f"it {wait.text()}" if wait is not None else _UNNAMED
        message = (
            f"its run has done nothing{since}: {where}; its stacks are in the worker's log. It is ended and "
            f"retried after {_seconds(self.end_ms)} without progress (consumer.override.{_SETTING}), or now by "
            f"`herd restart {unit.connector} --task {unit.task}`"
        )
        return Condition(STALLED, message, self.moved_ms)

    def failure(self, wait: Wait | None = None) -> Failure:
        """Failure of a task whose run was ended."""
        since = f"; it last moved at {_text(self.moved_ms)}" if self.moved_ms else ""
        where = f"it {wait.text()}" if wait is not None else _UNNAMED
        return Failure(
            f"the run did nothing for {_seconds(self.end_ms)} ({_SETTING}) and was ended: {where}{since}. The worker's "
            f"log has its stacks. Set a larger consumer.override.{_SETTING} for calls that may take longer",
            error_class=ErrorClass.RETRIABLE,
        )

    def end_reason(self) -> str:
        """Reason for the log of the component that ends the run."""
        return f"it did nothing for {_seconds(self.end_ms)} ({_SETTING})"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
