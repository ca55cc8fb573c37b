"""Record of one run of a task, as the worker knows it. Owns no rule."""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.engine.runtime import ProgressReport
from herdmesh.session.model import Failure
from herdmesh.worker.state import events
from herdmesh.worker.state.watchdog import Silence

_LATE_S = 1.0
"""So long after its time a run that shares commits, and ends."""


@dataclass(slots=True)
class Run:
    """One run of a task, from SubmitRun to RunEnded."""

    run_id: str
    since: float
    base: ProgressReport
    """Of the task's earlier runs."""
    pid: int = 0
    took_over: bool = False
    progress: ProgressReport | None = None
    """Of this run alone."""
    outcome: events.RunFinished | Failure | None = None
    share_by: float | None = None
    """Told to share its slot, and to have ended by this time; None = not told."""
    warm_since: float | None = None
    """It said so; None while it has something to do."""
    resting: bool = False
    """Warm, and told to rest."""
    stop_by: float | None = None
    """Told to stop; cancelled at this time."""
    cancelled: bool = False
    wait: Wait | None = None
    """What it has waited for longer than 5 s, as it said last."""
    silence: Silence | None = None
    """None until its process was heard."""

    def hear(self, progress: ProgressReport, now: float) -> None:
        """How far it says it is, and whether it goes on with nothing to do."""
        moved = self.progress is None or self.progress.records_in != progress.records_in
        self.progress = progress
        if not progress.warm:
            self.warm_since, self.resting = None, False
        elif self.warm_since is None or moved:
            self.warm_since = now

    @property
    def is_watched(self) -> bool:
        """True while nobody has told it to stop: who has, waits no longer than `stop_by`."""
        return self.silence is not None and self.stop_by is None and not self.cancelled

    @property
    def may_be_asked(self) -> bool:
        """True while it moves records and was not asked or told to end."""
        return self.took_over and self.share_by is None and self.stop_by is None and self.outcome is None

    def is_leaving(self, now: float) -> bool:
        """True when its slot is about to come free."""
        return self.stop_by is not None or (self.share_by is not None and not self.keeps_slot(now))

    def keeps_slot(self, now: float) -> bool:
        """True when it was asked and has not ended, because its task may not be cut where it is."""
        late = self.share_by is not None and now > self.share_by + _LATE_S
        return late and self.stop_by is None and self.outcome is None

    @property
    def may_rest(self) -> bool:
        """True while it is warm and was not told to end."""
        return self.warm_since is not None and not self.resting and self.stop_by is None and self.outcome is None
