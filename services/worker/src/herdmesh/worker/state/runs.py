"""One run of a task, and who is asked to share a slot when tasks wait.

Owns the rule of sharing. Does not own the runs (`tasks`).

Invariant: a run is asked once, and not before it took over: a task that was given a slot always gets to use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from herdmesh.engine.contract import Progress
from herdmesh.worker.state import events
from herdmesh.worker.state.model import Failure


@dataclass(slots=True)
class Run:
    """One run of a task, from SubmitRun to RunEnded."""

    run_id: str
    since: float
    base: Progress
    """Of the task's earlier runs."""
    pid: int = 0
    took_over: bool = False
    progress: Progress | None = None
    """Of this run alone."""
    outcome: events.RunFinished | Failure | None = None
    shared: bool = False
    """Told to share its slot."""
    stop_by: float | None = None
    """Told to stop; cancelled at this time."""
    cancelled: bool = False

    @property
    def may_be_asked(self) -> bool:
        """True while it moves records and was not asked or told to end."""
        return self.took_over and not self.shared and self.stop_by is None and self.outcome is None


def to_ask(runs: Iterable[Run], waiting: int, share_ms: int, now: float) -> list[tuple[Run, int]]:
    """Which runs to ask, and after how long, counted from its beginning, each is to end at the latest.

    As many as tasks wait, not counting those that were asked or told to stop already, the oldest first. A run that is
    asked ends by itself as soon as it has read all there is (`engine.control`); else it goes on for `share_ms`.
    """
    everyone = list(runs)
    wanted = waiting - sum(1 for run in everyone if run.shared or run.stop_by is not None)
    ready = sorted((run for run in everyone if run.may_be_asked), key=lambda run: run.since)
    return [(run, int((now - run.since) * 1000) + share_ms) for run in ready[: max(0, wanted)]]
