"""Tests of epochs as a fence: no write of a herder that lost the leadership is applied, in any order of events."""

from __future__ import annotations

import asyncio

import pytest

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.api.configstore.v1 import leadership_service_pb2 as lead_pb
from herdmesh.configstore.service.roles import WRITE_SERVICE
from herdmesh.configstore.state.mutations import CommitTaskConfigs, LeaderToken, PutConnectorConfig, PutTaskCount
from herdmesh.configstore.state.writes import plan_block, plan_epoch
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import EpochRecord, TaskConfigRecord
from herdmesh.rpc import properties
from herdmesh.rpc.errors import NotWriter, StaleEpoch, WriterFenced
from herdmesh.topicstore import WriteDecision
from tests.support.config_topic import ConfigTopic, compacted, replay
from tests.support.configstore_replica import SETTINGS, Campaign, Cluster, Replica

_COMMITS = 40


async def test_no_write_of_an_old_epoch_lies_behind_the_next_one(writer: Replica) -> None:
    """The leader commits task sets continuously while its successor is elected, in the same group commits. Each
    response is true, and all records of the old leader lie before the new epoch in the topic.
    """
    await writer.put("c1")
    first, second = Campaign(writer, "first"), Campaign(writer, "second")
    epoch = (await first.until("granted")).granted.leadership.epoch
    await second.until("following")
    token = identity_pb2.LeaderToken(epoch=epoch, leader_id="first")

    async def commit(number: int) -> bool:
        if number == _COMMITS // 2:
            await writer.lead.Resign(lead_pb.ResignRequest(leader=token))
        task = properties.to_proto({"by": "first", "number": str(number)})
        request = write_pb.CommitTaskConfigsRequest(
            options=write_pb.WriteOptions(leader=token), connector="c1", tasks=[task]
        )
        try:
            await writer.write.CommitTaskConfigs(request)
        except StaleEpoch:
            return False
        return True

    acknowledged: set[str] = set()
    refused = 0
    for start in range(0, _COMMITS, 4):  # four at a time, so that some share a transaction with the epoch
        answers = await asyncio.gather(*(commit(number) for number in range(start, start + 4)))
        acknowledged |= {str(start + offset) for offset, applied in enumerate(answers) if applied}
        refused += answers.count(False)
    await second.until("granted")
    with pytest.raises(StaleEpoch):
        await writer.write.PutTaskCount(
            write_pb.PutTaskCountRequest(options=write_pb.WriteOptions(leader=token), connector="c1", task_count=1)
        )
    assert acknowledged
    assert refused
    topic = writer.broker.topics[SETTINGS.config_storage_topic]
    epochs, written = [0], {1: set[str](), 2: set[str]()}
    for record in topic.partitions[0].records:
        decoded = config_topic.decode(record.key, record.value)
        if isinstance(decoded, EpochRecord):
            epochs.append(decoded.epoch)
        elif isinstance(decoded, TaskConfigRecord):
            written[epochs[-1]].add(decoded.properties["number"])
    assert epochs == [0, 1, 2]
    assert written == {1: acknowledged, 2: set()}


async def test_a_leader_on_a_deposed_writer_is_refused_there_too(writer: Replica, cluster: Cluster) -> None:
    """The writer is frozen, another takes over and elects another herder. The old herder still talks to the old writer,
    which does not know yet that it was deposed.
    """
    replica = await cluster()
    await writer.put("c1")
    old = Campaign(writer, "old")
    token = identity_pb2.LeaderToken(epoch=(await old.until("granted")).granted.leadership.epoch, leader_id="old")
    writer.store.freeze()
    await replica.until_serving(WRITE_SERVICE)
    # As the new writer's election does; it would first wait for the incumbent's lease, which this test does not need.
    await replica.store.write(lambda state: WriteDecision(plan_epoch(state, "new", "new:1"), lambda _, at: at))
    assert replica.store.state.leadership is not None
    assert replica.store.state.leadership.epoch == token.epoch + 1
    request = write_pb.CommitTaskConfigsRequest(options=write_pb.WriteOptions(leader=token), connector="c1")
    on_the_deposed = asyncio.create_task(_commit(writer, request))
    with pytest.raises(StaleEpoch):
        await _commit(replica, request)
    writer.store.thaw()
    with pytest.raises((StaleEpoch, NotWriter, WriterFenced)):
        await on_the_deposed
    answer = await replica.read.GetSnapshot(read_pb.GetSnapshotRequest(linearizable=True))
    assert answer.connectors[0].task_count == 0
    assert not answer.connectors[0].HasField("tasks_revision")


async def _commit(replica: Replica, request: write_pb.CommitTaskConfigsRequest) -> None:
    await replica.write.CommitTaskConfigs(request)


def test_epochs_and_generations_rise_over_any_compaction() -> None:
    topic = ConfigTopic()
    seen: list[tuple[int, int]] = []
    for number in range(6):
        topic.lead(f"herder-{number}")
        topic.write(PutConnectorConfig("c1", {"n": str(number)}))
        for cleaned in range(0, topic.next_offset, 2):
            leadership = replay(compacted(topic.records, cleaned, tombstones_to=cleaned)).leadership
            assert leadership == topic.state.leadership
        assert topic.state.leadership is not None
        seen.append((topic.state.leadership.generation_first, topic.state.leadership.generation_limit))
    assert seen == [(1 + 1000 * number, 1001 + 1000 * number) for number in range(6)]


def test_blocks_of_an_epoch_rise_over_any_compaction_and_the_next_epoch_begins_after_them() -> None:
    topic = ConfigTopic()
    leader = topic.lead("first")
    for limit in (1_001, 2_001, 3_001):
        topic.transaction(plan_block(topic.state, leader, limit))
    assert plan_block(topic.state, leader, 3_001) == [], "an answer was lost: it has them"
    for cleaned in range(topic.next_offset):
        assert replay(compacted(topic.records, cleaned)).leadership == topic.state.leadership
    topic.lead("second")
    assert topic.state.leadership is not None
    assert (topic.state.leadership.generation_first, topic.state.leadership.generation_limit) == (4_001, 5_001)
    with pytest.raises(StaleEpoch):
        plan_block(topic.state, leader, 5_001)
    assert topic.state.refused.count == 0


async def test_a_leader_reserves_blocks_over_its_campaign_and_across_a_fail_over(
    writer: Replica, cluster: Cluster
) -> None:
    replica = await cluster()
    leader = Campaign(writer, "a")
    granted = (await leader.until("granted")).granted.leadership
    limits = [granted.generation_limit]
    for _ in range(3):
        leader.beat(reserve_above=limits[-1])
        limits.append((await leader.until("reserved")).reserved.leadership.generation_limit)
    assert limits == [1_001, 2_001, 3_001, 4_001]
    leader.beat(reserve_above=limits[-2])
    again = (await leader.until("reserved")).reserved.leadership
    assert (again.epoch, again.generation_limit) == (1, 4_001), "asked again, and reserved once"
    await writer.close()
    await replica.until_serving(WRITE_SERVICE)
    back = Campaign(replica, "a", held=identity_pb2.LeaderToken(epoch=1, leader_id="a"))
    assert (await back.until("granted")).granted.leadership == again
    back.beat(reserve_above=4_001)
    assert (await back.until("reserved")).reserved.leadership.generation_limit == 5_001
    await replica.lead.Resign(lead_pb.ResignRequest(leader=identity_pb2.LeaderToken(epoch=1, leader_id="a")))
    follower = Campaign(replica, "b")
    taken = (await follower.until("granted")).granted.leadership
    assert (taken.epoch, taken.generation_first, taken.generation_limit) == (2, 5_001, 6_001)


@pytest.mark.parametrize(
    "forged",
    [
        {"epoch": 2, "leader_id": "x", "leader_address": "y", "next_generation": 5_000},  # the current epoch again
        {"epoch": 2, "leader_id": "second", "leader_address": "y", "next_generation": 2_001},  # no more generations
        {"epoch": 3, "leader_id": "x", "leader_address": "y", "next_generation": 2_001},  # generations of another epoch
        {"epoch": 1, "leader_id": "x", "leader_address": "y", "next_generation": 5_000},
        {"epoch": 3, "leader_id": "x", "leader_address": "y", "next_generation": 2**31},
        {"epoch": 3, "leader_id": "x", "leader_address": "y", "next_generation": -5},
        {"epoch": "3", "leader_id": "x", "leader_address": "y", "next_generation": 5_000},
        None,
    ],
)
def test_a_forged_epoch_record_deposes_nobody(forged: object) -> None:
    topic = ConfigTopic()
    topic.lead("first")
    leader = topic.lead("second")
    topic.write(PutConnectorConfig("c1", {}))
    topic.raw("herdmesh-leader", forged)
    assert topic.state.refused.count == 1
    topic.write(CommitTaskConfigs("c1", [{}]), leader=leader)
    for stale in (LeaderToken(1, "first"), LeaderToken(2, "first"), LeaderToken(3, "x"), LeaderToken(0, "")):
        with pytest.raises(StaleEpoch):
            topic.write(PutTaskCount("c1", 1), leader=stale)
