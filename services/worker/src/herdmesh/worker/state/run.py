"""Record of one run of a task, as the worker knows it. Owns no rule."""

from __future__ import annotations

from dataclasses import dataclass

from herdmesh.connect.spi import Wait
from herdmesh.engine.runtime import ProgressReport
from herdmesh.session.model import Failure
from herdmesh.worker.state import events
from herdmesh.worker.state.watchdog import Silence

_LATE_S = 1.0
"""Time after its deadline within which a run that shares its slot commits and ends."""


@dataclass(slots=True)
class Run:
    """One run of a task, from SubmitRun to RunEnded."""

    run_id: str
    since: float
    base: ProgressReport
    """Progress of the task's earlier runs."""
    pid: int = 0
    took_over: bool = False
    progress: ProgressReport | None = None
    """Progress of this run alone."""
    outcome: events.RunFinished | Failure | None = None
    share_by: float | None = None
    """Deadline of its command to share the slot; None = no such command."""
    warm_since: float | None = None
    """Time at which it reported to be warm; None while it has work."""
    end_requested: bool = False
    """True when it is warm and has the command to end."""
    stop_by: float | None = None
    """Deadline of its stop command, after which it is cancelled."""
    cancelled: bool = False
    wait: Wait | None = None
    """The last reported wait of more than 5 s."""
    silence: Silence | None = None
    """None until its process has connected."""

    def on_progress(self, progress: ProgressReport, now: float) -> None:
        """Record a progress report, and whether the run is warm."""
        moved = self.progress is None or self.progress.records_in != progress.records_in
        self.progress = progress
        if not progress.warm:
            self.warm_since, self.end_requested = None, False
        elif self.warm_since is None or moved:
            self.warm_since = now

    @property
    def is_watched(self) -> bool:
        """True while it has no stop command: after one it has only until `stop_by`."""
        return self.silence is not None and self.stop_by is None and not self.cancelled

    @property
    def may_share(self) -> bool:
        """True while it moves records and has no command to share, stop or end."""
        return self.took_over and self.share_by is None and self.stop_by is None and self.outcome is None

    def is_leaving(self, now: float) -> bool:
        """True when its slot is about to become free."""
        return self.stop_by is not None or (self.share_by is not None and not self.keeps_slot(now))

    def keeps_slot(self, now: float) -> bool:
        """True when it has not ended after a command to share, because its task may not be interrupted at this
        point."""
        late = self.share_by is not None and now > self.share_by + _LATE_S
        return late and self.stop_by is None and self.outcome is None

    @property
    def may_end(self) -> bool:
        """True while it is warm and has no command to end."""
        return self.warm_since is not None and not self.end_requested and self.stop_by is None and self.outcome is None
