"""Wire conversion of the herder-worker session: each side reads back a value equal to the one the other side wrote."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as pb
from herdmesh.connect.spi.waits import Wait
from herdmesh.connect.task_counts import ErrorCounts, TaskCounts
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.rpc.properties import JsonValue
from herdmesh.session import messages as ms
from herdmesh.session import wire
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import (
    Assignment,
    Condition,
    Failure,
    HeldUnit,
    OffsetEntry,
    RunState,
    TargetState,
    UnitId,
)
from herdmesh.topicstore.contract import Revision

_text = st.text(max_size=5)
_name = st.text("ab-.", min_size=1, max_size=5)
_int32, _int64 = st.integers(0, 2**31 - 1), st.integers(0, 2**62)
_ms = st.integers(1, 2**40)
_units = st.builds(UnitId, _name, st.none() | _int32)
_revisions = st.builds(Revision, _name, st.lists(_int64, max_size=3).map(tuple))
_assignments = st.builds(Assignment, _int32, _int32, _text, st.none() | _revisions, _text)
_failures = st.builds(Failure, _name, _text)
_waits = st.builds(Wait, _text, _text, _ms, _int32, st.just(0) | _ms)
_conditions = st.builds(Condition, _name, _text, st.none() | _ms, st.none() | _waits)
_configs = st.dictionaries(_name, st.none() | _text | st.just(JsonValue('{"a": 1}')), max_size=3)
_targets = st.sampled_from(TargetState)
_scopes = st.builds(CommitScope.of, _name, st.lists(_name, max_size=2), st.just(dict[str, str]()))
_offsets = st.builds(OffsetEntry, _text, st.none() | _text)
_errors = st.builds(ErrorCounts, *[_int64] * 9)
_counts = st.builds(TaskCounts, _int64, _int64, _int64, _errors)
_connector_starts = st.builds(
    ms.StartUnit,
    *(_units, _assignments, _configs, st.none() | _configs, _targets, _int32, _int32, st.none() | _scopes),
    *(st.none() | _revisions, st.lists(_conditions, max_size=2).map(tuple), _text, _counts),
)
_questions = st.one_of(
    st.builds(qu.FenceTasks, _name, _int32),
    st.builds(qu.ValidateOnWorker, _configs, st.booleans()),
    st.builds(qu.DescribePlugin, _text),
    st.builds(qu.ListLoggers, _text),
    st.builds(qu.SetLogger, _text, _text, st.none() | _revisions, _text),
    st.builds(
        qu.AlterOffsets,
        *(_name, _configs, st.lists(_offsets, max_size=2).map(tuple), st.none() | _revisions, _text),
        *(st.booleans(), st.none() | _ms, st.booleans(), st.booleans(), st.booleans()),
        timeout_ms=_int32,
    ),
    st.builds(qu.ReadOffsets, _name, _configs),
    st.builds(qu.PlanTaskConfigs, _configs, _int32),
    st.builds(qu.SetDraining, st.booleans()),
    st.builds(qu.ListDeadLettersOnWorker, _configs, st.builds(admin_pb.ListDeadLettersRequest, name=_name)),
    st.builds(qu.ReplayOnWorker, _configs, st.builds(admin_pb.ReplayDeadLettersRequest, name=_name)),
)
_messages = st.one_of(
    st.builds(ms.Welcome, st.lists(_units, max_size=3).map(tuple), _int32, _text),
    _connector_starts,
    st.builds(ms.StopUnit, _units, _assignments, _text),
    st.builds(ms.SetUnitTarget, _units, _targets),
    st.builds(ms.RequestTaskConfigs, _name, _assignments, _int32),
    st.builds(ms.SendCommand, _text, _questions),
    st.builds(ms.SetRate, _name, st.floats(0, 1e9), st.floats(0, 1e9)),
    st.builds(ms.Heartbeat),
    st.builds(ms.Released),
)


def _sent(message: Message) -> Any:
    """The message as the other side receives it."""
    received = type(message)()
    received.ParseFromString(message.SerializeToString())
    return received


@given(_int64, _messages)
def test_messages_of_the_herder_survive_the_round_trip(epoch: int, message: ms.Message) -> None:
    response = _sent(wire.message_to(epoch, message))
    assert (response.epoch, wire.message_from(response)) == (epoch, message)


@given(st.builds(HeldUnit, _units, _assignments, st.sampled_from(RunState), st.none() | _failures, st.booleans()))
def test_held_units_survive_the_round_trip(holding: HeldUnit) -> None:
    assert wire.held_unit_from(_sent(wire.held_unit_to(holding))) == holding


@given(_units, _assignments, st.sampled_from(RunState), st.none() | _failures, st.none() | _counts)
def test_reports_survive_the_round_trip(
    unit: UnitId, assignment: Assignment, state: RunState, failure: Failure | None, counts: TaskCounts | None
) -> None:
    request = _sent(wire.report_to(unit, assignment, state, failure, counts))
    read = None if counts == TaskCounts() else counts
    assert wire.report_from(request.report) == (unit, assignment, state, failure, read)


@given(_name, _assignments, st.lists(_configs, max_size=2).map(tuple), st.none() | _failures)
def test_task_configs_survive_the_round_trip(
    connector: str, assignment: Assignment, tasks: Any, failure: Failure | None
) -> None:
    request = _sent(wire.task_configs_to(connector, assignment, tasks, failure))
    assert wire.task_configs_from(request.task_configs) == (connector, assignment, tasks, failure)


@given(st.lists(st.tuples(_units, st.none() | _waits)).map(tuple))
def test_waits_survive_the_round_trip(waits: Any) -> None:
    assert wire.waits_from(map(_sent, wire.waits_to(waits))) == waits


def test_a_condition_keeps_its_time_between_two_clocks() -> None:
    condition = Condition("RESTARTING", "1 of 3", 500)
    message = wire.condition_to(condition, lambda at_ms: at_ms + 1_000)
    assert message.since.ToMilliseconds() == 1_500
    assert wire.condition_from(message, lambda epoch_ms: epoch_ms - 1_000) == condition


def test_a_unit_without_a_name_is_rejected() -> None:
    with pytest.raises(RequestInvalid, match="without a connector's name"):
        wire.unit_from(pb.Unit(task=1))


@pytest.mark.parametrize("unit", [UnitId("a"), UnitId("a", 0)])
def test_a_unit_is_logged_by_its_name(unit: UnitId) -> None:
    assert (str(unit), unit.log_context) in {("a", "[a|worker]"), ("a-0", "[a|task-0]")}
