"""Tests of history and restore over gRPC on the memory engine: caller, time, change and revision, and the properties
that are kept or redacted. The same on a real broker, with a search for secrets in the bytes of the audit topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.api.common.v1 import connector_pb2, revision_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import config_write_service_pb2 as write_pb
from herdmesh.configstore.state.history import HistoryIndex, HistoryPosition
from herdmesh.configstore.state.redaction import REDACTED
from herdmesh.connect.config.secret_values import is_secret
from herdmesh.connect.json_text import jackson
from herdmesh.rpc import properties
from herdmesh.rpc.errors import HistoryNotFound, InvalidConfig, RequestInvalid, RevisionMismatch
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.configstore_replica import SETTINGS, Cluster, Replica
from tests.support.store_process import SHORT_SESSION

Config = dict[str, properties.PropertyValue]
_STARTED, _PAUSED = connector_pb2.TARGET_STATE_STARTED, connector_pb2.TARGET_STATE_PAUSED
_SECRETS = {
    "db.password": "hunter2-planted",
    "url": "https://ann:s3cr3t-planted@host/x",
    "plain": "visible-planted",
}


async def history(writer: Any, name: str, **fields: Any) -> Sequence[read_pb.HistoryEntry]:
    answer = await writer.read.GetHistory(read_pb.GetHistoryRequest(connector=name, **fields))
    return answer.changes


async def restore(
    writer: Any, name: str, revision: revision_pb2.Revision, secrets: Mapping[str, str] | None = None, **options: Any
) -> write_pb.RestoreConnectorResponse:
    request = write_pb.RestoreConnectorRequest(
        options=write_pb.WriteOptions(**options),
        connector=name,
        revision=revision,
        secrets=properties.to_proto(secrets or {}),
    )
    answer: write_pb.RestoreConnectorResponse = await writer.write.RestoreConnector(request)
    return answer


def config_of(message: connector_pb2.Properties) -> Config:
    return properties.from_proto(message)


async def test_history_lists_caller_time_change_and_revision(writer: Replica) -> None:
    ann, herder = write_pb.WriteOptions(caller="ann", request_id="r1"), await writer.epoch()
    made = await writer.put("c1", {"a": "1", "b": "2", **_SECRETS}, options=ann, initial_target_state=3)
    changed = {"a": "1", "b": "3", **_SECRETS, "db.password": "other-planted"}
    updated = await writer.put("c1", changed, options=write_pb.WriteOptions(caller="bob"))
    await writer.put("other", {})
    started = await writer.write.SetTargetState(write_pb.SetTargetStateRequest(connector="c1", target_state=_STARTED))
    leading = write_pb.WriteOptions(leader=herder, caller="herder")
    tasks = [properties.to_proto({"t": str(number)}) for number in range(2)]
    await writer.write.CommitTaskConfigs(
        write_pb.CommitTaskConfigsRequest(options=leading, connector="c1", tasks=tasks)
    )
    await writer.write.PutTaskCount(write_pb.PutTaskCountRequest(options=leading, connector="c1", task_count=7))
    gone = await writer.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1"))

    deleted, count, commit, target, update, create = await history(writer, "c1")
    assert [one.operation for one in (deleted, count, commit, target, update, create)] == [
        "DeleteConnector", "PutTaskCount", "CommitTaskConfigs", "SetTargetState", "PutConnectorConfig",
        "PutConnectorConfig",
    ]  # fmt: skip
    assert (create.caller, create.request_id, update.caller, commit.caller) == ("ann", "r1", "bob", "herder")
    assert [create.revision, update.revision, target.revision, deleted.revision] == [
        one.meta.revision for one in (made, updated, started, gone)
    ]
    assert create.time.ToMilliseconds() > 1_700_000_000_000
    assert config_of(create.config_after) == {
        "a": "1", "b": "2", "db.password": REDACTED, "url": REDACTED, "plain": "visible-planted",
    }  # fmt: skip
    assert list(create.redacted_properties) == ["db.password", "url"]
    assert list(create.changed_properties) == ["a", "b", "db.password", "plain", "url"]
    assert create.target_state_after == connector_pb2.TARGET_STATE_STOPPED
    assert list(update.changed_properties) == ["b", "db.password"]  # a changed redacted value counts
    assert not target.HasField("config_after")
    assert target.target_state_after == connector_pb2.TARGET_STATE_STARTED
    assert (commit.task_count, count.task_count, create.HasField("task_count")) == (2, 7, False)
    assert [one.deleted for one in (deleted, count, create)] == [True, False, False]


async def test_an_unchanged_put_leaves_no_trace_in_history_and_has_the_revision_of_the_last_change(
    writer: Replica,
) -> None:
    made = await writer.put("c1", {"a": "1"})
    again = await writer.put("c1", {"a": "1"}, only_if_changed=True)
    assert (again.unchanged, again.created, made.unchanged) == (True, False, False)
    assert again.meta.revision == made.meta.revision
    assert again.connector == made.connector
    assert len(await history(writer, "c1")) == 1


async def test_a_history_is_paged_newest_first(writer: Replica) -> None:
    for number in range(25):
        await writer.put("c1", {"n": str(number)})
    told: list[properties.PropertyValue] = []
    token = ""
    for _ in range(3):
        page = await writer.read.GetHistory(read_pb.GetHistoryRequest(connector="c1", page_size=10, page_token=token))
        told += [properties.from_proto(one.config_after)["n"] for one in page.changes]
        token = page.next_page_token
    assert told == [str(number) for number in reversed(range(25))]
    assert token == ""
    assert len(await history(writer, "c1", page_size=100_000)) == 25
    assert list(await history(writer, "nobody")) == []
    for wrong in ({"page_size": -1}, {"page_token": "x"}, {"page_token": "٣"}, {"page_token": "9" * 5_000}):
        with pytest.raises(RequestInvalid):
            await history(writer, "c1", **wrong)
    with pytest.raises(RequestInvalid):
        await history(writer, "")


async def test_history_of_a_restart_names_what_was_restarted(writer: Replica) -> None:
    options = write_pb.WriteOptions(leader=await writer.epoch(), caller="ann")
    await writer.put("c1", {"a": "1"})
    asked = config_pb2.RestartRequest(connector="c1")
    what_failed = config_pb2.RestartRequest(connector="c1", include_tasks=True, only_failed=True)
    for request in (
        write_pb.RequestRestartRequest(options=options, restart=what_failed),
        write_pb.RequestRestartRequest(options=options, restart=asked),
        write_pb.RequestRestartRequest(options=options, restart=asked, task=0, generation=7),
    ):
        await writer.write.RequestRestart(request)
    task, connector, failed, made = await history(writer, "c1")
    assert task.restart == read_pb.RestartAsked(task=0)
    assert connector.restart == read_pb.RestartAsked()
    assert connector.HasField("restart")
    assert failed.restart == read_pb.RestartAsked(include_tasks=True, only_failed=True)
    assert not made.HasField("restart")
    assert (failed.operation, failed.caller) == ("RequestRestart", "ann")


async def test_every_replica_returns_the_same_history(writer: Replica, cluster: Cluster) -> None:
    replica = await cluster()
    await writer.put("c1", {"a": "1"})
    assert await history(replica, "c1") == await history(writer, "c1")
    assert len(await history(replica, "c1")) == 1


async def test_an_earlier_config_can_be_restored(writer: Replica) -> None:
    first = await writer.put("c1", {"a": "1", "gone": "x"})
    second = await writer.put("c1", {"a": "2"})
    with pytest.raises(RevisionMismatch):
        await restore(writer, "c1", first.meta.revision, expected_revision=first.connector.config_revision)
    expected = second.connector.config_revision
    restored = await restore(writer, "c1", first.meta.revision, expected_revision=expected, caller="ann")
    assert config_of(restored.connector.config) == {"a": "1", "gone": "x"}
    assert not restored.created
    assert restored.connector.incarnation == first.connector.incarnation
    assert await writer.entry("c1") == restored.connector
    newest = (await history(writer, "c1"))[0]
    assert (newest.operation, newest.caller, newest.revision) == ("RestoreConnector", "ann", restored.meta.revision)
    assert newest.restored_revision == first.meta.revision
    assert not (await history(writer, "c1"))[1].HasField("restored_revision")
    assert list(newest.changed_properties) == ["a", "gone"]
    back = await restore(writer, "c1", second.meta.revision)  # a restore can be reverted like any change
    assert config_of(back.connector.config) == {"a": "2"}


async def test_a_deleted_connector_is_restored(writer: Replica) -> None:
    first = await writer.put("c1", {"a": "1"}, initial_target_state=3)
    await writer.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1"))
    restored = await restore(writer, "c1", first.meta.revision, request_id="r1")
    assert restored.created
    assert config_of(restored.connector.config) == {"a": "1"}
    assert restored.connector.incarnation != first.connector.incarnation
    assert restored.connector.target_state == connector_pb2.TARGET_STATE_STARTED  # as after any create
    again = await restore(writer, "c1", first.meta.revision, request_id="r1")
    assert again.created
    assert again.connector == restored.connector
    with pytest.raises(RequestInvalid):  # the same id, another revision
        await restore(writer, "c1", restored.meta.revision, request_id="r1")


async def test_a_restore_takes_secrets_from_the_request_or_from_the_config_in_force(writer: Replica) -> None:
    first = await writer.put("c1", {"a": "1", **_SECRETS})
    await writer.put("c1", {"db.password": "newest", "url": "https://host"})
    with pytest.raises(InvalidConfig) as refusal:
        await restore(writer, "c1", first.meta.revision, {"a": "2"})
    assert [violation.field for violation in refusal.value.violations] == ["a"]
    restored = await restore(writer, "c1", first.meta.revision, {"url": "https://ann:pw@host"})
    assert list(restored.secrets_from_current) == ["db.password"]
    assert config_of(restored.connector.config) == {
        "a": "1", "plain": "visible-planted", "db.password": "newest", "url": "https://ann:pw@host",
    }  # fmt: skip
    await writer.write.DeleteConnector(write_pb.DeleteConnectorRequest(connector="c1"))
    with pytest.raises(InvalidConfig) as refusal:
        await restore(writer, "c1", first.meta.revision, {"url": "u"})
    assert [violation.field for violation in refusal.value.violations] == ["db.password"]
    whole = await restore(writer, "c1", first.meta.revision, {"url": "u", "db.password": "p"})
    assert (whole.created, list(whole.secrets_from_current)) == (True, [])


async def test_a_change_missing_from_history_is_not_found_and_the_error_names_the_reason(writer: Replica) -> None:
    made = await writer.put("c1", {"a": "1"})
    paused = await writer.write.SetTargetState(write_pb.SetTargetStateRequest(connector="c1", target_state=_PAUSED))
    other = await writer.put("c2", {})
    of_another_store = revision_pb2.Revision(store_id="other", next_offsets=made.meta.revision.next_offsets)
    for revision, why in (
        (paused.meta.revision, "SetTargetState wrote no config"),
        (other.meta.revision, "no change in the history"),
        (of_another_store, "does not have that change"),
    ):
        with pytest.raises(HistoryNotFound, match=why):
            await restore(writer, "c1", revision)
    with pytest.raises(RequestInvalid, match="revision"):
        await restore(writer, "c1", revision_pb2.Revision())
    writer.broker.topics[SETTINGS.audit_topic].partitions[0].records.clear()  # the effect of retention
    with pytest.raises(HistoryNotFound, match="does not have that change any more"):
        await restore(writer, "c1", made.meta.revision)
    assert list(await history(writer, "c1")) == []


async def test_a_forged_audit_record_hides_no_other_record(writer: Replica) -> None:
    forged: dict[str, Any] = {
        "caller": "\ud800", "time_ms": 2**62, "operation": "X", "connector": "c1", "outcome": {}, "revision": "garbage",
        "changes": {"config": [], "changed": 1, "target_state": "?", "tasks": 2**40, "deleted": "yes",
                    "restart": {"task": 2**40, "only_failed": 1}, "restored": ["x"]},
    }  # fmt: skip
    writer.broker.produce(SETTINGS.audit_topic, b"r", jackson.dumps(forged))
    writer.broker.produce(SETTINGS.audit_topic, b"r", b"no json")
    made = await writer.put("c1", {"a": "1"})
    newest, odd = await history(writer, "c1")
    assert newest.revision == made.meta.revision
    assert (odd.operation, odd.HasField("config_after"), odd.HasField("task_count"), odd.deleted) == (
        "X", False, False, False,
    )  # fmt: skip
    assert not odd.HasField("revision")
    assert not odd.HasField("restored_revision")
    assert (odd.restart.HasField("task"), odd.restart.only_failed) == (False, False)
    answer = await writer.read.GetStoreStatus(read_pb.GetStoreStatusRequest())
    assert answer.status.undecodable_count == 1


def test_the_index_is_bounded_and_discards_the_connectors_that_changed_longest_ago() -> None:
    index = HistoryIndex(changes_max=10, places_max=50)
    for number in range(15):
        index.add("busy", HistoryPosition(number, number + 1))
    assert [place.audit_offset for place in index.before("busy", None, 100)] == list(range(14, 4, -1))
    assert index.before("busy", 10, 2) == [(9, 10), (8, 9)]
    assert index.at("busy", 3) == []
    kept = index.copy()
    for number in range(200):
        index.add(f"c-{number % 4}", HistoryPosition(100 + number, number))
        assert sum(len(index.before(name, None, 100)) for name in ("busy", "c-0", "c-1", "c-2", "c-3")) <= 50
    assert all(len(index.before(f"c-{number}", None, 100)) >= 5 for number in range(4))
    for number in range(200):
        index.add(f"d-{number}", HistoryPosition(300 + number, number))
    assert index.before("busy", None, 100) == []
    assert len(index.before("d-199", None, 100)) == 1
    assert sum(len(index.before(f"d-{number}", None, 100)) for number in range(200)) <= 50
    assert kept.at("busy", 8) == [7]  # a copy keeps its positions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database.password", "x"), ("dbPassword", "x"), ("SSL_KEYSTORE_PASSWORD", "x"), ("aws.secret.access.key", "x"),
        ("sasl.jaas.config", "ScramLoginModule required password=\"${file:/a:b}\";"), ("basic.auth.user.info", "u:p"),
        ("aws.access.key.id", "x"), ("azure.storage.account.key", "x"), ("client-secret", "x"), ("oauth.token", "x"),
        ("gcp.credentials.json", "{}"), ("ssl.key", "x"), ("pin", 1234), ("api.keys", ["x"]), ("accessKey", "x"),
        ("password", "${file:/a:b}and-more"), ("password", "${not-a-placeholder}"), ("nested", {"password": "x"}),
        ("nested", [{"a": {"apiKey": "x"}}]), ("connection.url", "jdbc:postgresql://h/db?user=u&password=p"),
        ("connection.url", "mongodb+srv://u:p@h/db"), ("u", "jdbc:oracle:thin:scott/tiger@h:1521"), ("h", "u:p@h:1"),
        ("conn", "Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abc="), ("pem", "x"), ("x", "Bearer abc"),
        ("x", "-----BEGIN PRIVATE KEY-----"), ("x", "eyJhbGciOiJIUzI1NiJ9.e30.x"), ("x", '{"api_key": "x"}'),
        ("x", '{\\"password\\":\\"x\\"}'), ("x", "<password>x</password>"), ("x", "AKIAIOSFODNN7EXAMPLE"),
        ("producer.override.sasl.jaas.config", "x"), ("http.headers", "Authorization: Basic dTpw"),
    ],
)  # fmt: skip
def test_possible_secrets_are_redacted(name: str, value: object) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "${file:/a:b}"), ("password", "${vault:key}"), ("password", None), ("password", ""),
        ("connection.url", "jdbc:postgresql://host/db"), ("connection.url", "https://${f:u}:${f:p}@host/x"),
        ("url", "jdbc:x://h/db?password=${file:/a:b}&user=u"), ("key.converter", "org.apache.kafka.JsonConverter"),
        ("consumer.key.deserializer", "x"), ("topics", "a,b"), ("name", "passenger-list"), ("tasks.max", "2"),
        ("ssl.truststore.location", "/etc/t.jks"), ("key.converter.schemas.enable", False), ("file", "/data/in.txt"),
        ("transforms.mask.fields", "a,b"), ("connector.class", "FileStreamSource"), ("sasl.mechanism", "PLAIN"),
        ("region", "asia-southeast1"), ("mode", "basic"), ("topic.regex", "a=b:c"), ("when", "12:30"), ("x", "a@b"),
    ],
)  # fmt: skip
def test_values_that_are_no_secrets_are_kept(name: str, value: object) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize("hostile", ["${" * 200_000, ":" * 400_000, "${" + ":" * 400_000, "password" * 50_000])
def test_redaction_time_is_linear_in_the_length_of_a_hostile_value(hostile: str) -> None:
    is_secret("x", hostile)  # quadratic time would exceed the test's time-out


@pytest.mark.kafka
async def test_the_audit_topic_has_no_secret_and_history_survives_a_restart(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = tmp_topic("configs")
    store = ConfigStoreProcess(kafka_bootstrap, topic, tmp_path / "store.log", more=SHORT_SESSION)
    await store.start()
    try:
        await store.until_writing()
        made = await store.put("c1", {"name": "c1", **_SECRETS})
        await store.put("c1", {"name": "c1", **_SECRETS, "db.password": "second-planted"})
        await restore(store, "c1", made.meta.revision, {"db.password": "third-planted"})
        await store.stop()
        await store.start()
        await store.until_writing()
        told = await history(store, "c1")
        assert [one.operation for one in told] == ["RestoreConnector", "PutConnectorConfig", "PutConnectorConfig"]
        assert told[-1].revision == made.meta.revision
        back = await restore(store, "c1", made.meta.revision)
        assert list(back.secrets_from_current) == ["db.password", "url"]
        assert config_of(back.connector.config) == {"name": "c1", **_SECRETS, "db.password": "third-planted"}
    finally:
        await store.kill()
    written = await asyncio.to_thread(_bytes_of, kafka_bootstrap, f"{topic}-audit")
    assert written.count(b"visible-planted") == 4
    for secret in (b"hunter2", b"s3cr3t", b"second-planted", b"third-planted"):
        assert secret not in written
    config_topic = await asyncio.to_thread(_bytes_of, kafka_bootstrap, topic)
    assert b"hunter2-planted" in config_topic  # proves that the search finds a secret where there is one


def _bytes_of(bootstrap: str, topic: str) -> bytes:
    """Every key and value of a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks-through", "enable.partition.eof": "true"})
    found = b""
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(10)
            assert message is not None
            if message.error():
                return found
            found += (message.key() or b"") + (message.value() or b"")
    finally:
        consumer.close()
