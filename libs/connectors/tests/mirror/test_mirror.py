"""Tests of the mirror with a real broker that is its own source:
byte for byte, resumed after a kill, with Java's offsets.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from herdmesh.connect.errors import ConfigError, RetriableError, UnreachableError
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.connect.spi.connector import ConnectorContext, SourceBatch, SourceTaskContext
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.connectors.mirror.source.settings import settings_of
from herdmesh.connectors.mirror.source.task import MirrorSourceTask
from herdmesh.engine import RunEnd, RunSpec, Stop, TaskKind
from herdmesh.engine.runtime.contract import Command, ProgressReport
from herdmesh.engine.runtime.errors import OffsetsLost
from herdmesh.engine.source import source_cluster
from libs.core.tests.engine.harness import Kafka, Link, make_spec, processes, run_here

pytestmark = pytest.mark.kafka
RECORDS = 600
YESTERDAY_MS = int(time.time() - 86_400) * 1000
"""In the past, but recent enough that the broker does not delete the records during a test."""
Copied = tuple[int | None, bytes | None, bytes | None, Any, tuple[int, int]]
"""Partition, key, value, headers, and time with its kind."""


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


def config_of(broker: Kafka, topics: str, **more: str) -> dict[str, str]:
    """Return a config like one for Java's connector."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "a",
        "target.cluster.alias": "b",
        "source.cluster.bootstrap.servers": broker.bootstrap,
        "target.cluster.bootstrap.servers": broker.bootstrap,
        "topics": topics,
        "replication.factor": "1",
        **more,
    }


def specs_of(broker: Kafka, name: str, config: dict[str, str], tasks_max: int = 1) -> list[RunSpec]:
    """Return the run specs of the connector's tasks."""
    plugin = PluginRegistry.discover().find(config["connector.class"])
    connector = plugin.load()
    assert not connector.validate(config)
    connector.start(config)
    tasks = connector.task_configs(tasks_max)
    connector.stop()
    return [
        make_spec(
            broker.bootstrap, name, connector.task_class(), {}, kind=TaskKind(plugin.kind),
            connector_config=config, task_config=task, task=number, task_count=len(tasks),
            offset_storage_topic=f"{name}-offsets",
            worker_config={"offset.storage.partitions": "1", **connector.default_converters},
        )
        for number, task in enumerate(tasks)
    ]  # fmt: skip


def write(broker: Kafka, topic: str, numbers: range, partitions: int = 2) -> None:
    """Write records with every odd property: no key, no value, headers
    without a value or twice, old times, bytes that are no text.
    """
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers: Iterator[list[tuple[str, str | bytes | None]]] = cycle([[], [("h", b"\xfe"), ("h", None)], [("é", b"")]])
    for number, header in zip(numbers, headers, strict=False):
        producer.produce(
            topic,
            None if number % 7 == 0 else b"\xff%d" % number,
            None if number % 5 == 0 else b"\0%d" % number,
            number % partitions,
            timestamp=YESTERDAY_MS + number * 997,
            headers=header,
        )
    producer.flush()


def seen(broker: Kafka, topic: str, partitions: int = 2) -> list[Copied]:
    """Return everything that a reader of committed records gets from a topic, by partition."""
    found = sorted(broker.messages(topic, partitions), key=lambda one: (one.partition() or 0, one.offset() or 0))
    return [(one.partition(), one.key(), one.value(), one.headers(), one.timestamp()) for one in found]


def test_every_byte_of_every_record_is_copied_to_the_same_partition(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    one, two = broker.create_topic(tmp_topic("one"), 2, **{"retention.ms": "99999999999"}), tmp_topic("two")
    broker.create_topic(two, 2)
    back = broker.create_topic(f"b.{one}", 1)  # came from the target, and is not copied back
    for topic in (one, two, back):
        write(broker, topic, range(RECORDS), partitions=1 if topic is back else 2)
    name = tmp_topic("mirror")
    specs = specs_of(broker, name, config_of(broker, rf"{one},{two},b\..*"), tasks_max=2)
    assert [run_here(spec).progress.records_in for spec in specs] == [RECORDS, RECORDS]
    for topic in (one, two):
        copied = seen(broker, f"a.{topic}")
        assert len(copied) == RECORDS
        assert copied == seen(broker, topic)
    assert f"a.{back}" not in broker.admin.list_topics(timeout=60).topics
    assert broker.topic_config(f"a.{one}", "retention.ms") == "99999999999"
    assert broker.topic_config(f"a.{two}", "retention.ms") == broker.topic_config(two, "retention.ms") != "99999999999"


def test_an_added_partition_is_added_at_the_target(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, range(10), partitions=1)
    config = config_of(broker, topic)
    (spec,) = specs_of(broker, name, config)
    run_here(spec)
    broker.grow(topic, 3)
    write(broker, topic, range(10, 40), partitions=3)
    (spec,) = specs_of(broker, name, config)
    assert run_here(spec).progress.records_in == 30
    assert seen(broker, f"a.{topic}", 3) == seen(broker, topic, 3)


@pytest.mark.parametrize("failpoint", ["after-write", "after-offset-commit"])
def test_a_killed_run_continues_without_loss_or_duplicates(
    broker: Kafka, tmp_topic: Callable[..., str], tmp_path: Path, failpoint: str
) -> None:
    topic, name = broker.create_topic(tmp_topic(), 2), tmp_topic("mirror")
    write(broker, topic, range(RECORDS))
    (spec,) = specs_of(broker, name, config_of(broker, topic, **{"source.consumer.max.poll.records": "50"}))
    with processes(tmp_path) as start:
        process = start(spec, failpoint)
        process.until_frozen()
        process.kill()
    run_here(spec)
    copied = seen(broker, f"a.{topic}")
    assert len(copied) == RECORDS
    assert copied == seen(broker, topic)


def test_a_mirror_continues_from_javas_offsets_and_stores_them(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    """The offset of Java's MirrorSourceTask (with a HashMap's order) names the last copied record."""
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, range(20), partitions=1)
    broker.create_topic(f"{name}-offsets", 1, **{"cleanup.policy": "compact"})
    key = f'["{name}",{{"cluster":"a","partition":0,"topic":"{topic}"}}]'.encode()
    broker.produce(f"{name}-offsets", [b'{"offset":11}'], key=key, partition=0)
    (spec,) = specs_of(broker, name, config_of(broker, topic))
    assert run_here(spec).progress.records_in == 8
    assert seen(broker, f"a.{topic}", 1) == seen(broker, topic, 1)[12:]
    (_, (stored_key, stored)) = broker.records(f"{name}-offsets")
    topic_id = settings_of(config_of(broker, topic)).source.topic_ids([topic])[topic]
    assert (stored_key, stored) == (key, b'{"offset":19,"topic_id":"%s"}' % topic_id.encode())


def test_records_deleted_before_they_were_copied_are_reported_as_lost(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, range(5), partitions=1)
    broker.create_topic(f"{name}-offsets", 1, **{"cleanup.policy": "compact"})
    key = f'["{name}",{{"cluster":"a","partition":0,"topic":"{topic}"}}]'.encode()
    broker.produce(f"{name}-offsets", [b'{"offset":99}'], key=key, partition=0)
    (spec,) = specs_of(broker, name, config_of(broker, topic))
    with pytest.raises(OffsetsLost, match=rf"offset 100 of {topic}-0 .* is gone"):
        run_here(spec)
    (spec,) = specs_of(broker, name, config_of(broker, topic, **{"herdmesh.offsets.missing": "reset"}))
    assert run_here(spec).progress.records_in == 5


def test_aborted_records_are_copied_only_with_read_uncommitted(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        (producer.abort_transaction if value == b"aborted" else producer.commit_transaction)()
    counts: dict[str, int] = {}
    for level in ("", "read_committed", "read_uncommitted"):
        more = {"source.consumer.isolation.level": level} if level else {}
        config = config_of(broker, topic, **{"source.cluster.alias": f"from-{level}", **more})
        (spec,) = specs_of(broker, f"{name}-{level}", config)
        counts[level] = run_here(spec).progress.records_in
        assert MirrorSourceConnector().exactly_once_support(config) is (level != "read_uncommitted")
    assert counts == {"": 1, "read_committed": 1, "read_uncommitted": 2}


def test_a_refusal_of_the_brokers_is_reported_with_the_key(
    broker: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    (spec,) = specs_of(broker, name, config_of(broker, topic, **{"replication.factor": "2"}))
    with pytest.raises(ConfigError) as caught:
        run_here(spec)
    assert caught.value.field == "replication.factor"
    monkeypatch.setattr(source_cluster, "CALL_TIMEOUT_S", 0.2)
    away = MirrorSourceConnector()
    with pytest.raises(UnreachableError, match=r"the source cluster a \(127.0.0.1:1\)"):
        away.start({**config_of(broker, topic), "source.cluster.bootstrap.servers": "127.0.0.1:1"})


def test_the_ends_of_its_partitions_wake_an_idle_task(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = broker.create_topic(tmp_topic(), 2)
    (spec,) = specs_of(broker, tmp_topic("mirror"), config_of(broker, topic))
    write(broker, topic, range(3))
    topic_id = settings_of(config_of(broker, topic)).source.topic_ids([topic])[topic]
    assert MirrorSourceConnector().sign(spec.task_config) == f"{topic}-0:2 {topic}-1:1 {topic}={topic_id}"
    write(broker, topic, range(2))
    # signs are cached for a short time, by config
    later = MirrorSourceConnector().sign({**spec.task_config, "name": "another"})
    assert later == f"{topic}-0:3 {topic}-1:2 {topic}={topic_id}"


LATEST = {"source.consumer.auto.offset.reset": "latest"}


def test_latest_is_resolved_once(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    """Also in an empty partition: records that arrive while the task is idle, or first wake it, are copied."""
    topic, name = broker.create_topic(tmp_topic(), 2), tmp_topic("mirror")
    write(broker, topic, range(5), partitions=1)
    (spec,) = specs_of(broker, name, config_of(broker, topic, **LATEST))
    assert run_here(spec).progress.records_in == 0
    for _ in range(2):
        write(broker, topic, range(4))
        assert run_here(spec).progress.records_in == 4
    assert len(seen(broker, f"a.{topic}")) == 8
    partition = {"cluster": "a", "topic": topic, "partition": 0}
    assert MirrorSourceConnector().alter_offsets({}, [(partition, {"offset": -1})]), "what is stored can be set"


def polled(task: MirrorSourceTask) -> SourceBatch | None:
    """Poll like the loop, with retries: a topic that was just created has no leader at once."""
    while True:
        with suppress(RetriableError):
            return task.poll()


def no_topic(_name: str, _partitions: int, _replicas: int, _config: Mapping[str, str]) -> None:
    """Create nothing."""


def test_a_reset_partition_does_not_move_another_to_its_end(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    topic = broker.create_topic(tmp_topic(), 2)
    more = {"herdmesh.offsets.missing": "reset", "topics.exclude": "", **LATEST}
    (spec,) = specs_of(broker, tmp_topic("mirror"), config_of(broker, topic, **more))
    task = MirrorSourceTask()
    lost = {"cluster": "a", "partition": 0, "topic": topic}
    task.start(
        spec.task_config,
        SourceTaskContext(
            "mirror", 0, 1, "1", lambda one: {"offset": 99} if one == lost else None, make_topic=no_topic
        ),
    )  # fmt: skip
    try:
        begun = polled(task)
        assert begun is not None
        assert (len(begun), begun.source_offset and begun.source_offset["offset"]) == (0, -1)
        write(broker, topic, range(6))
        found: Counter[int | None] = Counter()
        while found.total() < 6:
            batch = polled(task)
            found[batch.partition if batch is not None else None] += len(batch) if batch is not None else 0
        assert found[0] == found[1] == 3
    finally:
        task.stop()


def test_a_run_waits_for_an_unreachable_source(
    broker: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, name = broker.create_topic(tmp_topic(), 1), tmp_topic("mirror")
    write(broker, topic, range(5), partitions=1)
    (spec,) = specs_of(broker, name, config_of(broker, topic))
    monkeypatch.setattr(source_cluster, "CALL_TIMEOUT_S", 0.2)
    away = replace(spec, task_config={**spec.task_config, "source.cluster.bootstrap.servers": "127.0.0.1:1"})
    asked: list[int] = []

    def say(_progress: ProgressReport) -> list[Command]:
        asked.append(1)
        return [Stop()] if len(asked) > 3 else []

    assert run_here(away, Link(say)).reason is RunEnd.STOPPED
    with pytest.raises(RetriableError, match="the source cluster a"):
        MirrorSourceConnector().sign(away.task_config)
    monkeypatch.undo()
    assert run_here(spec).progress.records_in == 5


def test_a_topic_in_an_unknown_state_is_not_treated_as_deleted(
    broker: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    source = settings_of(config_of(broker, topic)).source
    topics = dict(broker.admin.list_topics(timeout=60).topics)
    told = SimpleNamespace(error=None, partitions={})

    def told_of(_self: object) -> dict[str, Any]:
        return {**topics, "told": told}

    monkeypatch.setattr(source_cluster.SourceCluster, "_topics", told_of)
    for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        told.error = KafkaError(code)
        assert source.partition_counts() == {name: len(one.partitions) for name, one in topics.items()}
    told.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(RetriableError, match="topic told"):
        source.partition_counts()


def test_the_ends_of_other_partitions_are_returned_when_a_topic_is_gone(
    broker: Kafka, tmp_topic: Callable[..., str]
) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    source = settings_of(config_of(broker, topic)).source
    assert source.ends([(topic, 0), (f"{topic}-gone", 0)]) == {(topic, 0): 0}


def test_a_mirror_is_rewound_by_record_timestamps_at_the_source(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    """To right before the first record that is not older; never
    forward, and never for missing partitions or another source's.
    """
    topic = broker.create_topic(tmp_topic(), 2)
    write(broker, topic, range(20))
    connector, config = MirrorSourceConnector(), config_of(broker, topic)

    def at(number: int, offset: int, cluster: str = "a") -> tuple[dict[str, Any], dict[str, Any]]:
        return {"cluster": cluster, "partition": number, "topic": topic}, {"offset": offset}

    committed = [at(0, 9), at(1, 9), at(0, 9, "other")]
    found = connector.offsets_at(config, YESTERDAY_MS + 7 * 997, committed)
    assert found == [at(0, 3), at(1, 2)], "records 8 and 7 come again, the fifth and the fourth of their partitions"
    assert connector.alter_offsets(config, found or [])
    assert connector.offsets_at(config, YESTERDAY_MS + 7 * 997, [at(0, 3), at(1, 1)]) == []
    assert connector.offsets_at(config, YESTERDAY_MS + 19 * 997, committed) == [at(1, 8)]
    assert connector.offsets_at(config, 0, committed) == [at(0, -1), at(1, -1)]


def test_topic_discovery_survives_any_exception(
    broker: Kafka, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic(tmp_topic(), 1)
    asked = threading.Event()
    connector = MirrorSourceConnector()
    connector.context = ConnectorContext(asked.set)
    raised = iter((RuntimeError("odd"), RetriableError("away")))
    counts = source_cluster.SourceCluster.partition_counts

    def odd(self: source_cluster.SourceCluster) -> dict[str, int]:
        if (error := next(raised, None)) is not None:
            raise error
        return counts(self)

    connector.start(config_of(broker, f"{topic}.*", **{"refresh.topics.interval.seconds": "1"}))
    monkeypatch.setattr(source_cluster.SourceCluster, "partition_counts", odd)
    broker.create_topic(f"{topic}-more", 1)
    try:
        assert asked.wait(60)
    finally:
        connector.stop()


def test_copies_follow_the_settings_of_their_topics(broker: Kafka, tmp_topic: Callable[..., str]) -> None:
    """A setting that is changed at the source is changed for
    the copy, and one that is removed there is removed.
    """
    topic = broker.create_topic(tmp_topic(), 1, **{"retention.ms": "99999999999", "segment.ms": "77777777"})
    config = config_of(broker, topic, **{"sync.topic.configs.interval.seconds": "1"})
    (spec,) = specs_of(broker, tmp_topic("mirror"), config)
    run_here(spec)
    copy = f"a.{topic}"
    assert broker.topic_config(copy, "segment.ms") == "77777777"
    broker.set_topic_config(topic, {"retention.ms": "88888888888", "segment.ms": None, "min.insync.replicas": "1"})
    broker.set_topic_config(copy, {"min.insync.replicas": "3"})  # excluded, as by MirrorMaker
    connector = MirrorSourceConnector()
    connector.context = ConnectorContext(lambda: None)
    connector.start(config)
    try:
        deadline_s = time.monotonic() + 60
        while broker.topic_config(copy, "retention.ms") != "88888888888":
            assert time.monotonic() < deadline_s
    finally:
        connector.stop()
    assert broker.topic_config(copy, "segment.ms") == broker.topic_config(topic, "segment.ms") != "77777777"
    assert broker.topic_config(copy, "min.insync.replicas") == "3"
