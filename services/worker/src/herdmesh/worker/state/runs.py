"""One run of a task, as the worker knows it. Owns the record of it, and no rule."""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.engine.contract import Progress
from herdmesh.worker.state import events
from herdmesh.worker.state.model import Failure
from herdmesh.worker.state.watchdog import Silence


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
    silence: Silence | None = None
    """None until its process was heard."""

    @property
    def is_watched(self) -> bool:
        """True while nobody has told it to stop: who has, waits no longer than `stop_by`."""
        return self.silence is not None and self.stop_by is None and not self.cancelled

    @property
    def may_be_asked(self) -> bool:
        """True while it moves records and was not asked or told to end."""
        return self.took_over and not self.shared and self.stop_by is None and self.outcome is None
