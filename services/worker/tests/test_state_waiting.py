"""Waits of units, as reported to the status store and the leader: once when they begin, once when they end."""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.connect.spi.waits import Wait
from herdmesh.engine.runtime.contract import RunEnd
from herdmesh.session.model import UnitId
from herdmesh.worker.state import WorkerState, events, instructions
from services.worker.tests import leader
from services.worker.tests.test_state_tasks import MOVED, TASK, machine, only, running, start

T0_MS = 1_790_000_000_000
AWAY = Wait("PostgreSQL db:5432", "connection refused", T0_MS, 3, T0_MS + 9_000)


def look(state: WorkerState, now: float) -> Sequence[instructions.Instruction]:
    return state.handle(events.HeartbeatDue(False, T0_MS + int(now * 1000)), now)


def told(out: Sequence[instructions.Instruction]) -> list[tuple[UnitId, Wait | None]]:
    return list(only(instructions.SendHeartbeat, out).waits)


def written(out: Sequence[instructions.Instruction]) -> list[list[str]]:
    return [[c.message for c in one.conditions] for one in out if isinstance(one, instructions.WriteStatus)]


def test_a_runs_wait_reaches_status_and_leader_until_it_ends() -> None:
    state = machine()
    state.handle(leader.welcome(1, frozenset()), 0.0)
    run_id = running(state)
    state.handle(events.RunLiveness(run_id, 0, 0, AWAY), 6.0)
    out = look(state, 6.5)
    assert told(out) == [(TASK, AWAY)]
    assert written(out) == [[AWAY.text()]]
    assert (told(look(state, 7.5)), written(look(state, 7.6))) == ([], [])
    later = Wait(AWAY.waits_for, AWAY.message, AWAY.since_ms, 4, AWAY.next_ms + 5_000)
    state.handle(events.RunLiveness(run_id, 0, 0, later), 8.0)
    out = look(state, 8.5)
    assert told(out) == [(TASK, later)], "the leader hears of each try"
    assert written(out) == [], "a status is a transaction, and waits"
    state.handle(events.RunProgress(run_id, MOVED), 9.0)
    assert told(look(state, 9.1)) == [], "a progress says nothing of waits"
    state.handle(events.RunLiveness(run_id, 0, 0, None), 9.5)
    out = look(state, 9.6)
    assert (told(out), written(out)) == ([(TASK, None)], [[]])


def test_a_runs_wait_before_its_process_exists_is_reported() -> None:
    """For example for a secret store that does not answer: its config is resolved first."""
    state = machine()
    state.handle(leader.welcome(1, frozenset()), 0.0)
    submitted = only(instructions.SubmitRun, state.handle(start(TASK), 0.0))
    look(state, 0.5)
    state.handle(events.RunLiveness(submitted.run_id, 0, 0, AWAY), 6.0)
    assert told(look(state, 6.5)) == [(TASK, AWAY)]
    state.handle(events.RunLiveness(submitted.run_id, 0, 0), 7.0)
    [(_, wait)] = told(look(state, 7.5))
    assert wait is not None
    assert wait.waits_for == "the start of its run"


def test_a_new_leader_gets_all_waits() -> None:
    state = machine()
    state.handle(leader.welcome(1, frozenset()), 0.0)
    run_id = running(state)
    state.handle(events.RunLiveness(run_id, 0, 0, AWAY), 6.0)
    look(state, 6.5)
    state.handle(events.SessionClosed(), 7.0)
    state.handle(leader.welcome(2, frozenset({TASK})), 8.0)
    assert told(look(state, 8.1)) == [(TASK, AWAY)]


def test_a_task_without_a_slot_has_a_wait_for_one() -> None:
    state = machine(slots=1)
    state.handle(leader.welcome(1, frozenset()), 0.0)
    first = running(state)
    state.handle(start(UnitId("c", 1)), 0.0)
    for second in range(1, 6):
        assert told(look(state, second)) == []
    [(unit, wait)] = told(look(state, 6.5))
    assert unit == UnitId("c", 1)
    assert wait is not None
    assert (wait.waits_for, wait.since_ms) == ("a run slot", T0_MS + 1_000)
    assert wait.message == "all 1 slots of this worker are taken"
    state.handle(events.RunFinished(first, RunEnd.QUIET, MOVED, 0), 7.0)
    state.handle(events.RunEnded(first), 7.0)
    assert told(look(state, 7.5)) == [(UnitId("c", 1), None)]


def test_a_run_that_does_not_begin_is_a_wait() -> None:
    state = machine()
    state.handle(leader.welcome(1, frozenset()), 0.0)
    state.handle(start(), 0.0)
    look(state, 0.5)
    [(_, wait)] = told(look(state, 6.0))
    assert wait is not None
    assert wait.waits_for == "the start of its run"


def test_the_idle_watchs_wait_is_the_idle_tasks_wait() -> None:
    state = machine()
    state.handle(leader.welcome(1, frozenset()), 0.0)
    run_id = running(state)
    state.handle(events.RunFinished(run_id, RunEnd.QUIET, MOVED, 0), 1.0)
    state.handle(events.RunEnded(run_id), 1.0)
    state.handle(events.TaskWaits(TASK, AWAY), 2.0)
    assert told(look(state, 2.5)) == [(TASK, AWAY)]
    state.handle(events.TaskWaits(TASK, None), 3.0)
    assert told(look(state, 3.5)) == [(TASK, None)]
