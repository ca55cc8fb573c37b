"""One run of a task, and who is asked to share a slot when tasks wait.

Owns the rule of sharing. Does not own the runs (`tasks`).

Invariant: a run is asked once, and not before it had `SETTLE_S` since it took over: by then it has told whether there
is anything to read, so a task that was given a slot always gets to use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from herdmesh.engine.contract import Progress
from herdmesh.worker.state import events
from herdmesh.worker.state.model import Failure
from herdmesh.worker.state.progress import caught_up

SETTLE_S = 0.5


@dataclass(slots=True)
class Run:
    """One run of a task, from SubmitRun to RunEnded."""

    run_id: str
    since: float
    base: Progress
    """Of the task's earlier runs."""
    woken: bool
    """Started because there was work to be seen."""
    pid: int = 0
    took_over_at: float | None = None
    progress: Progress | None = None
    """Of this run alone."""
    outcome: events.RunFinished | Failure | None = None
    shared: bool = False
    """Told to share its slot."""
    stop_by: float | None = None
    """Told to stop; cancelled at this time."""
    cancelled: bool = False

    @property
    def may_be_asked_at(self) -> float | None:
        """When it may be asked to share; None = not before it took over, or not at all any more."""
        if self.took_over_at is None or self.shared or self.stop_by is not None or self.outcome is not None:
            return None
        return self.took_over_at + SETTLE_S

    @property
    def has_nothing_to_do(self) -> bool:
        """It has read all there is. One that was woken must have read something first."""
        if self.progress is None or (self.woken and not self.progress.records_in):
            return False
        return caught_up(self.progress) and self.progress.records_per_second == 0


def to_ask(runs: Iterable[Run], waiting: int, share_ms: int, now: float) -> list[tuple[Run, int]]:
    """Which runs to ask, and after how long, counted from its beginning, each is to end.

    As many as tasks wait, not counting those that were asked or told to stop already: first those with nothing to do,
    which may end at once, then the oldest, which may go on for `share_ms`.
    """
    everyone = list(runs)
    wanted = waiting - sum(1 for run in everyone if run.shared or run.stop_by is not None)
    ready = [run for run in everyone if run.may_be_asked_at is not None and run.may_be_asked_at <= now]
    ready.sort(key=lambda run: (not run.has_nothing_to_do, run.since))
    chosen: list[tuple[Run, int]] = []
    for run in ready[: max(0, wanted)]:
        run_ms = 0 if run.has_nothing_to_do else int((now - run.since) * 1000) + share_ms
        chosen.append((run, run_ms))
    return chosen


def ask_again_at(runs: Iterable[Run], waiting: int, now: float) -> float | None:
    """When more runs can be asked, None = not by waiting."""
    if not waiting:
        return None
    times = [run.may_be_asked_at for run in runs]
    return min((time for time in times if time is not None and time > now), default=None)
