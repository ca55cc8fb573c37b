"""Metrics of one task: the sum of its runs.

Owns totals, windows and times in states of one task. A task's totals continue through the end, the loss and the failure
of runs, through PAUSED, and through restarts in place; they end when the task leaves the worker (`collector` has the
delay). Time is passed in.

Invariant: totals never decrease while the task is held; every attribute that another thread reads is one value,
replaced as a whole.
"""

from __future__ import annotations

from typing import Final

from herdmesh.connect.spi import ConnectorKind, Wait
from herdmesh.connect.task_counts import ErrorCounts
from herdmesh.connect.topics import lag
from herdmesh.engine.runtime import Latency, ProgressReport
from herdmesh.session.model import RunState, UnitId
from herdmesh.worker.metrics.windows import Window

_NONE: Final = ProgressReport()


class TaskMeter:
    """One task. `changed` is called when its state may have changed, `measured` with every report of a run."""

    def __init__(self, unit: UnitId, incarnation: str, kind: ConnectorKind | None, now_s: float) -> None:
        self.unit = unit
        self.incarnation = incarnation
        self.kind = kind
        self.labels = {"connector": unit.connector, "task": str(unit.task)}
        self.state = RunState.UNASSIGNED
        self.generation = -1
        self.since_s = now_s
        self._state_since_s = now_s
        self._in_state_s: dict[RunState, float] = dict.fromkeys(RunState, 0.0)
        self.records_in = self.records_out = self.records_dropped = 0
        self.commits = self.commit_failures = self.runs = 0
        self.reads, self.sends = Window(now_s), Window(now_s)
        self.batch_records, self.call_ms, self.commit_ms = Window(now_s), Window(now_s), Window(now_s)
        self.failed_commits, self.transaction_records, self.active_records = Window(now_s), Window(now_s), Window(now_s)
        self.commit_counts = Window(now_s)
        self.active_now = 0
        self.latency = Latency()
        self.errors = self._errors_before = ErrorCounts()
        self.progress = _NONE
        self.measured_s: float | None = None
        self.in_run = False
        self.wait: Wait | None = None
        self._run_id = ""
        self._reported = _NONE

    def changed(self, state: RunState, now_s: float) -> None:
        """Record the state."""
        if state is not self.state:
            self._in_state_s[self.state] += now_s - self._state_since_s
            self.state, self._state_since_s = state, now_s

    def begun(self, run_id: str) -> None:
        """Record that a run was submitted."""
        self._run_id, self._reported, self.in_run = run_id, _NONE, True
        self._errors_before = self.errors
        self.runs += 1

    def ended(self) -> None:
        """Record that its run is over."""
        self.in_run = False
        self.active_now = 0

    def measured(self, run_id: str, progress: ProgressReport, now_s: float) -> None:
        """Record a run's report: counts of the whole run, and measures since its previous report."""
        if run_id != self._run_id:
            return
        before, self._reported = self._reported, progress
        taken, given = progress.records_in - before.records_in, progress.records_out - before.records_out
        self.records_in += taken
        self.records_out += given
        self.records_dropped += progress.records_dropped - before.records_dropped
        self.errors = self._errors_before + progress.errors
        self.reads.count(taken, now_s)
        self.sends.count(given, now_s)
        new = progress.measures
        self.batch_records.add(new.batch_records, now_s)
        self.call_ms.add(new.call_ms, now_s)
        self.commit_ms.add(new.commit_ms, now_s)
        self.transaction_records.add(new.transaction_records, now_s)
        self.active_records.add(new.active_records, now_s)
        self.failed_commits.count(new.commit_failures, now_s)
        self.commit_counts.count(new.commit_ms.count, now_s)
        self.commits += new.commit_ms.count
        self.commit_failures += new.commit_failures
        self.active_now = new.active_records_now
        self.latency = self.latency + new.latency_ms
        self.progress = progress
        self.measured_s = now_s

    # --- read by the page

    def ratio(self, state: RunState, now_s: float) -> float:
        """Fraction of its time on this worker in that state."""
        whole_s = now_s - self.since_s
        if whole_s <= 0:
            return float(self.state is state)
        now_in_it_s = now_s - self._state_since_s if self.state is state else 0.0
        return min(1.0, (self._in_state_s[state] + now_in_it_s) / whole_s)

    def commit_ratio(self, now_s: float, *, failed: bool) -> float | None:
        """Fraction of the commits that succeeded, or failed; None when there were none."""
        good, bad = self.commit_ms.spread(now_s).count, self.failed_commits.spread(now_s).total
        if not good + bad:
            return None
        return (bad if failed else good) / (good + bad)

    def behind(self) -> int | None:
        """Records not read and put yet, of all partitions; None while unknown."""
        return lag.lag_of(self.progress.partitions).behind if self.progress.partitions else None

    def uncommitted(self) -> int | None:
        """Records put and not committed yet, of all partitions; None while unknown."""
        return lag.lag_of(self.progress.partitions).uncommitted if self.progress.partitions else None

    def uncommitted_max(self) -> int | None:
        """Records put and not committed yet, of the partition that has the most; None while unknown."""
        found = (lag.uncommitted(one) for one in self.progress.partitions)
        return max((one for one in found if one is not None), default=None)

    def lag_age_ms(self, now_s: float) -> float | None:
        """Age of the lag: 0 while a run measures it, or the idle watch would see it grow; None where it was never
        measured.
        """
        if self.measured_s is None or not self.progress.partitions:
            return None
        known = self.in_run or self.state is RunState.RUNNING
        return 0.0 if known else (now_s - self.measured_s) * 1000
