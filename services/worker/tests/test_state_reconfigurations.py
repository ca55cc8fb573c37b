"""Rate limit of a connector that requests new task configs in a loop; no request is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.session.model import RunState
from herdmesh.worker.state import WorkerState, events, instructions
from herdmesh.worker.state.reconfigurations import BURST, LIMITED, QUIET_S, WAIT_S_MAX, Reconfigurations
from services.worker.tests import leader
from services.worker.tests.test_state_machine import CONNECTOR, machine, only, start_connector


def running() -> tuple[WorkerState, int]:
    """A connector that runs in a session; the number of its start."""
    state = machine()
    call = only(instructions.StartConnector, state.handle(start_connector(), 0.0))
    state.handle(events.ConnectorStarted("c", call.op_id), 0.0)
    state.handle(leader.welcome(1, frozenset({CONNECTOR})), 0.0)
    return state, call.op_id


def answered(state: WorkerState, out: list[instructions.Instruction], now: float, number: int) -> int:
    """Answer each request for task configs; returns their number."""
    asked = 0
    for one in out:
        if isinstance(one, instructions.MakeTaskConfigs):
            made = events.TaskConfigsMade("c", one.op_id, [{"number": str(number)}])
            asked += 1 + answered(state, state.handle(made, now), now, number)
    return asked


def test_a_request_every_millisecond_for_209_s_makes_a_dozen_task_sets() -> None:
    """There were 6,466 of them before the limit."""
    state, op_id = running()
    sets = 0
    for ms in range(1, 209_000):
        now = ms / 1000
        deadline = state.next_deadline()
        if deadline is not None and deadline <= now:
            sets += answered(state, state.handle(events.Tick(), now), now, ms)
        sets += answered(state, state.handle(events.TasksOutdated("c", op_id), now), now, ms)
    assert BURST < sets <= 20


def test_the_waiting_request_is_executed_when_it_is_due() -> None:
    state, op_id = running()
    for number in range(BURST):
        assert answered(state, state.handle(events.TasksOutdated("c", op_id), 1.0 + number / 1000), 1.0, number) == 1
    held = state.handle(events.TasksOutdated("c", op_id), 1.1)
    assert not any(isinstance(one, instructions.MakeTaskConfigs) for one in held)
    due = state.next_deadline()
    assert due is not None
    assert due - 1.1 < 1.0
    assert answered(state, state.handle(events.Tick(), due), due, 99) == 1


def test_the_status_has_a_condition_while_requests_are_limited() -> None:
    state, op_id = running()
    out: list[instructions.Instruction] = []
    for number in range(BURST + 1):
        out = state.handle(events.TasksOutdated("c", op_id), 1.0)
        answered(state, out, 1.0, number)
    status = only(instructions.WriteStatus, out)
    assert (status.state, [one.type for one in status.conditions]) == (RunState.RUNNING, [LIMITED])
    assert "once in 0.5 s" in status.conditions[0].message
    due = state.next_deadline()
    assert due is not None
    answered(state, state.handle(events.Tick(), due), due, 0)
    over = state.next_deadline()
    assert over is not None
    assert over == pytest.approx(due + QUIET_S)
    assert only(instructions.WriteStatus, state.handle(events.Tick(), over)).conditions == ()
    assert state.next_deadline() is None


def test_a_long_delayed_request_is_a_wait_until_it_is_executed() -> None:
    """As the condition WAITING, which every list of waits shows."""
    state, op_id = running()
    now = 1.0
    for number in range(BURST + 5):
        answered(state, state.handle(events.TasksOutdated("c", op_id), now), now, number)
        due = state.next_deadline()
        if number >= BURST:
            assert due is not None
            now = due
            answered(state, state.handle(events.Tick(), now), now, number)
    state.handle(events.TasksOutdated("c", op_id), now)
    due = state.next_deadline()
    assert due is not None
    state.handle(events.HeartbeatDue(False, 1_000_000), now)
    [(unit, wait)] = only(
        instructions.SendHeartbeat, state.handle(events.HeartbeatDue(False, 1_006_000), now + 6.0)
    ).waits
    assert unit == CONNECTOR
    assert wait is not None
    assert wait.text().startswith("waits for the limit of reconfigurations: the connector requested new task configs")
    assert wait.next_ms == 1_006_000 + int((due - now - 6.0) * 1000)
    answered(state, state.handle(events.Tick(), due), due, 0)
    out = state.handle(events.HeartbeatDue(False, 1_000_000 + int((due - now) * 1000)), due)
    assert list(only(instructions.SendHeartbeat, out).waits) == [(CONNECTOR, None)]


def test_occasional_requests_are_executed_at_once() -> None:
    state, op_id = running()
    for number in range(20):
        now = 10.0 + number * (QUIET_S + 1)
        assert answered(state, state.handle(events.TasksOutdated("c", op_id), now), now, number) == 1


@given(st.lists(st.floats(0.0, 120.0), min_size=1, max_size=200))
def test_no_request_is_lost_or_waits_longer_than_the_maximum(pauses: list[float]) -> None:
    account, now = Reconfigurations(), 1.0
    waits_since: float | None = None
    for pause in pauses:
        end = now + pause
        while (due := account.due_at) is not None and due <= end:
            assert account.tick(due)
            assert waits_since is not None
            assert due - waits_since <= WAIT_S_MAX
            waits_since = None
        now = end
        if not account.requested(now):
            waits_since = now if waits_since is None else waits_since
            assert account.due_at is not None
