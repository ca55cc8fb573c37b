"""Tests of compare-and-set of every mutation, and of request ids: retries after fail-over and compaction, other
payloads, old ids.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.configstore.service.roles import WRITE_SERVICE
from herdmesh.configstore.state import requests
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskCount,
    RecordDrain,
    RequestRestart,
    RestoreConnector,
    SetTargetState,
)
from herdmesh.configstore.state.requests import KEPT_MS, REMEMBERED_MS, RequestLog
from herdmesh.configstore.state.writes import plan
from herdmesh.connect.topics.audit_topic import AuditRecord
from herdmesh.connect.topics.config_records import LoggerRecord, RestartRecord, SessionKeyRecord, TargetState
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    HerdmeshError,
    RequestIdExpired,
    RequestIdUnknown,
    RequestInvalid,
    RevisionForeign,
    RevisionMismatch,
    StaleEpoch,
)
from herdmesh.rpc.request_ids import new_request_id, time_ms_of
from herdmesh.topicstore.contract import Revision
from tests.support.config_topic import ConfigTopic, compacted, replay, revision
from tests.support.configstore_replica import SETTINGS, Cluster, Replica

CONFIG = {"name": "c1", "v": "1"}
RESTART = RequestRestart(RestartRecord("c1", include_tasks=True, only_failed=False))
KEY = PutSessionKey(SessionKeyRecord(b"key", "HmacSHA256", 1))
LEVEL = PutLoggerLevel(LoggerRecord("org", "DEBUG"))
DRAIN = RecordDrain("w1:7204", draining=True)
#: Each mutation with the attribute that its expected revision refers to.
COMPARED: list[tuple[Mutation, str]] = [
    (PutConnectorConfig("c1", CONFIG), "config_revision"),
    (RestoreConnector("c1", revision(1), CONFIG), "config_revision"),
    (DeleteConnector("c1"), "config_revision"),
    (RESTART, "config_revision"),
    (SetTargetState("c1", TargetState.PAUSED), "target_state_revision"),
    (CommitTaskConfigs("c1", [{}]), "tasks_revision"),
    (PutTaskCount("c1", 1), "tasks_revision"),
    (KEY, "session_key_revision"),
]


@pytest.fixture
def topic() -> ConfigTopic:
    """A connector c1 with all objects, each at a revision of its own, under epoch 1 of `herder`."""
    made = ConfigTopic()
    leader = made.lead()
    made.write(PutConnectorConfig("c1", CONFIG))
    made.write(SetTargetState("c1", TargetState.STOPPED))
    made.write(CommitTaskConfigs("c1", [{}]), leader=leader)
    made.write(KEY, leader=leader)
    return made


@pytest.mark.parametrize(("mutation", "of"), COMPARED, ids=[type(mutation).__name__ for mutation, _ in COMPARED])
def test_every_mutation_compares_the_revision_of_its_own_object(
    topic: ConfigTopic, mutation: Mutation, of: str
) -> None:
    leader = topic.lead()
    state = topic.connector("c1")
    held = {
        "config_revision": state.config_revision,
        "target_state_revision": state.target_state_revision,
        "tasks_revision": state.tasks_revision,
        "session_key_revision": topic.state.session_key_revision,
    }
    assert len(set(held.values())) == 4
    for name, offset in held.items():
        if name != of:
            with pytest.raises(RevisionMismatch) as refusal:
                topic.write(mutation, leader=leader, expected_revision=revision(offset))
            assert refusal.value.actual_revision == f"store@{held[of]}"
    with pytest.raises(RevisionForeign):
        topic.write(mutation, leader=leader, expected_revision=Revision("other", (held[of],)))
    assert topic.write(mutation, leader=leader, expected_revision=revision(held[of])).records


@pytest.mark.parametrize("mutation", [LEVEL, DRAIN], ids=["level", "drain"])
def test_an_expected_revision_is_refused_for_objects_without_revision(topic: ConfigTopic, mutation: Mutation) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        topic.write(mutation, request_id="r1", expected_revision=revision(1))
    assert refusal.value.violations[0].field == "options.expected_revision"


@pytest.mark.parametrize(
    ("worker_id", "request_id", "field"), [("", "r1", "worker_id"), ("w1", "", "options.request_id")]
)
def test_a_drain_needs_a_worker_and_an_id(topic: ConfigTopic, worker_id: str, request_id: str, field: str) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        topic.write(RecordDrain(worker_id, draining=True), request_id=request_id)
    assert [violation.field for violation in refusal.value.violations] == [field]


@pytest.mark.parametrize("retry_only", [True, False])
def test_an_expired_id_is_not_reported_as_never_applied(topic: ConfigTopic, retry_only: bool) -> None:
    """A caller may act again only if the request was certainly never applied."""
    topic.write(DRAIN, request_id="r1")
    topic.now_ms += KEPT_MS + 1
    made_by_a_clock_behind = _id_of(topic.now_ms - KEPT_MS - 1)
    for old in ("r1", made_by_a_clock_behind):
        with pytest.raises(RequestIdExpired):
            topic.write(DRAIN, request_id=old, retry_only=retry_only)
    for new in ("r2", _id_of(topic.now_ms)):
        with pytest.raises(RequestIdUnknown):
            topic.write(DRAIN, request_id=new, retry_only=True)


def test_a_task_count_for_an_older_task_set_is_refused(topic: ConfigTopic) -> None:
    leader = topic.lead()
    fenced_for = revision(topic.connector("c1").tasks_revision)
    topic.write(CommitTaskConfigs("c1", [{}, {}]), leader=leader)
    with pytest.raises(RevisionMismatch):
        topic.write(PutTaskCount("c1", 1), leader=leader, expected_revision=fenced_for)
    assert topic.connector("c1").pending_fencing  # the new set still waits for its fence


OTHERS: list[tuple[Mutation, Mutation]] = [
    (PutConnectorConfig("c1", CONFIG), PutConnectorConfig("c1", {**CONFIG, "v": "2"})),
    (PutConnectorConfig("c1", CONFIG), PutConnectorConfig("c1", CONFIG, initial_target_state=TargetState.PAUSED)),
    (PutConnectorConfig("c1", {"a": None}), PutConnectorConfig("c1", {"a": "null"})),
    (RestoreConnector("c1", revision(1), CONFIG), RestoreConnector("c1", revision(2), CONFIG)),
    (DeleteConnector("c1"), DeleteConnector("c2")),
    (DeleteConnector("c1"), SetTargetState("c1", TargetState.PAUSED)),
    (SetTargetState("c1", TargetState.PAUSED), SetTargetState("c1", TargetState.STARTED)),
    (CommitTaskConfigs("c1", [{"a": "1"}]), CommitTaskConfigs("c1", [{"a": "2"}])),
    (CommitTaskConfigs("c1", [{}]), CommitTaskConfigs("c1", [{}, {}])),
    (CommitTaskConfigs("c1", [{}]), CommitTaskConfigs("c1", [{}], fenced_generation=1)),
    (PutTaskCount("c1", 1), PutTaskCount("c1", 2)),
    (RESTART, RequestRestart(RestartRecord("c1", include_tasks=False, only_failed=False))),
    (KEY, PutSessionKey(SessionKeyRecord(b"key", "HmacSHA256", 2))),
    (LEVEL, PutLoggerLevel(LoggerRecord("org", "INFO"))),
    (DRAIN, RecordDrain("w1:7204", draining=False)),
    (DRAIN, RecordDrain("w2:7204", draining=True)),
]


@pytest.mark.parametrize(
    ("mutation", "other"), OTHERS, ids=[f"{type(one).__name__}-{number}" for number, (one, _) in enumerate(OTHERS)]
)
def test_a_request_id_serves_one_request(topic: ConfigTopic, mutation: Mutation, other: Mutation) -> None:
    leader = topic.lead()
    topic.write(mutation, leader=leader, request_id="r1")
    with pytest.raises(RequestInvalid, match="used for another") as refusal:
        topic.write(other, leader=leader, request_id="r1")
    assert refusal.value.violations[0].field == "options.request_id"
    assert topic.write(mutation, leader=leader, request_id="r1").records == ()


def test_a_retry_may_differ_in_condition_leader_member_order_and_secrets(topic: ConfigTopic) -> None:
    """Secrets leave no trace in the digest of a request."""
    first = PutConnectorConfig("c1", {"a": "1", "b": {"x": 1, "y": 2}, "password": "one"})
    topic.write(first, request_id="r1")
    again = PutConnectorConfig("c1", {"password": "two", "b": {"y": 2, "x": 1}, "a": "1"}, must_not_exist=True)
    assert topic.write(again, request_id="r1", expected_revision=revision(1)).records == ()
    leader = topic.lead()
    topic.write(PutTaskCount("c1", 1), request_id="r2", leader=leader)
    topic.lead("next")
    assert topic.write(PutTaskCount("c1", 1), request_id="r2", leader=leader).records == ()
    with pytest.raises(StaleEpoch):
        topic.write(PutTaskCount("c1", 1), request_id="r3", leader=leader)


def test_a_retried_patch_is_recognized_whatever_it_is_merged_into(topic: ConfigTopic) -> None:
    patch = {"v": "2"}
    topic.write(PutConnectorConfig("c1", {**CONFIG, **patch}, must_exist=True, patch=patch), request_id="r1")
    topic.write(PutConnectorConfig("c1", {"name": "c1", "other": "x"}))
    again = PutConnectorConfig("c1", {"name": "c1", "other": "x", **patch}, must_exist=True, patch=patch)
    assert topic.write(again, request_id="r1").records == ()
    with pytest.raises(RequestInvalid):
        topic.write(PutConnectorConfig("c1", {"v": "3"}, patch={"v": "3"}), request_id="r1")
    with pytest.raises(RequestInvalid):
        topic.write(PutConnectorConfig("c1", {**CONFIG, **patch}), request_id="r1")


@pytest.mark.parametrize("cleaned", range(0, 30, 3))
def test_retries_are_recognized_after_any_compaction(topic: ConfigTopic, cleaned: int) -> None:
    leader = topic.lead()
    first = {
        f"r{number}": topic.write(mutation, leader=leader, request_id=f"r{number}").outcome
        for number, (mutation, _) in enumerate(COMPARED)
        if not isinstance(mutation, DeleteConnector)
    }
    topic.write(DeleteConnector("c1"), request_id="gone")
    left = replay(compacted(topic.records, cleaned, tombstones_to=cleaned))
    for number, (mutation, _) in enumerate(COMPARED):
        if not isinstance(mutation, DeleteConnector):
            again = plan(left, mutation, topic.context(mutation, request_id=f"r{number}"))
            assert again.records == ()
            assert again.outcome == first[f"r{number}"]
    delete = DeleteConnector("c1")
    assert plan(left, delete, topic.context(delete, request_id="gone")).records == ()
    with pytest.raises(ConnectorNotFound):
        plan(left, delete, topic.context(delete, request_id="new"))


async def test_a_retry_on_the_next_writer_gets_its_first_outcome(writer: Replica, cluster: Cluster) -> None:
    """The first response is lost with its writer; later changes do not matter."""
    replica = await cluster()
    create = write_pb.WriteOptions(request_id=new_request_id())
    drop = write_pb.WriteOptions(request_id=new_request_id())
    made = await writer.put("c1", {"v": "1"}, must_not_exist=True, options=create)
    await writer.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1", options=drop))
    await writer.put("c1", {"v": "2"}, must_not_exist=True)
    writer.broker.topics[SETTINGS.config_storage_topic].compact(drop_tombstones=True, young_too=True)
    await writer.store.close()
    await replica.until_serving(WRITE_SERVICE)
    again = await replica.put("c1", {"v": "1"}, must_not_exist=True, options=create)
    assert again.created == made.created
    assert again.connector == await replica.entry("c1")  # the response has the current state
    await replica.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1", options=drop))
    assert (await replica.entry("c1")).has_config  # deleted once, not twice
    with pytest.raises(RequestInvalid):
        await replica.put("c1", {"v": "3"}, options=create)
    with pytest.raises(ConnectorExists):
        await replica.put("c1", {"v": "1"}, must_not_exist=True)


async def test_a_write_whose_answer_was_lost_is_found_by_its_id(writer: Replica) -> None:
    """The broker's answer is lost, and the writer is cut off at once: all callers of one id see one create."""
    options = write_pb.WriteOptions(request_id=new_request_id())
    writer.store.lose_next_answer(applied=True)
    tries = [writer.put("c1", {"v": "1"}, must_not_exist=True, options=options) for _ in range(5)]
    for answer in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(answer, BaseException):
            assert isinstance(answer, HerdmeshError)
        else:
            assert answer.created
    await writer.until_serving(WRITE_SERVICE)
    again = await writer.put("c1", {"v": "1"}, must_not_exist=True, options=options)
    assert again.created
    assert len(writer.store.state.history.before("c1", None, 10)) == 1


def _add(log: RequestLog, request_id: str, at_ms: int) -> None:
    log.add(AuditRecord(request_id, "", at_ms, "Op", "c", payload="p"), at_ms)


def _find(log: RequestLog, request_id: str, now_ms: int) -> Any:
    return log.find(request_id, ("Op", "c", "p"), now_ms)


def _id_of(made_ms: int, number: int = 0) -> str:
    """A UUID of version 7 with the given time."""
    return f"{made_ms:012x}7{number:03x}8{number:015x}"


def test_the_time_of_a_request_id_is_read() -> None:
    assert time_ms_of(_id_of(1_700_000_000_123)) == 1_700_000_000_123
    assert (time_ms_of(new_request_id()) or 0) > 1_700_000_000_000
    assert len({new_request_id() for _ in range(1_000)}) == 1_000
    for other in ("r1", "", "z" * 32, "f47ac10b58cc4372a5670e02b2c3d479", "f47ac10b-58cc-4372-a567-0e02b2c3d479"):
        assert time_ms_of(other) is None


def test_an_expired_id_is_refused_even_without_an_entry() -> None:
    """Retention of the audit topic, or the bound of memory, removed the entry: the id is too old to be new."""
    now_ms = 1_700_000_000_000
    log = RequestLog()
    assert _find(log, _id_of(now_ms - KEPT_MS), now_ms) is None
    assert _find(log, _id_of(now_ms + 60_000), now_ms) is None  # from a clock that is ahead
    with pytest.raises(RequestIdExpired, match="too old"):
        _find(log, _id_of(now_ms - KEPT_MS - 1), now_ms)
    assert _find(log, "says-no-time", now_ms) is None


@pytest.mark.parametrize("ahead_ms", [0, 40 * KEPT_MS, -40 * KEPT_MS])
def test_a_discarded_id_is_never_applied_again(monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """For ids from any clock: each entry is kept or its id refused, and memory stays bounded."""
    monkeypatch.setattr(requests, "_CHUNK_SIZE", 4)
    monkeypatch.setattr(requests, "_CHUNKS_MAX", 3)
    log, now_ms = RequestLog(), 1_700_000_000_000
    ids = [_id_of(now_ms + number + ahead_ms, number) for number in range(100)]
    for number, request_id in enumerate(ids):
        _add(log, request_id, now_ms + number)
    known = [request_id for request_id in ids if log.is_known(request_id)]
    assert 8 <= len(known) <= 16
    for request_id in ids:
        if request_id in known:
            assert _find(log, request_id, now_ms + 100).payload == "p"
        else:
            with pytest.raises(RequestIdExpired):
                _find(log.copy(), request_id, now_ms + 100)


def test_entries_are_discarded_by_age_and_refused_before() -> None:
    log, now_ms = RequestLog(), 1_700_000_000_000
    _add(log, "old", now_ms)
    later_ms = now_ms + REMEMBERED_MS
    for number in range(2_000):
        _add(log, f"new-{number}", later_ms)
    with pytest.raises(RequestIdExpired, match="older than 24 h"):
        _find(log, "old", later_ms)
    for number in range(2_000):
        _add(log, f"newer-{number}", later_ms + REMEMBERED_MS + 1)
    assert not log.is_known("old")
    assert not log.is_known("new-0")
    assert log.is_known("newer-0")


def _of_offsets(request_id: str, partitions: int) -> AuditRecord:
    offsets = [
        [f'{{"kafka_topic":"t","kafka_partition":{one}}}', f'{{"kafka_offset":{one}}}'] for one in range(partitions)
    ]
    told = {"offsets": offsets, "message": "done"}
    return AuditRecord(request_id, "", 1, "RecordOffsets", "c1", {"ended": True, "told": told}, payload="p")


def test_kept_offset_outcomes_take_a_tenth_of_their_unpacked_size() -> None:
    log, now_ms = RequestLog(), 1_700_000_000_000
    ids = [_id_of(now_ms, number) for number in range(20)]
    tracemalloc.start()
    try:
        for request_id in ids:
            log.add(_of_offsets(request_id, 500), now_ms)
        byte_count = tracemalloc.get_traced_memory()[0] / len(ids)
    finally:
        tracemalloc.stop()
    assert byte_count < 10_000, "as values they take 100 KB and more"
    first = log.find(ids[0], ("RecordOffsets", "c1", "p"), now_ms)
    assert first is not None
    assert first.outcome == _of_offsets(ids[0], 500).outcome


def test_large_outcomes_are_discarded_within_the_memory_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids are then refused, as those of discarded requests are."""
    monkeypatch.setattr(requests, "_CHUNK_BYTES", 2_000)
    monkeypatch.setattr(requests, "_CHUNKS_MAX", 3)
    log, now_ms = RequestLog(), 1_700_000_000_000
    ids = [_id_of(now_ms + number, number) for number in range(40)]
    for number, request_id in enumerate(ids):
        log.add(_of_offsets(request_id, 100), now_ms + number)
        log = log.copy()
    known = [request_id for request_id in ids if log.is_known(request_id)]
    assert known == ids[-len(known) :]
    assert 3 <= len(known) <= 16
    with pytest.raises(RequestIdExpired):
        log.find(ids[0], ("RecordOffsets", "c1", "p"), now_ms + 100)


def test_packed_requests_are_unpacked_unchanged_and_take_under_200_bytes() -> None:
    """Repeated creates and deletes must not grow a store's memory noticeably."""
    count = 5_000
    ids = [new_request_id() for _ in range(count)]
    outcomes: list[dict[str, Any]] = [{"created": True, "revision": "s@1"}, {}, {"told": [[1, "x", True, "w"]] * 50}]

    def record(number: int) -> AuditRecord:
        outcome = outcomes[number % 3]
        payload = f"{number:064x}"
        return AuditRecord(ids[number], "me", 1, "PutConnectorConfig", f"c\u00e9{number}", outcome, {}, payload)

    log = RequestLog()
    tracemalloc.start()
    try:
        for number in range(count):
            log.add(record(number), 1 + number)
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    for number in (0, 1, 2, 600, count // 2, count - 1):
        one = record(number)
        found = log.find(ids[number], (one.operation, one.connector, one.payload), 2 * count)
        assert found is not None
        assert (found.timestamp_ms, dict(found.outcome)) == (1 + number, outcomes[number % 3])
    with pytest.raises(RequestInvalid):
        log.find(ids[0], ("PutConnectorConfig", "another", record(0).payload), 2 * count)
    assert log.find("never seen", ("PutConnectorConfig", "c", ""), 2 * count) is None
    assert taken_bytes / count < 200
