"""Index of the status topic reference, rule by rule: the test of each rule, or the reason why the rule does not apply here.

Sections are those of the reference (`docs/reference/connect/status-topic.md`); section 8 has the scenarios of Connect's
`KafkaStatusBackingStoreTest`, 9 those of its `KafkaStatusBackingStoreFormatTest`, "4.3.1" observations of the real
class. A row with a file and a test is checked to name a test that exists; this file has the tests that belong to no
other file.

| Section | Rule | Where |
|---|---|---|
| 1 | topic name null or blank: "Must specify topic for connector status." | here test_the_topic_must_be_named |
| 1 | 5 partitions, 3 replicas by default; other settings passed on | here test_the_topics_settings_are_connects |
| 1 | cleanup.policy forced to compact; an existing topic must be exactly that | suite test_a_topic_that_is_not_compacted_is_refused |
| 1 | an existing topic's partitions | suite test_a_topic_with_another_number_of_partitions_is_refused |
| 1 | producer: acks=all, no idempotence, one in flight, retries by the store | not ours: transactions (docs/design/stores.md, section 2) |
| 1 | consumer: earliest, all partitions, not read_committed | not ours: read_committed, which Java must use beside us |
| 1 | writes are asynchronous, never awaited, visible once read back | suite test_a_write_is_answered_from_the_state_it_created |
| 1 | start() reads to the end | suite test_a_replica_that_starts_late_folds_to_the_same_state |
| 1 | flush() | not ours: every answered write is durable and read back; see StatusWriteService's comment |
| 1 | stop() is bounded | suite test_close_releases_every_caller |
| 2 | the three keys and values, byte for byte | golden test_our_encoding_equals_the_bytes_of_java |
| 2 | DESTROYED is written as a tombstone | writes test_a_batch_is_decided_in_order |
| 3 | an entry with a null value exists once something is written | not ours: a status exists once it is read back |
| 3 | get of a missing status returns nothing; getAll skips it | service test_a_put_status_is_returned_by_get |
| 4.1 | step 1: store-wide generation, and 'other generation: retry dropped' | writes test_put_of_a_replaced_process_is_stale |
| 4.1 | putSafe: nothing cached, same worker, or not an older generation | writes test_put_safe_over_an_older_or_equal_generation |
| 4.1 | a dropped putSafe is silent | not ours: refused with the stored status; service test_outcomes_are_per_item |
| 4.1 | entry.sequence: an older safe write is not retried over a newer | retries test_an_abandoned_put_cannot_overwrite_a_later_one |
| 4.1 | retriable: sent again for ever | lines test_statuses_wait_for_the_store_and_the_latest_wins |
| 4.1 | retriable: dropped once the entry is deleted | not ours: the worker sends its latest statuses; the leader cleans up again |
| 4.1 | other exception: logged, abandoned | lines test_an_invalid_status_delays_no_other |
| 4.1 | an older plain put may be retried after a newer one | not ours, and worse: see retries |
| 4.2 | topic statuses are written unconditionally | writes test_put_topic_state |
| 4.2 | deleteTopic writes a tombstone | writes test_deletions |
| 5 | dispatch by key prefix; anything else is dropped with a warning | statuses test_read_invalid_status |
| 5.1 | empty connector name | statuses test_read_invalid_status |
| 5.1 | null value removes the connector and all its tasks, not its topics | statuses test_delete_connector_state_removes_its_tasks_and_keeps_its_topics |
| 5.1 | unparseable: ignored; an empty value is no tombstone | statuses test_read_invalid_status_value |
| 5.1 | replaced whatever the generation | statuses test_connector_statuses_replace_older_ones_of_any_generation |
| 5.2 | task keys | statuses test_added_members_are_ignored_and_task_keys_are_javas |
| 5.2 | null value removes the task | statuses test_delete_task_state |
| 5.2 | UNASSIGNED over RUNNING of no older generation is stale | statuses test_read_task_state_should_ignore_stale_statuses_from_other_workers |
| 5.3 | topic keys: first colon; the text after it is ignored | here test_a_topic_key_is_split_at_its_first_colon |
| 5.3 | null value removes the topic, the connector's map stays | statuses test_read_and_delete_topic_status |
| 5.4 | a task's status after its connector's tombstone creates it again | statuses test_delete_connector_state_removes_its_tasks_and_keeps_its_topics |
| 5.4 | keys of other partitions in any order | retries test_our_writes_read_the_same_in_any_partition_order_and_after_any_compaction |
| 6 | a worker: RUNNING, PAUSED, UNASSIGNED, FAILED of its tasks | tasks test_pause_and_resume_in_place |
| 6 | a task that fails while it is stopped is UNASSIGNED | tasks test_a_failure_while_stopping_counts_as_its_stop |
| 6 | a task is never STOPPED | service test_malformed_puts_name_the_field |
| 6 | the leader removes statuses of deleted connectors | lifecycle test_a_delete_stops_all_units_and_then_removes_statuses |
| 6 | ... and tasks above the count | lifecycle test_statuses_of_a_shrunk_set_are_removed |
| 6 | flush before a rebalance | not ours: no rebalances, and nothing to flush |
| 6.1 | active topics are recorded and removed | service test_deleting_a_connectors_statuses |
| 6.1 | a sink's topics once it reads records of them, by their original names | topics test_a_topic_is_recorded_once_a_sink_moves_in_it |
| 6.1 | a source's topics once records in them are committed | topics test_a_topic_is_recorded_once_a_source_has_committed_records_to_it |
| 6.1 | reset | herder test_topics_are_listed_and_reset |
| 6.1 | removed with their connector | tasksets test_deletion_clears_statuses_and_topics_in_one_write |
| 7 | the memory store has no generations and no safety checks | not ours: the same rules over a topic in memory |
| 8 | misconfigurationOfStatusBackingStore | here test_the_topic_must_be_named |
| 8 | putConnectorState | suite test_a_write_is_answered_from_the_state_it_created |
| 8 | putConnectorStateRetriableFailure | here test_put_connector_state_retriable_failure |
| 8 | putConnectorStateNonRetriableFailure | here test_put_connector_state_non_retriable_failure |
| 8 | putSafeConnectorIgnoresStaleStatus | writes test_put_safe_connector_ignores_stale_status |
| 8 | putSafeWithNoPreviousValueIsPropagated | writes test_put_safe_with_no_previous_value_is_propagated |
| 8 | putSafeOverridesValueSetBySameWorker | writes test_put_safe_overrides_value_set_by_same_worker |
| 8 | putConnectorStateShouldOverride | writes test_put_connector_state_should_override |
| 8 | readConnectorState | statuses test_read_connector_state_without_trace |
| 8 | putTaskState | here test_put_task_state |
| 8 | readTaskState | statuses test_read_task_state |
| 8 | readTaskStateShouldIgnoreStaleStatusesFromOtherWorkers | statuses test_read_task_state_should_ignore_stale_statuses_from_other_workers |
| 8 | deleteConnectorState | statuses test_delete_connector_state_removes_its_tasks_and_keeps_its_topics |
| 8 | deleteTaskState | statuses test_delete_task_state |
| 8 | testClientIds | not ours: several clients, `<base>-reader`, `-writer`, `-election`, `-admin` |
| 9 | readInvalidStatus | statuses test_read_invalid_status |
| 9 | readInvalidStatusValue | statuses test_read_invalid_status_value |
| 9 | readTopicStatus | statuses test_read_and_delete_topic_status |
| 9 | deleteTopicStatus | statuses test_read_and_delete_topic_status |
| 9 | putTopicState | here test_put_topic_state_is_shown_once_read_back |
| 9 | putTopicStateRetriableFailure | here test_put_topic_state_retriable_failure |
| 9 | putTopicStateNonRetriableFailure | here test_put_topic_state_non_retriable_failure |
| 9 | putTopicStateShouldOverridePreviousState | statuses test_two_topics_of_a_connector_coexist_and_equal_values_show_once |
| 4.3.1 | `version`, last, string or null; anything else drops the record | here test_version_is_the_last_member_and_a_string_or_null |
| 4.3.1 | getAllTopics: values equal in all four fields appear once | statuses test_two_topics_of_a_connector_coexist_and_equal_values_show_once |
| 4.3.1 | task keys as in the config topic | statuses test_added_members_are_ignored_and_task_keys_are_javas |
| 4.3.1 | added members are ignored | statuses test_added_members_are_ignored_and_task_keys_are_javas |
"""  # noqa: E501  # a table's row is one line

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.connect.topics import status_topic
from herdmesh.connect.topics.decoding import Undecodable
from herdmesh.connect.topics.status_topic import State, TaskStatus, TopicStatus
from herdmesh.rpc import errors
from herdmesh.rpc.client import retrying
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.statusstore.state.statuses import StatusState
from herdmesh.statusstore.state.writes import Put, PutMode, decide_puts
from herdmesh.topicstore.contract import NewRecord
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.support.statusstore_memory import APPLIED, W1, put, running

_ROOT = Path(__file__).parents[3]
_FILES = {
    "here": "services/status-store/tests/test_reference.py",
    "statuses": "services/status-store/tests/test_state_statuses.py",
    "writes": "services/status-store/tests/test_state_writes.py",
    "retries": "services/status-store/tests/test_state_retries.py",
    "golden": "services/status-store/tests/test_state_golden.py",
    "service": "services/status-store/tests/test_service_memory.py",
    "suite": "tests/contract/test_topicstore*.py",
    "lines": "services/worker/tests/test_lines.py",
    "tasks": "services/worker/tests/test_state_tasks.py",
    "lifecycle": "services/herder/tests/units/test_lifecycle.py",
    "tasksets": "services/herder/tests/units/test_task_sets.py",
    "topics": "services/herder/tests/test_topics.py",
    "herder": "tests/integration/test_herder_service.py",
}


def test_every_row_names_an_existing_test_or_the_reason_for_none() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in (__doc__ or "").splitlines() if "|" in line
    ]
    assert len(rows) > 60
    for section, rule, where in rows[2:]:
        named = re.findall(r"(\w+) (test_\w+)", where)
        assert named or where.startswith("not ours"), (section, rule)
        for file, test in named:
            texts = [path.read_text(encoding="utf-8") for path in _ROOT.glob(_FILES[file])]
            assert any(f"def {test}(" in text for text in texts), (section, rule, where)


# -- 1


@pytest.mark.parametrize("topic", ["", " "])
def test_the_topic_must_be_named(topic: str) -> None:
    with pytest.raises(ValidationError, match="Must specify topic for connector status"):
        StatusStoreSettings(status_storage_topic=topic)


def test_the_topics_settings_are_connects() -> None:
    settings = StatusStoreSettings(status_storage_topic_configs="segment.ms=60000,min.insync.replicas=2")
    topic = settings.topic_settings()
    assert (topic.partitions, topic.replication_factor, topic.audit_topic) == (5, 3, None)
    assert topic.topic_configs == {"segment.ms": "60000", "min.insync.replicas": "2"}


# -- 5.3, 4.3.1


@pytest.mark.parametrize(
    ("key", "topic", "connector"),
    [
        ("status-topic-t:connector-c", "t", "c"),
        ("status-topic-t:connector-a:b", "t", "a:b"),
        ("status-topic-t:anything0-c", "t", "c"),
    ],
)
def test_a_topic_key_is_split_at_its_first_colon(key: str, topic: str, connector: str) -> None:
    value = b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1}}'
    decoded = status_topic.decode(key.encode(), value)
    assert isinstance(decoded, TopicStatus)
    assert (decoded.topic, decoded.connector) == (topic, connector)


@pytest.mark.parametrize("version", ["null", '"1.0"', None, "1", "{}"])
def test_version_is_the_last_member_and_a_string_or_null(version: str | None) -> None:
    added = "" if version is None else f',"version":{version}'
    value = f'{{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":3{added}}}'.encode()
    decoded = status_topic.decode(b"status-task-c-0", value)
    if version in ("1", "{}"):
        assert isinstance(decoded, Undecodable)
        return
    assert isinstance(decoded, TaskStatus)
    written = status_topic.encode(decoded)[1]
    assert written == (value if version is not None else value[:-1] + b',"version":null}')


# -- 8 and 9: failures of a send. Connect logs or retries them in the background; here the caller gets the error.


def test_put_task_state() -> None:
    status = TaskStatus("conn", 0, State.RUNNING, "localhost:8083", 0)
    value = b'{"state":"RUNNING","trace":null,"worker_id":"localhost:8083","generation":0,"version":null}'
    assert decide_puts(StatusState(), [Put(status, PutMode.PUT)]).records == (NewRecord(b"status-task-conn-0", value),)


@pytest.mark.parametrize("sent", [False, True])
async def test_put_connector_state_retriable_failure(sent: bool) -> None:
    """The broker's answer is lost: the put is reported as not applied, or is found in the log and reported as applied.
    A second put succeeds.
    """
    broker = MemoryBroker()
    async with running(broker) as (client, store, _):
        assert isinstance(store, MemoryTopicStore)
        store.lose_next_answer(applied=sent)
        if sent:
            assert (await client.put(put("conn"))).outcomes[0].result == APPLIED
        else:
            with pytest.raises(errors.WriterFenced):
                await client.put(put("conn"))
            assert not (await client.get("conn")).HasField("connector")
        again = await retrying(lambda: client.put(put("conn")), deadline_s=60)
        assert again.outcomes[0].result == APPLIED
        assert (await client.get("conn")).connector.worker_id == W1.worker_id


async def test_put_connector_state_non_retriable_failure() -> None:
    async with running(MemoryBroker()) as (client, _, _):
        with pytest.raises(errors.RequestInvalid):
            await client.put(put("conn", version="v" * 1_000_000))
        assert not (await client.get("conn")).HasField("connector")


def _topics(*names: str) -> write_pb2.PutTopicsRequest:
    topics = [status_pb2.TopicStatus(topic=name, connector="conn", task=0) for name in names]
    return write_pb2.PutTopicsRequest(topics=topics)


async def test_put_topic_state_is_shown_once_read_back() -> None:
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        reply = await client.write.PutTopics(_topics("foo"))
        listed = await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="conn"))
        assert [topic.topic for topic in listed.topics] == ["foo"]
        at_least = read_pb2.RefreshRequest(revision=reply.meta.revision)
        assert listed.meta.revision == (await client.read.Refresh(at_least)).meta.revision
        [record] = broker.topics["connect-status"].records()
        assert record.key == b"status-topic-foo:connector-conn"


async def test_put_topic_state_retriable_failure() -> None:
    async with running(MemoryBroker()) as (client, store, _):
        assert isinstance(store, MemoryTopicStore)
        store.lose_next_answer(applied=False)
        with pytest.raises(errors.WriterFenced):
            await client.write.PutTopics(_topics("foo"))
        assert not (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="conn"))).topics
        await retrying(lambda: client.write.PutTopics(_topics("foo"), timeout=30), deadline_s=60)
        assert (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="conn"))).topics


@pytest.mark.parametrize("name", ["", "a:b"])
async def test_put_topic_state_non_retriable_failure(name: str) -> None:
    async with running(MemoryBroker()) as (client, _, _):
        with pytest.raises(errors.RequestInvalid):
            await client.write.PutTopics(_topics(name))
        assert not (await client.read.ListTopics(read_pb2.ListTopicsRequest(connector="conn"))).topics


async def test_deleting_a_connector_writes_a_tombstone_for_each_of_its_tasks() -> None:
    """Sections 5.1 and 5.4 for our writes: readers that read the partitions in another order see the same state."""
    broker = MemoryBroker()
    async with running(broker) as (client, _, _):
        await client.put(put("conn"), put("conn", 0))
        await client.put(put("conn", state=connector_pb2.RUN_STATE_DESTROYED))
        keys = sorted(record.key or b"" for record in broker.topics["connect-status"].records() if record.value is None)
        assert keys == [b"status-connector-conn", b"status-task-conn-0"]
