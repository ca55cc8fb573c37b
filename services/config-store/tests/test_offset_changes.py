"""Tests of the config store's record of offset changes: the outcome that retries get, and, for a change that did not
end, whether its connector was changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import config_write_service_pb2 as pb
from herdmesh.configstore.state.history import HistoryPosition
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    LeaderToken,
    Mutation,
    PutConnectorConfig,
    PutTaskCount,
    RecordOffsets,
    SetTargetState,
)
from herdmesh.configstore.state.requests import KEPT_MS
from herdmesh.configstore.state.writes import plan
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
)
from herdmesh.connect.topics.config_topic import RECORD_BYTES_MAX
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    InvalidConfig,
    RequestIdExpired,
    RequestIdUnknown,
    RequestInvalid,
    StaleEpoch,
)
from herdmesh.topicstore.contract import StoredRecord
from tests.support.config_topic import AUDIT, TOPIC, ConfigTopic, replay, revision
from tests.support.configstore_replica import Replica

TOLD = {"offsets": [["p", "o"]], "message": "done"}
BEFORE = {"offsets": [["p", "before"]], "message": ""}
BEGINS = RecordOffsets("c1", "digest", ended=False, response=BEFORE)
ENDS = RecordOffsets("c1", "digest", ended=True, response=TOLD)


@pytest.fixture
def topic() -> ConfigTopic:
    """Two connectors, of which the first is stopped, and a leader."""
    made = ConfigTopic()
    made.lead()
    for name in ("c1", "c2"):
        made.write(PutConnectorConfig(name, {"v": "1"}))
    made.write(SetTargetState("c1", TargetState.STOPPED))
    return made


def told(topic: ConfigTopic, mutation: Mutation = BEGINS, request_id: str = "r1", **more: Any) -> Mapping[str, Any]:
    return topic.write(mutation, request_id=request_id, **{"leader": leader(topic), **more}).outcome


def leader(topic: ConfigTopic) -> LeaderToken:
    """The token of the current leader."""
    leads = topic.state.leadership
    assert leads is not None
    return LeaderToken(leads.epoch, leads.leader_id)


def test_a_retry_gets_the_final_outcome_and_before_the_end_the_initial_one(topic: ConfigTopic) -> None:
    assert told(topic) == {"ended": False, "told": BEFORE}
    begun = {"ended": False, "told": BEFORE, "repeated": True, "overtaken": False}
    later = RecordOffsets("c1", "digest", ended=False, response=TOLD)
    for _ in range(2):
        assert told(topic, later) == told(topic, retry_only=True) == begun
    assert told(topic, ENDS) == {"ended": True, "told": TOLD}
    ended = {"ended": True, "told": TOLD, "repeated": True, "overtaken": False}
    for mutation in (BEGINS, ENDS, RecordOffsets("c1", "digest", ended=True, response=BEFORE)):
        assert told(topic, mutation) == told(topic, mutation, retry_only=True) == ended
    assert replay(topic.records).requests.find("r1", _asked(topic), topic.now_ms) is not None


def _asked(topic: ConfigTopic) -> tuple[str, str, str]:
    place = list(topic.state.requests._open.values())[-1]  # pyright: ignore[reportPrivateUsage]
    return (place.operation, place.connector, place.payload)


@pytest.mark.parametrize(
    ("mutation", "overtaken"),
    [
        (SetTargetState("c1", TargetState.STARTED), True),
        (SetTargetState("c1", TargetState.STOPPED), True),
        (DeleteConnector("c1"), True),
        (PutConnectorConfig("c1", {"v": "2"}), True),
        (CommitTaskConfigs("c1", [{}]), True),
        (RecordOffsets("c1", "another", ended=False, response=TOLD), True),
        (PutTaskCount("c1", 0), False),
        (SetTargetState("c2", TargetState.STOPPED), False),
        (RecordOffsets("c2", "another", ended=False, response=TOLD), False),
    ],
)
def test_a_begun_change_is_overtaken_by_any_other_write_to_its_connector(
    topic: ConfigTopic, mutation: Mutation, overtaken: bool
) -> None:
    told(topic)
    topic.write(mutation, leader=leader(topic), request_id="r2")
    assert told(topic, retry_only=True)["overtaken"] is overtaken
    assert replay(topic.records).offsets_begun == topic.state.offsets_begun
    assert told(topic, ENDS) == {"ended": True, "told": TOLD}, "who knows the end may tell it all the same"


@pytest.mark.parametrize(
    "wrote",
    [
        [TargetStateRecord("c1", TargetState.STARTED)],
        [TargetStateRecord("c1", TargetState.STARTED), TargetStateRecord("c1", TargetState.STOPPED)],
        [ConnectorRecord("c1", {"v": "2"})],
        [TaskConfigRecord("c1", 0, {}), CommitRecord("c1", 1)],
        [Tombstone("connector", "c1"), Tombstone("target-state", "c1")],
    ],
)
@pytest.mark.parametrize("adopted", [False, True])
def test_a_begun_change_is_overtaken_by_writes_of_java_workers(
    topic: ConfigTopic, wrote: list[ConfigRecord | Tombstone], *, adopted: bool
) -> None:
    """Java workers write no audit record, and their tasks may have committed other offsets."""
    told(topic)
    topic.java(*wrote)
    if adopted:
        topic.write(PutTaskCount("c1", 0), leader=leader(topic), request_id="r2")
        assert not topic.connector("c1").foreign
    assert told(topic, retry_only=True)["overtaken"]
    assert replay(topic.records).offsets_begun == topic.state.offsets_begun


def test_a_retry_in_the_same_transaction_is_not_overtaken(topic: ConfigTopic) -> None:
    """The revision of records in flight is not known yet."""
    ahead = topic.state.copy()
    begun = plan(ahead, BEGINS, topic.context(BEGINS, request_id="r1", leader=leader(topic)))
    for place, record in enumerate(begun.records, 1 << 50):
        ahead.apply(StoredRecord(record.topic or TOPIC, 0, place, record.key, record.value, topic.now_ms))
    again = plan(ahead, BEGINS, topic.context(BEGINS, request_id="r1", leader=leader(topic)))
    assert (again.records, again.outcome["overtaken"]) == ((), False)


def test_a_deposed_leader_cannot_begin_a_change_but_may_record_its_end(topic: ConfigTopic) -> None:
    """It cannot begin again a change that it began before either: a worker would change offsets next."""
    old = leader(topic)
    told(topic)
    topic.lead("another")
    before = list(topic.records)
    for request_id in ("r1", "r2"):
        with pytest.raises(StaleEpoch):
            told(topic, request_id=request_id, leader=old)
    with pytest.raises(RequestInvalid, match="leader"):
        told(topic, leader=None)
    assert topic.records == before
    assert told(topic, ENDS, leader=None) == {"ended": True, "told": TOLD}
    assert told(topic, leader=None, retry_only=True)["ended"]


@pytest.mark.parametrize(
    ("mutation", "more", "error"),
    [
        (BEGINS, {"request_id": ""}, RequestInvalid),
        (BEGINS, {"expected_revision": revision(1)}, RequestInvalid),
        (BEGINS, {"retry_only": True}, RequestIdUnknown),
        (ENDS, {"retry_only": True}, RequestIdUnknown),
        (RecordOffsets("c3", "digest", ended=False, response=TOLD), {}, ConnectorNotFound),
        (RecordOffsets("c1", "d", ended=True, response={"offsets": [["x" * RECORD_BYTES_MAX, ""]]}), {}, InvalidConfig),
    ],
)
def test_refused_changes_are_not_recorded(
    topic: ConfigTopic, mutation: Mutation, more: dict[str, Any], error: type[Exception]
) -> None:
    before = list(topic.records)
    with pytest.raises(error):
        told(topic, mutation, **more)
    assert topic.records == before


def test_a_request_id_serves_one_change_for_one_day(topic: ConfigTopic) -> None:
    told(topic)
    for other in (RecordOffsets("c1", "another", ended=True, response=TOLD), SetTargetState("c1", TargetState.PAUSED)):
        with pytest.raises(RequestInvalid, match="used for another"):
            told(topic, other)
    topic.now_ms += KEPT_MS + 1
    for mutation in (BEGINS, ENDS):
        with pytest.raises(RequestIdExpired):
            told(topic, mutation)


def test_history_has_each_change_once(topic: ConfigTopic) -> None:
    def places() -> list[HistoryPosition]:
        return list(topic.state.history.before("c1", None, 10))

    before = places()
    told(topic)
    assert len(places()) == len(before) + 1
    told(topic, ENDS)
    assert len(places()) == len(before) + 1


def test_the_beginning_writes_an_unchanged_manifest_and_the_end_writes_only_audit(topic: ConfigTopic) -> None:
    before, end = topic.connector("c1"), len(topic.records)
    told(topic)
    manifest, audit = topic.records[end:]
    assert (manifest.key, audit.topic) == (b"herdmesh-connector-c1", AUDIT)
    assert topic.connector("c1").looks_like(before)
    told(topic)
    told(topic, ENDS)
    assert [record.topic for record in topic.records[end + 2 :]] == [AUDIT]


@pytest.mark.asyncio
async def test_the_service_returns_the_recorded_outcome(writer: Replica) -> None:
    await writer.put("c1")
    known, forgotten = (config_pb2.PartitionOffset(partition_json=name) for name in ("p", "q"))
    known.offset_json = "o"
    told = config_pb2.OffsetsTold(offsets=[known, forgotten], message="done")
    request = pb.RecordOffsetsRequest(connector="c1", change="digest", told=told)
    request.options.request_id = "r1"
    request.options.leader.CopyFrom(await writer.epoch())
    begun = await writer.write.RecordOffsets(request)
    assert (begun.ended, begun.repeated, begun.overtaken, begun.told) == (False, False, False, told)
    request.ended = True
    await writer.write.RecordOffsets(request)
    request.ended = False
    again = await writer.write.RecordOffsets(request)
    assert (again.ended, again.repeated, again.overtaken, again.told) == (True, True, False, told)
    history = await writer.read.GetHistory(read_pb.GetHistoryRequest(connector="c1"))
    assert [one.operation for one in history.changes] == ["RecordOffsets", "PutConnectorConfig"]
