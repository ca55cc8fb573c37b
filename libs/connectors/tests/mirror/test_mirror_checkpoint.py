"""Tests of the mirror's offset syncs and the checkpoint connector with a real broker as source and target: at the
target a group skips no unread record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi.connector import ConnectorContext
from herdmesh.connectors.mirror.checkpoint.connector import MirrorCheckpointConnector
from herdmesh.connectors.mirror.checkpoint.settings import settings_of, warnings_of
from herdmesh.connectors.mirror.offset_translation import Checkpoint, OffsetSync, read_checkpoint, read_sync
from herdmesh.engine import RunSpec
from libs.connectors.tests.mirror.test_mirror import specs_of
from libs.core.tests.engine.harness import Kafka, run_here

BASE = {"source.cluster.alias": "a", "target.cluster.alias": "b", "source.cluster.bootstrap.servers": "h:1"}


@pytest.fixture(scope="module")
def broker(kafka_bootstrap: str) -> Kafka:
    return Kafka(kafka_bootstrap)


class World:
    """A topic of the source, its mirror, and groups; each world has its own aliases and MirrorMaker topics."""

    def __init__(self, broker: Kafka, name: str) -> None:
        self.broker, self.name = broker, name
        self.source, self.target = f"{name}-a", f"{name}-b"
        self.topic = broker.create_topic(name, 1)
        self.copy = f"{self.source}.{name}"
        self.at: list[int] = []

    def write(self, values: range) -> None:
        """Write in transactions, so that offsets of the source have gaps."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"{self.name}-writer"})
        producer.init_transactions()
        for value in values:
            producer.begin_transaction()
            producer.produce(self.topic, b"%d" % value, partition=0, on_delivery=self._wrote)
            producer.commit_transaction()

    def _wrote(self, _error: object, message: Any) -> None:
        self.at.append(message.offset())

    def config(self, kind: str, **more: str) -> dict[str, str]:
        return {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
            "source.cluster.alias": self.source,
            "target.cluster.alias": self.target,
            "source.cluster.bootstrap.servers": self.broker.bootstrap,
            "target.cluster.bootstrap.servers": self.broker.bootstrap,
            "topics": self.topic,
            **more,
        }

    def mirror(self, **more: str) -> None:
        ones = {"replication.factor": "1", "offset-syncs.topic.replication.factor": "1"}
        (spec,) = specs_of(self.broker, f"{self.name}-m", self.config("Source", **{**ones, **more}))
        run_here(spec)

    def checkpoint_spec(self, **more: str) -> RunSpec:
        fixed = {
            "groups": f"{self.name}-g.*",
            "checkpoints.topic.replication.factor": "1",
            "sync.group.offsets.enabled": "true",
        }
        (spec,) = specs_of(self.broker, f"{self.name}-c", self.config("Checkpoint", **{**fixed, **more}))
        return spec

    def commit(self, group: str, topic: str, offset: int, metadata: str = "") -> None:
        with self.consumer(group) as consumer:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)

    @contextmanager
    def consumer(self, group: str) -> Generator[Consumer]:
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
             "enable.auto.commit": False}
        )  # fmt: skip
        try:
            yield consumer
        finally:
            consumer.close()

    def rest_of(self, group: str, count: int) -> list[bytes]:
        """Return the first records that a consumer of the group reads at the target."""
        with self.consumer(group) as consumer:
            consumer.subscribe([self.copy])
            found: list[bytes] = []
            while len(found) < count:
                found += [one.value() or b"" for one in consumer.consume(count - len(found), 1) if one.error() is None]
            return found

    def syncs(self, at: str) -> list[OffsetSync]:
        topic = f"mm2-offset-syncs.{at}.internal"
        return [read_sync(key or b"", value or b"") for key, value in self.broker.records(topic)]

    def checkpoints(self) -> list[Checkpoint]:
        topic = f"{self.source}.checkpoints.internal"
        return [read_checkpoint(key or b"", value or b"") for key, value in self.broker.records(topic)]


@pytest.fixture
def world(broker: Kafka, tmp_topic: Callable[..., str]) -> World:
    return World(broker, tmp_topic())


def ids(values: range) -> list[bytes]:
    return [b"%d" % value for value in values]


def test_consumers_continue_at_the_target_from_their_source_position(world: World) -> None:
    """Failover: a group that committed at a sync reads no record twice, and misses none."""
    world.write(range(20))
    world.mirror()
    half, end, before = (f"{world.name}-g-{name}" for name in ("half", "end", "before"))
    world.write(range(20, 30))
    world.mirror()
    # For 20 records with gaps between them only the first record's latest possible offset is known.
    assert [(one.upstream, one.downstream) for one in world.syncs(world.target)] == [
        (world.at[19] - 19, 0), (world.at[19], 19), (world.at[29] - 9, 21), (world.at[29], 30),
    ]  # fmt: skip
    world.commit(half, world.topic, world.at[20], "beside")  # behind record 19
    world.commit(end, world.topic, world.at[29] + 2)  # behind the last marker
    world.commit(before, world.topic, world.at[5])  # before all known syncs
    spec = world.checkpoint_spec()
    assert run_here(spec).progress.records_in == 2
    told = {one.group: one for one in world.checkpoints()}
    assert told == {
        half: Checkpoint(half, (world.copy, 0), world.at[20], 20, "beside"),
        end: Checkpoint(end, (world.copy, 0), world.at[29] + 2, 31),  # a marker is before the ten
    }
    assert world.rest_of(half, 10) == ids(range(20, 30))
    assert world.broker.committed(end, (world.copy, 0)) == [31]
    assert world.broker.committed(before, (world.copy, 0)) == [-1001]
    again = run_here(replace(spec, run_id="again"))
    assert again.progress.records_in == 0, "a checkpoint is told once"
    assert 0 < again.wake_after_ms <= 60_000
    world.write(range(30, 33))
    world.mirror()
    world.commit(end, world.topic, world.at[31])
    world.commit(half, world.topic, world.at[0])  # moved back, to before all known syncs
    assert run_here(replace(spec, run_id="more")).progress.records_in == 1
    assert world.broker.committed(end, (world.copy, 0)) == [32], "record 30 once more"
    world.commit(end, world.topic, world.at[32] + 1)
    assert run_here(replace(spec, run_id="most")).progress.records_in == 1
    assert world.broker.committed(end, (world.copy, 0)) == [35]
    assert world.broker.committed(half, (world.copy, 0)) == [20], "never set back"


def test_offset_syncs_can_be_kept_at_the_target(world: World) -> None:
    """In addition, a group with active consumers at the target is not moved until they leave."""
    where = {"offset-syncs.topic.location": "target"}
    world.write(range(3))
    world.mirror(**where)
    assert [one.downstream for one in world.syncs(world.source)] == [0, 2]
    group = f"{world.name}-g"
    world.commit(group, world.topic, world.at[2] + 1)
    spec = world.checkpoint_spec(**where)
    with world.consumer(group) as consumer:
        consumer.subscribe([world.topic])
        while world.broker.admin.describe_consumer_groups([group])[group].result().state != ConsumerGroupState.STABLE:
            consumer.poll(0.05)
        assert run_here(spec).progress.records_in == 1
        assert world.broker.committed(group, (world.copy, 0)) == [-1001]
    run_here(replace(spec, run_id="later"))
    assert world.broker.committed(group, (world.copy, 0)) == [3]


def test_copying_continues_when_no_syncs_can_be_written(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write(range(3))
    world.mirror(**{"offset-syncs.topic.replication.factor": "2"})
    assert len(world.broker.records(world.copy)) == 3
    assert "offset-syncs.topic.replication.factor" in caplog.text


def test_new_groups_are_found(world: World) -> None:
    asked = threading.Event()
    connector = MirrorCheckpointConnector()
    connector.context = ConnectorContext(asked.set)
    config = world.config("Checkpoint", **{"groups": f"{world.name}-g.*", "refresh.groups.interval.seconds": "1"})
    connector.start(config)
    assert connector.task_configs(3) == []
    try:
        for number in range(3):
            world.commit(f"{world.name}-g{number}", world.topic, 0)
        world.commit(f"{world.name}-other", world.topic, 0)
        assert asked.wait(60)
    finally:
        connector.stop()
    connector = MirrorCheckpointConnector()
    connector.start({**config, "refresh.groups.enabled": "false"})
    assigned = [task["task.assigned.groups"] for task in connector.task_configs(2)]
    assert assigned == [f"{world.name}-g0,{world.name}-g2", f"{world.name}-g1"]


# --- config


@pytest.mark.parametrize(
    ("more", "field", "text"),
    [
        ({"emit.checkpoints.enabled": "false"}, "emit.checkpoints.enabled", "can't run with"),
        ({"emit.offset-syncs.enabled": "false"}, "emit.offset-syncs.enabled", "can't run without offset syncs"),
        ({"sync.group.offsets.enabled": "true"}, "target.cluster.bootstrap.servers", "is needed"),
        ({"offset-syncs.topic.location": "target"}, "target.cluster.bootstrap.servers", "is needed"),
        ({"offset-syncs.topic.location": "moon"}, "offset-syncs.topic.location", "source, target"),
        ({"groups": "a["}, "groups", "Invalid regex"),
        ({"topics.exclude": "a["}, "topics.exclude", "Invalid regex"),
        ({"emit.checkpoints.interval.seconds": "0"}, "emit.checkpoints.interval.seconds", "at least 1"),
        ({"refresh.groups.interval.seconds": "0"}, "refresh.groups.interval.seconds", "at least 1"),
        ({"source.cluster.alias": ""}, "source.cluster.alias", "non-empty"),
        ({"source.admin.security.protocol": "TLS"}, "source.admin.security.protocol", "must be one of"),
    ],
)
def test_invalid_configs_are_refused_by_key(more: dict[str, str], field: str, text: str) -> None:
    (error,) = MirrorCheckpointConnector().validate({**BASE, **more})
    assert error.field == field
    assert text in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target.cluster.bootstrap.servers", "h:2"),
        ("group.filter.class", "com.example.Mine"),
        ("consumer.poll.timeout.ms", "5"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("refresh.group.enabled", "true"),
        ("target.admin.client.id", "x"),
    ],
)
def test_every_key_without_effect_is_named_once(key: str, value: str) -> None:
    (warning,) = warnings_of({**BASE, "name": "c", key: value})
    assert warning.field == key
    assert not warnings_of({**BASE, "name": "c", "topics": "t", "source.cluster.client.id": "x"})


def test_groups_and_their_topics_are_selected_as_in_java() -> None:
    settings = settings_of({**BASE, "groups": "one,t.*", "groups.exclude": "two", "topics": "orders"})
    assert [one for one in ("one", "one2", "two", "three") if settings.has_group(one)] == ["one", "three"]
    assert settings.selection.has("orders")
    assert not settings.selection.has("others")
    assert [one for one in ("connect-x", "console-consumer-1", "__x", "x") if settings_of(BASE).has_group(one)] == ["x"]
    assert settings_of({**BASE, "replication.policy.separator": "_"}).naming.checkpoints() == "a_checkpoints_internal"
    dots = {"replication.policy.separator": "_", "replication.policy.internal.topic.separator.enabled": "false"}
    naming = settings_of({**BASE, **dots}).naming
    assert (naming.checkpoints(), naming.offset_syncs(at_target=False), naming.offset_syncs(at_target=True)) == (
        "a.checkpoints.internal", "mm2-offset-syncs.b.internal", "mm2-offset-syncs.a.internal",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"offset": 0}),
        ({"group": "g", "topic": "t", "partition": -1}, {"offset": 0}),
        ({"group": "g", "partition": 0}, {"offset": 0}),
        ({"group": "g", "topic": "t", "partition": 0}, {"offset": 1}),
    ],
)
def test_offsets_of_other_connectors_are_refused(
    partition: dict[str, object] | None, offset: dict[str, object]
) -> None:
    connector = MirrorCheckpointConnector()
    with pytest.raises(ConfigError):
        connector.alter_offsets(BASE, [(partition, offset)])
    assert connector.alter_offsets(BASE, [(partition, None)])
