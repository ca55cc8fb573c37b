"""Tests of restarts in the store: Connect's record where Connect writes one, the generation from which the restarted
units must run, and the first outcome for a retry under any leader.
"""

from __future__ import annotations

import pytest

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.configstore.service import wire
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    PutConnectorConfig,
    PutTaskCount,
    RequestRestart,
    SetTargetState,
)
from herdmesh.connect.topics.config_records import RestartRecord, TargetState
from herdmesh.rpc.errors import RequestIdUnknown, RequestInvalid
from herdmesh.rpc.request_ids import new_request_id
from tests.support.config_topic import ConfigTopic, compacted, replay
from tests.support.configstore_replica import Replica

TOLD = [[None, 5, True, "w1"], [0, 4, False, "w2"], [1, 5, True, ""]]


def restart(
    *, include_tasks: bool = True, only_failed: bool = False, task: int | None = None, generation: int = 7
) -> RequestRestart:
    restarted = [-1, 1] if task is None else [task]
    record = RestartRecord("c1", include_tasks=include_tasks, only_failed=only_failed)
    return RequestRestart(record, task, restarted, generation, TOLD)


@pytest.fixture
def topic() -> ConfigTopic:
    """A connector c1 of two tasks."""
    made = ConfigTopic()
    leader = made.lead()
    made.write(PutConnectorConfig("c1", {"name": "c1"}))
    made.write(CommitTaskConfigs("c1", [{}, {}]), leader=leader)
    return made


def test_outcomes_of_an_earlier_release_name_no_worker() -> None:
    old, new = ([one[:3] for one in TOLD], TOLD)
    assert [(item.state, item.worker_id) for item in wire.restart_items_to_proto(old)] == [(5, ""), (4, ""), (5, "")]
    assert [item.worker_id for item in wire.restart_items_to_proto(new)] == ["w1", "w2", ""]
    assert [item.HasField("task") for item in wire.restart_items_to_proto(new)] == [False, True, True]


def restart_records(topic: ConfigTopic) -> int:
    return sum((record.key or b"").startswith(b"restart-connector-") for record in topic.records)


@pytest.mark.parametrize(
    ("include_tasks", "only_failed", "task", "records"),
    [(True, False, None, 1), (False, True, None, 1), (False, False, None, 0), (False, False, 1, 0)],
)
def test_a_restart_record_is_written_exactly_where_connect_writes_one(
    topic: ConfigTopic, include_tasks: bool, only_failed: bool, task: int | None, records: int
) -> None:
    leader = topic.lead()
    topic.write(restart(include_tasks=include_tasks, only_failed=only_failed, task=task), leader=leader)
    assert restart_records(topic) == records
    assert topic.connector("c1").restarts == ({1: 7} if task is not None else {-1: 7, 1: 7})


def test_restarts_add_up_and_survive_replay_compaction_and_other_writes(topic: ConfigTopic) -> None:
    leader = topic.lead()
    topic.write(restart(task=0, generation=5), leader=leader)
    topic.write(restart(generation=7), leader=leader)
    topic.write(SetTargetState("c1", TargetState.PAUSED))
    topic.write(PutTaskCount("c1", 2), leader=leader)
    kept = {-1: 7, 0: 5, 1: 7}
    assert topic.connector("c1").restarts == kept
    assert replay(topic.records).connector("c1").restarts == kept
    assert replay(compacted(topic.records, len(topic.records))).connector("c1").restarts == kept
    assert not topic.connector("c1").foreign


def test_restarts_of_removed_tasks_and_deleted_connectors_are_discarded(topic: ConfigTopic) -> None:
    leader = topic.lead()
    topic.write(restart(), leader=leader)
    topic.write(CommitTaskConfigs("c1", [{}]), leader=leader)
    topic.write(restart(task=0, generation=9), leader=leader)
    assert topic.connector("c1").restarts == {-1: 7, 0: 9}
    topic.write(DeleteConnector("c1"))
    topic.write(PutConnectorConfig("c1", {"name": "c1"}))
    assert topic.connector("c1").restarts == {}


def test_a_retry_gets_the_first_outcome_under_another_leader_too(topic: ConfigTopic) -> None:
    first = topic.write(restart(), leader=topic.lead("first"), request_id="r1")
    assert first.outcome == {"items": TOLD}
    later = RequestRestart(restart().request, None, [-1], 1_007, [[None, 5, True]])
    again = topic.write(later, leader=topic.lead("second"), request_id="r1")
    assert (again.records, again.outcome) == ((), {"items": TOLD})
    assert topic.connector("c1").restarts == {-1: 7, 1: 7}
    with pytest.raises(RequestInvalid):
        topic.write(restart(task=1), leader=topic.lead("third"), request_id="r1")


def test_an_outcome_can_be_read_without_writing(topic: ConfigTopic) -> None:
    pause = SetTargetState("c1", TargetState.PAUSED)
    with pytest.raises(RequestIdUnknown):
        topic.write(pause, request_id="p1", retry_only=True)
    assert topic.connector("c1").target_state is TargetState.STARTED
    topic.write(pause, request_id="p1")
    topic.write(DeleteConnector("c1"))
    assert topic.write(pause, request_id="p1", retry_only=True).records == ()


def test_a_restart_without_generation_is_refused(topic: ConfigTopic) -> None:
    with pytest.raises(RequestInvalid):
        topic.write(restart(task=0, generation=0), leader=topic.lead())


async def test_a_retry_is_answered_at_a_revision_that_an_idle_watch_has_received(writer: Replica) -> None:
    """The applied revision lies past the end of the last transaction, and a watch receives that one only when it is
    idle.
    """
    options = write_pb.WriteOptions(request_id=new_request_id())
    first = await writer.put("c1", {"v": "1"}, options=options)
    await writer.store.barrier()
    again = await writer.put("c1", {"v": "1"}, options=options)
    assert again.meta.revision == first.meta.revision
    paused = await writer.write.SetTargetState(
        write_pb.SetTargetStateRequest(connector="c1", target_state=connector_pb2.TARGET_STATE_PAUSED)
    )
    await writer.store.barrier()
    again = await writer.put("c1", {"v": "1"}, options=options)
    assert again.meta.revision == paused.meta.revision
