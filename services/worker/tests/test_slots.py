"""Fair sharing of slots, in simulated seconds: every busy task gets its turn, and no connector starves another."""

from __future__ import annotations

import heapq
from collections import defaultdict
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, Rate, RunEnd
from herdmesh.session.model import Assignment, TargetState, UnitId
from herdmesh.worker.state import TaskLimits, WorkerLimits, WorkerState, events, instructions
from herdmesh.worker.state.model import Phase, TaskSpec
from herdmesh.worker.state.slots import Queue
from services.worker.tests import leader
from tests.support.sizes import soak_or

SHARE_S = 2.0
HANDOVER_S = 0.2
"""How long one run takes to end and the next to take over."""
BEHIND = ProgressReport(
    records_in=5, partitions=(PartitionProgress("t", 0, 5, 5, 900),), commit_scope=CommitScope("connect-c", ("t",))
)


class Busy:
    """A worker whose tasks always have work: their runs end only after a command to share."""

    def __init__(self, slots: int, *keeping: str) -> None:
        """Runs of the connectors `keeping` do not end for others: they would restart their work."""
        self._keeping = keeping
        limits = TaskLimits(slots=slots, share_ms=int(SHARE_S * 1_000))
        self.state = WorkerState("life", WorkerLimits(limits))
        self.now = 0.0
        self.ran_s: dict[UnitId, float] = defaultdict(float)
        self.began: dict[UnitId, list[float]] = defaultdict(list)
        self.waits: dict[UnitId, list[float]] = defaultdict(list)
        self._queued_s: dict[UnitId, float] = {}
        self._units: dict[str, UnitId] = {}
        self._since: dict[str, float] = {}
        self._next: list[tuple[float, int, events.Event]] = []
        self._count = 0
        self._handle(leader.welcome(1, frozenset()))

    def start(self, connector: str, tasks: int) -> None:
        spec = TaskSpec({"connector.class": "FileStreamSink", "topics": "t"}, {}, tasks)
        for number in range(tasks):
            self._count += 1
            assignment = Assignment(1, self._count)
            unit = UnitId(connector, number)
            self._queued_s[unit] = self.now
            self._handle(leader.start_unit(1, unit, assignment, TargetState.STARTED, spec))

    def run_until(self, until_s: float) -> None:
        while self._next and self._next[0][0] <= until_s:
            self.now, _, event = heapq.heappop(self._next)
            self._handle(event)
        self.now = until_s

    def part(self, connector: str, since: dict[UnitId, float], length_s: float) -> float:
        """The connector's average number of slots."""
        return (
            sum(self.used(unit) - since.get(unit, 0.0) for unit in self.ran_s if unit.connector == connector) / length_s
        )

    def used(self, unit: UnitId) -> float:
        """How long the task has run, including its present run."""
        going_on = [self.now - self._since[run] for run, of in self._units.items() if of == unit and run in self._since]
        return self.ran_s[unit] + sum(going_on)

    def _at(self, time_s: float, event: events.Event) -> None:
        self._count += 1
        heapq.heappush(self._next, (time_s, self._count, event))

    def _handle(self, event: events.Event) -> None:
        if isinstance(event, events.RunProgress):
            self._since.setdefault(event.run_id, self.now)
            if self._units[event.run_id].connector in self._keeping:
                self._at(self.now + 0.5, event)  # as every run reports its progress
        elif isinstance(event, events.RunEnded):
            self._queued_s[self._units[event.run_id]] = self.now
            self.ran_s[self._units[event.run_id]] += self.now - self._since.pop(event.run_id)
        for one in self.state.handle(event, self.now):
            if isinstance(one, instructions.SubmitRun):
                self._units[one.run_id] = one.unit
                self.began[one.unit].append(self.now)
                self.waits[one.unit].append(self.now - self._queued_s[one.unit])
                self.ran_s.setdefault(one.unit, 0.0)
                self._at(self.now + HANDOVER_S / 2, events.RunProgress(one.run_id, BEHIND))
            elif isinstance(one, instructions.ShareRun) and self._units[one.run_id].connector not in self._keeping:
                end_s = max(self.now, self._since[one.run_id] + one.run_ms / 1000) + HANDOVER_S / 2
                self._at(end_s, events.RunFinished(one.run_id, RunEnd.YIELDED, BEHIND, 0))
                self._at(end_s, events.RunEnded(one.run_id))


def test_forty_busy_tasks_leave_two_of_another_connector_their_slots() -> None:
    worker = Busy(slots=8)
    worker.start("many", 40)
    worker.run_until(30.0)
    worker.start("few", 2)
    asked_s = worker.now
    worker.run_until(40.0)
    few = [UnitId("few", 0), UnitId("few", 1)]
    waited_s = max(worker.began[unit][0] for unit in few) - asked_s
    assert waited_s <= SHARE_S + 2 * HANDOVER_S, "they wait for one share, not for forty tasks"
    before = {unit: worker.used(unit) for unit in list(worker.ran_s)}
    worker.run_until(140.0)
    assert worker.part("few", before, 100.0) == pytest.approx(2.0, rel=0.01), "they never stop"
    assert worker.part("many", before, 100.0) == pytest.approx(6.0, rel=0.15), "and the others have the rest"
    assert all(len(worker.began[unit]) == 1 for unit in few)


def test_two_connectors_of_many_busy_tasks_have_half_each() -> None:
    worker = Busy(slots=8)
    worker.start("a", 40)
    worker.start("b", 10)
    worker.run_until(20.0)
    before = {unit: worker.used(unit) for unit in list(worker.ran_s)}
    worker.run_until(220.0)
    parts = [worker.part(name, before, 200.0) for name in ("a", "b")]
    assert parts[0] == pytest.approx(parts[1], rel=0.1)


def test_more_busy_connectors_than_slots_take_turns() -> None:
    worker = Busy(slots=2)
    for number in range(5):
        worker.start(f"c{number}", 1)
    worker.run_until(200.0)
    used = [worker.used(UnitId(f"c{number}", 0)) for number in range(5)]
    assert min(used) == pytest.approx(max(used), rel=0.15)


def test_an_uninterruptible_run_keeps_its_slot_and_no_other() -> None:
    """It counts as about to end until it is late; then the others take turns without its slot."""
    worker = Busy(2, "snapshot")
    worker.start("snapshot", 1)
    worker.run_until(5.0)
    for name in "ab":
        worker.start(name, 1)
    worker.run_until(200.0)
    used = [worker.used(UnitId(name, 0)) for name in "ab"]
    assert min(used) == pytest.approx(max(used), rel=0.15)
    assert sum(used) > 150
    assert len(worker.began[UnitId("snapshot", 0)]) == 1


@settings(max_examples=soak_or(12, 300), deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 8))
def test_every_busy_task_gets_its_turn_within_a_bound(sizes: list[int], slots: int) -> None:
    worker = Busy(slots)
    for number, size in enumerate(sizes):
        worker.start(f"c{number}", size)
    worker.run_until(300.0)
    turn_s = SHARE_S + 2 * HANDOVER_S
    for number, size in enumerate(sizes):
        # Its share of the slots is at least this; with fewer slots than connectors, it has one in some of the turns.
        own = slots // len(sizes)
        turns = ceil(size / own) + 1 if own else ceil(len(sizes) / slots) * size + len(sizes)
        for task in range(size):
            waits = worker.waits[UnitId(f"c{number}", task)]
            assert max(waits) <= turns * turn_s, (sizes, slots, number, task)


def test_the_queue_keeps_order_within_a_connector() -> None:
    queue = Queue()
    for connector, task in (("a", 0), ("a", 1), ("b", 0), ("a", 2)):
        queue.append(UnitId(connector, task))
    queue.remove(UnitId("a", 1))
    assert queue.counts() == {"a": 2, "b": 1}
    assert queue.pop({"a": 1}) == UnitId("b", 0), "it has fewer runs"
    assert [queue.pop({}), queue.pop({})] == [UnitId("a", 0), UnitId("a", 2)]
    assert len(queue) == 0


# --- rate limits


def _worker_with_runs(tasks: int) -> tuple[WorkerState, list[str]]:
    state = WorkerState("life", WorkerLimits(TaskLimits(slots=8)))
    state.handle(leader.welcome(1, frozenset()), 0.0)
    runs: list[str] = []
    for number in range(tasks):
        spec = TaskSpec({"connector.class": "FileStreamSink", "topics": "t"}, {}, tasks)
        start = leader.start_unit(1, UnitId("c", number), Assignment(1, number + 1), TargetState.STARTED, spec)
        runs += [one.run_id for one in state.handle(start, 0.0) if isinstance(one, instructions.SubmitRun)]
    return state, runs


def test_a_run_gets_its_rate_after_its_take_over_and_again_when_it_changes() -> None:
    state, (first, second) = _worker_with_runs(2)
    state.handle(events.RunProgress(first, BEHIND), 0.1)
    rate = Rate(40.0, 0.0)
    assert state.handle(leader.set_rate(1, "c", rate), 0.2) == [instructions.RateRun(first, rate)]
    assert instructions.RateRun(second, rate) in state.handle(events.RunProgress(second, BEHIND), 0.3)
    assert not any(
        isinstance(one, instructions.RateRun) for one in state.handle(events.RunProgress(second, BEHIND), 0.4)
    )
    assert state.handle(leader.set_rate(1, "other", rate), 0.5) == []


def test_without_a_leader_each_task_returns_to_its_equal_share() -> None:
    state, (run,) = _worker_with_runs(1)
    state.handle(events.RunProgress(run, BEHIND), 0.1)
    state.handle(leader.set_rate(1, "c", Rate(40.0)), 0.2)
    assert state.handle(events.SessionClosed(), 0.3) == [instructions.RateRun(run, Rate())]
    assert state.handle(events.SessionClosed(), 0.4) == []


def test_a_task_over_its_rate_limit_runs_again_only_after_the_delay() -> None:
    state, (run,) = _worker_with_runs(1)
    state.handle(events.RunProgress(run, BEHIND), 0.1)
    state.handle(events.RunFinished(run, RunEnd.YIELDED, BEHIND, 5_000), 1.0)
    assert state.handle(events.RunEnded(run), 1.0) == []
    task = state.tasks.get(UnitId("c", 0))
    assert task is not None
    assert task.phase is Phase.WAITING
    assert state.next_deadline() == 6.0
    assert any(isinstance(one, instructions.SubmitRun) for one in state.handle(events.Tick(), 6.0))
