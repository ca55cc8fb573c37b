"""The topics of a large Connect cluster, generated from a seed.

Owns the mix of records and the configs. Invariant: equal arguments give equal records, and both sides read the same
topic.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.configstore.state import mutations, writes
from herdmesh.configstore.state.config import ConfigState
from herdmesh.connect.topics import config_topic, status_topic
from herdmesh.connect.topics.config_records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    Properties,
    RestartRecord,
    TargetState,
    TargetStateRecord,
    TaskConfigRecord,
    TaskCountRecord,
)
from herdmesh.connect.topics.status_topic import ConnectorStatus, State, TaskStatus, TopicStatus
from herdmesh.topicstore.contract import StoredRecord
from herdmesh.topicstore.settings import MURMUR2_RANDOM

Record = tuple[bytes, bytes | None]
_BATCH = 5_000
_SEED = 4
_TRANSACTION = 500


def connector_config(name: str, version: int = 0) -> dict[str, str]:
    """A sink's config as users write them: 20 properties, about 900 bytes."""
    return {
        "name": name,
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "tasks.max": "10",
        "topics": f"{name}.orders,{name}.customers,{name}.payments",
        "connection.url": f"jdbc:postgresql://db-{hash_of(name) % 40}.example.net:5432/warehouse",
        "connection.user": "connect",
        "connection.password": "${file:/etc/connect/secrets.properties:warehouse.password}",
        "connection.attempts": "10",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
        "auto.create": "false",
        "auto.evolve": "true",
        "batch.size": str(1000 + version),
        "table.name.format": "public.${topic}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{name}-dead-letters",
    }


def task_config(name: str, task: int, version: int) -> dict[str, str]:
    """The config of one task of the connector above."""
    return {
        **connector_config(name, version),
        "task.class": "io.confluent.connect.jdbc.sink.JdbcSinkTask",
        "task.id": f"{name}-{task}",
    }


def hash_of(name: str) -> int:
    """A hash that is equal in every process, unlike `hash`."""
    return sum(name.encode())


def history(connectors: int, records: int) -> Iterator[ConfigRecord]:
    """Connect's own records: connectors created, updated, paused and resumed, their tasks written and committed, some
    of them fenced, some restarted."""
    rng = random.Random(_SEED)
    names = [f"team-{number % 37}.connector-{number}" for number in range(connectors)]
    made = 0
    version = 0
    while made < records:
        for name in names:
            for record in _operation(rng, name, version):
                yield record
                made += 1
            if made >= records:
                return
        version += 1


def _operation(rng: random.Random, name: str, version: int) -> list[ConfigRecord]:
    """The records of one user action. The first of each connector is its creation."""
    kind = rng.random()
    tasks = 1 + hash_of(name) % 10
    if version > 0 and kind < 0.25:
        return [TargetStateRecord(name, rng.choice(list(TargetState)))]
    if version > 0 and kind < 0.3:
        return [RestartRecord(name, include_tasks=True, only_failed=True)]
    records: list[ConfigRecord] = [TargetStateRecord(name, TargetState.STARTED)] if version == 0 else []
    records.append(ConnectorRecord(name, connector_config(name, version)))
    records += [TaskConfigRecord(name, task, task_config(name, task, version)) for task in range(tasks)]
    records.append(CommitRecord(name, tasks))
    if hash_of(name) % 3 == 0:  # the sources of an exactly-once cluster
        records.append(TaskCountRecord(name, tasks))
    return records


def created(name: str, tasks: int) -> list[Record]:
    """One connector with its task set, as Connect leaves it after a compaction."""
    records: list[ConfigRecord] = [
        TargetStateRecord(name, TargetState.STARTED),
        ConnectorRecord(name, connector_config(name)),
        *(TaskConfigRecord(name, task, task_config(name, task, 0)) for task in range(tasks)),
        CommitRecord(name, tasks),
    ]
    return [config_topic.encode(record) for record in records]


def config_records(connectors: int, records: int) -> list[Record]:
    """Only Connect's records, `records` of them."""
    return [config_topic.encode(record) for record in history(connectors, records)][:records]


def config_records_with_manifests(connectors: int, records: int) -> list[Record]:
    """The same history as our store writes it: every transaction ends with its manifest."""
    made: list[Record] = []
    state = ConfigState()
    for mutation in _mutations(connectors, records):
        context = mutations.WriteContext(
            "Bench", now_ms=0, new_incarnation="1", leader=mutations.LeaderToken(1, "bench")
        )
        if state.leadership is None:
            _take(made, state, [(r.key, r.value) for r in writes.plan_epoch(state, "bench", "127.0.0.1:1")])
        _take(made, state, [(r.key, r.value) for r in writes.plan(state, mutation, context).records])
        if len(made) >= records:
            return made[:records]
    return made


def _take(made: list[Record], state: ConfigState, records: Iterable[Record]) -> None:
    for key, value in records:
        state.apply(StoredRecord("bench", 0, len(made), key, value, 0))
        made.append((key, value))


def _mutations(connectors: int, records: int) -> Iterator[mutations.Mutation]:
    tasks: list[Properties] = []
    created: set[str] = set()
    for record in history(connectors, records):
        if isinstance(record, ConnectorRecord):
            created.add(record.connector)
            yield mutations.PutConnectorConfig(record.connector, record.properties)
        elif isinstance(record, TargetStateRecord):
            if record.connector in created:
                yield mutations.SetTargetState(record.connector, record.state)
        elif isinstance(record, TaskConfigRecord):
            tasks.append(record.properties)
        elif isinstance(record, CommitRecord):
            yield mutations.CommitTaskConfigs(record.connector, tasks)
            tasks = []
        elif isinstance(record, TaskCountRecord):
            yield mutations.PutTaskCount(record.connector, record.task_count)
        elif isinstance(record, RestartRecord):
            yield mutations.RequestRestart(record)


def status_records(connectors: int, records: int) -> list[Record]:
    """Tasks starting, failing, moving and stopping, with the topics they use; failures carry a stack trace."""
    rng = random.Random(_SEED)
    trace = "org.apache.kafka.connect.errors.ConnectException: connection lost\n" + "".join(
        f"\tat org.example.warehouse.Writer.step{line}(Writer.java:{line})\n" for line in range(20)
    )
    states = [State.RUNNING] * 6 + [State.UNASSIGNED] * 2 + [State.PAUSED, State.FAILED]
    made: list[Record] = []
    generation = 0
    while len(made) < records:
        generation += 1
        for number in range(connectors):
            name = f"team-{number % 37}.connector-{number}"
            worker = f"10.0.0.{rng.randrange(20)}:8083"
            made.append(status_topic.encode(ConnectorStatus(name, State.RUNNING, worker, generation, version="1.0")))
            for task in range(1 + hash_of(name) % 10):
                state = rng.choice(states)
                status = TaskStatus(
                    name,
                    task,
                    state,
                    worker,
                    generation,
                    trace=trace if state is State.FAILED else None,
                    version="1.0",
                )
                made.append(status_topic.encode(status))
            made.append(status_topic.encode(TopicStatus(f"{name}.orders", name, 0, 1_700_000_000_000 + generation)))
    return made[:records]


def fill(bootstrap: str, topic: str, partitions: int, records: Sequence[Record], *, transactions: bool = False) -> None:
    """Create the topic and write `records` into it in order, as plain records or in transactions of a group commit."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})
    for future in admin.create_topics([new]).values():
        future.result()
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "partitioner": MURMUR2_RANDOM,
        "enable.idempotence": True,
        "linger.ms": 5,
    }
    if transactions:
        settings["transactional.id"] = f"bench-{topic}"
    producer = Producer(settings)
    if transactions:
        producer.init_transactions()
    step = _TRANSACTION if transactions else _BATCH
    for start in range(0, len(records), step):
        if transactions:
            producer.begin_transaction()
        for key, value in records[start : start + step]:
            producer.produce(topic, key=key, value=value)
        producer.flush()
        if transactions:
            producer.commit_transaction()
