"""The operations behind the recorded config topics, played through our write path, give the recorded records: the same
keys, values and partitions in the same order.

The operations are derived from the records (`_operations`), and checked against the REST requests that are known to
have caused them. They go through `plan` into a topic in memory, and through the write service and `KafkaTopicStore`
into a topic on the broker. Not compared are our additional records: manifests (`herdmesh-connector-`), epochs
(`herdmesh-leader`) and the audit topic. Compared byte by byte. The order of members inside `properties` is unspecified:
`plan` keeps it from the recording, and after the way over the wire the decoded values are compared instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from urllib.parse import unquote

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2 as pb
from herdmesh.configstore.effects.stores import fresh_id, wall_clock_ms
from herdmesh.configstore.service import wire
from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.configstore.state.changes import Change
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.mutations import (
    CommitTaskConfigs,
    DeleteConnector,
    Mutation,
    PutConnectorConfig,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskCount,
    RequestRestart,
    SetTargetState,
)
from herdmesh.configstore.state.writes import plan_epoch
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.topicstore import StoreRole, WriteDecision
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from tests.support import golden
from tests.support.config_topic import TOPIC, ConfigTopic
from tests.support.golden import Line

_LINES = [line for line in golden.lines("config-topic.jsonl") if line["committed"]]
_WORKERS = list(dict.fromkeys(line["worker"] for line in _LINES))
_OURS = b"herdmesh-"
_TARGETS = {"pause": TargetState.PAUSED, "resume": TargetState.STARTED, "stop": TargetState.STOPPED}
#: The numbers of `TargetState` in the protos, for requests.
_NUMBERS: dict[TargetState, Any] = {TargetState.STARTED: 1, TargetState.PAUSED: 2, TargetState.STOPPED: 3}

Raw = tuple[bytes, bytes | None, int]
Played = tuple[str, Mutation]


def _recorded(worker: str) -> list[Raw]:
    return [
        (*cast("tuple[bytes, bytes | None]", golden.key_and_value(line)), line["partition"])
        for line in _LINES
        if line["worker"] == worker
    ]


def _operations(worker: str) -> Iterator[Played]:
    """Scenario and mutation. A commit ends a task set; a target state before the config of a connector that does not
    exist is its initial one; the two tombstones of a connector are one deletion.
    """
    lines = [line for line in _LINES if line["worker"] == worker]
    records = [config_topic.decode(*golden.key_and_value(line)) for line in lines]
    there: set[str] = set()
    tasks: list[TaskConfigRecord] = []
    at = 0
    while at < len(records):
        record, scenario = records[at], lines[at]["scenario"]
        after = records[at + 1] if at + 1 < len(records) else None
        at += 1
        match record:
            case TaskConfigRecord():
                assert record.task == len(tasks)
                tasks.append(record)
                continue
            case CommitRecord():
                assert all(task.connector == record.connector for task in tasks)
                assert len(tasks) == record.tasks, lines[at - 1]["id"]
                yield scenario, CommitTaskConfigs(record.connector, [task.properties for task in tasks])
                tasks = []
            case TargetStateRecord(connector=name, state=state):
                if name not in there and isinstance(after, ConnectorRecord) and after.connector == name:
                    at += 1
                    there.add(name)
                    yield scenario, PutConnectorConfig(name, after.properties, initial_target_state=state)
                else:
                    yield scenario, SetTargetState(name, state)
            case ConnectorRecord(connector=name, properties=config):
                there.add(name)
                yield scenario, PutConnectorConfig(name, config)
            case Tombstone(kind="connector", connector=name):
                assert after == Tombstone("target-state", name), lines[at]["id"]
                at += 1
                there.discard(name)
                yield scenario, DeleteConnector(name)
            case TaskCountRecord(connector=name, task_count=count):
                yield scenario, PutTaskCount(name, count)
            case RestartRecord():
                yield scenario, RequestRestart(record)
            case SessionKeyRecord():
                yield scenario, PutSessionKey(record)
            case LoggerRecord():
                yield scenario, PutLoggerLevel(record)
            case _:
                raise AssertionError(f"{lines[at - 1]['id']} is of no operation: {record}")
        assert not tasks, lines[at - 1]["id"]


@pytest.mark.parametrize("worker", _WORKERS)
def test_planned_writes_are_the_recorded_records(worker: str) -> None:
    topic = ConfigTopic()
    leader = topic.lead()
    for _, mutation in _operations(worker):
        topic.write(mutation, leader=leader)
    written = [
        (record.key, record.value, record.partition)
        for record in topic.records
        if record.topic == TOPIC and not cast(bytes, record.key).startswith(_OURS)
    ]
    assert written == _recorded(worker)
    assert topic.state.refused.count == 0


@pytest.mark.parametrize("worker", _WORKERS)
def test_the_operations_match_the_recorded_rest_requests(worker: str) -> None:
    """Each request that changed a config, a target state or a logger is among the operations of its scenario."""
    played = list(_operations(worker))
    checked = 0
    for expected in (line for line in golden.lines("expect.jsonl") if line["worker"] == worker):
        made = [mutation for scenario, mutation in played if scenario == expected["scenario"]]
        for step in expected["steps"]:
            asked = _asked(step)
            if asked is not None:
                checked += 1
                assert asked in made, step
    assert checked >= 20 or not golden.is_own()


def _asked(step: Line) -> Mutation | None:
    """The mutation that a REST request caused; None where its outcome is unknown or it caused no mutation."""
    if not 200 <= (step.get("status") or 0) < 300:
        return None
    parts = [unquote(part) for part in step["path"].split("?")[0].split("/")[1:]]
    match step["method"], parts:
        case "POST", ["connectors"]:
            body = step["body"]
            initial = (body.get("initial_state") or "").upper()
            config = {**body["config"], "name": body["name"]}
            state = TargetState({"RUNNING": "STARTED"}.get(initial, initial)) if initial else None
            return PutConnectorConfig(body["name"], config, initial_target_state=state)
        case "PUT", ["connectors", name, "config"]:
            return PutConnectorConfig(name, {**step["body"], "name": name})
        case "PUT", ["connectors", name, ("pause" | "resume" | "stop") as verb]:
            return SetTargetState(name, _TARGETS[verb])
        case "DELETE", ["connectors", name]:
            return DeleteConnector(name)
        case "POST", ["connectors", name, "restart"] if "=true" in step["path"]:
            flags = [f"{flag}=true" in step["path"] for flag in ("includeTasks", "onlyFailed")]
            return RequestRestart(RestartRecord(name, *flags))
        case "PUT", ["admin", "loggers", namespace] if "scope=cluster" in step["path"]:
            return PutLoggerLevel(LoggerRecord(namespace, step["body"]["level"]))
        case _:
            return None


@pytest.mark.kafka
async def test_operations_written_to_kafka_give_the_recorded_records(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """Plays one worker's recording: one with exactly-once source support if there is one, because it has every kind of
    record.
    """
    if not _WORKERS:
        pytest.skip("this recording has no config-topic.jsonl")
    worker = "eos" if "eos" in _WORKERS else _WORKERS[0]
    name = tmp_topic("configs")
    settings = ConfigStoreSettings(
        bootstrap_servers=kafka_bootstrap,
        group_id=name,
        config_storage_topic=name,
        config_storage_replication_factor=1,
    )
    store: KafkaTopicStore[ConfigState, Change] = KafkaTopicStore(
        settings.topic_settings(), ConfigState(settings.audit_topic)
    )
    await store.start()
    try:
        async for role in store.role_changes():
            if role is StoreRole.WRITER:
                break
        await store.write(lambda state: WriteDecision(plan_epoch(state, "herder", "127.0.0.1:1"), lambda _, at: at))
        servicer = ConfigWriteServicer(store, settings.audit_topic, wall_clock_ms, fresh_id)
        for _, mutation in _operations(worker):
            await _call(servicer, mutation)
        assert store.state.refused.count == 0
    finally:
        await store.close()
    found = await asyncio.to_thread(_read, kafka_bootstrap, name)
    assert [_readable(raw) for raw in found] == [_readable(raw) for raw in _recorded(worker)]


async def _call(servicer: ConfigWriteServicer, mutation: Mutation) -> None:
    """Send the request of a mutation."""
    leader = identity_pb2.LeaderToken(epoch=1, leader_id="herder")
    options = pb.WriteOptions(leader=leader)
    context: Any = None  # the servicer does not use it
    match mutation:
        case PutConnectorConfig():
            initial = mutation.initial_target_state
            config = wire.properties_to_proto(mutation.config)
            request = pb.PutConnectorConfigRequest(options=options, connector=mutation.connector, config=config)
            if initial is not None:
                request.initial_target_state = _NUMBERS[initial]
            await servicer.PutConnectorConfig(request, context)
        case DeleteConnector(connector=name):
            await servicer.DeleteConnector(pb.DeleteConnectorRequest(options=options, connector=name), context)
        case SetTargetState(connector=name, target_state=state):
            number = _NUMBERS[state]
            await servicer.SetTargetState(
                pb.SetTargetStateRequest(options=options, connector=name, target_state=number), context
            )
        case CommitTaskConfigs(connector=name):
            tasks = [wire.properties_to_proto(task) for task in mutation.tasks]
            await servicer.CommitTaskConfigs(
                pb.CommitTaskConfigsRequest(options=options, connector=name, tasks=tasks), context
            )
        case PutTaskCount(connector=name, task_count=count):
            await servicer.PutTaskCount(
                pb.PutTaskCountRequest(options=options, connector=name, task_count=count), context
            )
        case RequestRestart(request=restart):
            message = config_pb2.RestartRequest(
                connector=restart.connector, include_tasks=restart.include_tasks, only_failed=restart.only_failed
            )
            await servicer.RequestRestart(pb.RequestRestartRequest(options=options, restart=message), context)
        case PutSessionKey(key=key):
            message = wire.session_key(key, 0, "")
            await servicer.PutSessionKey(pb.PutSessionKeyRequest(options=options, session_key=message), context)
        case PutLoggerLevel(level=level):
            message = config_pb2.LoggerLevel(logger=level.namespace, level=level.level)
            await servicer.PutLoggerLevel(pb.PutLoggerLevelRequest(options=options, logger_level=message), context)
        case _:
            raise AssertionError(f"no recording has {mutation}")


def _readable(raw: Raw) -> tuple[bytes, object, int]:
    """A record whose `properties` may have any order; all other values stay bytes."""
    key, value, partition = raw
    decoded = config_topic.decode(key, value)
    return key, decoded if isinstance(decoded, ConnectorRecord | TaskConfigRecord) else value, partition


def _read(bootstrap: str, topic: str) -> Sequence[Raw]:
    """All committed records of the kinds that Connect knows, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "golden",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
        }
    )
    found: list[Raw] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(10)
            assert message is not None
            if message.error():
                return found
            key = cast(bytes, message.key())
            assert not message.headers()
            if not key.startswith(_OURS):
                found.append((key, message.value(), cast(int, message.partition())))
    finally:
        consumer.close()
