"""Watchdog of a run's loop: how long it has been silent, and what that means.

Owns the arithmetic and the words for an operator. What follows is up to `tasks`. Times are seconds of the worker's
clock unless their names say otherwise.

A run says how long its loop has been silent (`RunPulse`), and that is believed. Silence of the whole process counts
as well: a loop can hang with the interpreter's lock, and then nothing of that process speaks. But a worker that itself
stood still hears its runs late, so it acts on what it did not hear only at a second look, `CONFIRM_S` after the first.

Invariants: nothing is done about a run that was heard to move less than the bound ago; a run that may stand still for
longer than what is shown (`end_ms` above `stalled_ms`) is never ended before it was found STALLED, however late it was
heard: what is silent for too long at the first look is STALLED then, and over at the next. So a task that was RUNNING
is said to stand still before it is FAILED for it. One that never became RUNNING (its start hangs) has no such status.
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
"""More than the time between two pulses."""
_SETTING: Final = "max.poll.interval.ms"
_UNNAMED: Final = "the connector's code does not return, and does not say what it waits for (`herdmesh.sdk.waits`)"


@unique
class Verdict(Enum):
    """What is to be said of a run."""

    SAME = auto()
    MOVES = auto()
    """Again, after it had stalled."""
    STALLED = auto()
    """As of now."""
    OVER = auto()
    """It is to be ended."""


@dataclass(slots=True)
class Silence:
    """Of one run, since its process was heard first."""

    heard: float
    """When the process last said anything."""
    end_ms: int
    """Silence that ends the run."""
    moved_ms: int = 0
    """Epoch time at which the loop last moved, as far as known; 0 = not known."""
    stalled: bool = False
    _silent_s: float = 0.0
    """Of the loop, when the process was heard."""
    _doubted: float | None = None
    """When the first look found nothing."""

    def deadline(self, stalled_s: float) -> float:
        """When to look, if nothing is heard."""
        if self._doubted is not None:
            return self._doubted + CONFIRM_S
        end_s = self.end_ms / 1000
        return self.heard + (end_s if self.stalled else min(stalled_s, end_s)) - self._silent_s

    def told(self, silent_ms: int, moved_ms: int, stalled_s: float, now: float) -> Verdict:
        """The process said how silent its loop is, 0 = it moves; `moved_ms` 0 = it did not say when it last did."""
        self.heard, self._silent_s, self._doubted = now, silent_ms / 1000, None
        self.moved_ms = moved_ms or self.moved_ms
        return self._verdict(self._silent_s, stalled_s)

    def look(self, stalled_s: float, now: float) -> Verdict:
        """The deadline may have come without a word."""
        if self.deadline(stalled_s) > now:
            return Verdict.SAME
        if self._doubted is None:
            self._doubted = now
            return Verdict.SAME
        self._doubted = None
        return self._verdict(self._silent_s + now - self.heard, stalled_s)

    def _verdict(self, silent_s: float, stalled_s: float) -> Verdict:
        end_s = self.end_ms / 1000
        if silent_s >= end_s and (self.stalled or end_s <= stalled_s):
            return Verdict.OVER
        was, self.stalled = self.stalled, silent_s >= stalled_s
        if was == self.stalled:
            return Verdict.SAME
        return Verdict.STALLED if self.stalled else Verdict.MOVES

    def condition(self, unit: UnitId, wait: Wait | None = None) -> Condition:
        """What the task's status says while it is stalled. `wait`: what it says that it waits for."""
        since = f" since {_text(self.moved_ms)}" if self.moved_ms else ""
        where = f"it {wait.text()}" if wait is not None else _UNNAMED
        message = (
            f"its run has done nothing{since}: {where}; its stacks are in the worker's log. It is ended and tried "
            f"again after {_seconds(self.end_ms)} of that (consumer.override.{_SETTING}), or now by "
            f"`herd restart {unit.connector} --task {unit.task}`"
        )
        return Condition(STALLED, message, self.moved_ms)

    def failure(self, wait: Wait | None = None) -> Failure:
        """Why its task failed when it was ended."""
        since = f"; it last moved at {_text(self.moved_ms)}" if self.moved_ms else ""
        where = f"it {wait.text()}" if wait is not None else _UNNAMED
        return Failure(
            f"the run did nothing for {_seconds(self.end_ms)} ({_SETTING}) and was ended: {where}{since}. The worker's "
            f"log has its stacks. What may take longer needs a larger consumer.override.{_SETTING}",
            error_class=ErrorClass.RETRIABLE,
        )

    def end_reason(self) -> str:
        """For the log of who ends it."""
        return f"it did nothing for {_seconds(self.end_ms)} ({_SETTING})"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"


def _text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
