"""The mirror on the real mesh, from a Kafka cluster that the mesh's own knows nothing of, with Java's own JSON: a new
topic of the source gets to a task by itself, so does a group that is created later than its mirror, and its
consumers continue at the target; heartbeats of the source are seen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.connectors.mirror.heartbeat.task import Heartbeat
from herdmesh.devstack.broker import QUICK_JVM, Broker
from libs.connectors.tests.mirror.test_mirror import specs_of
from libs.core.tests.engine.harness import Kafka, run_here
from tests.e2e.test_offsets import Offsets
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A cluster that no service of the mesh knows; only connectors' configs name it."""
    broker = Broker(tmp_path_factory.mktemp("source"), port=0, jvm=QUICK_JVM)
    asyncio.run(broker.start())
    try:
        yield Kafka(broker.bootstrap)
    finally:
        asyncio.run(broker.stop())


async def test_a_new_topic_of_the_source_is_copied_too(
    mesh: Mesh, source: Kafka, tmp_topic: Callable[..., str]
) -> None:
    kafka, first, second = Kafka(mesh.bootstrap), tmp_topic("first"), tmp_topic("second")
    source.create_topic(first, 1)
    await asyncio.to_thread(source.produce_ids, first, range(100), partition=0)
    name = f"mirror-{first}"
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "source.cluster.alias": "src",
        "target.cluster.alias": "dst",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": mesh.bootstrap,
        "topics": f"{first},{second}",
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "heartbeats.replication.enabled": "false",  # covered by another test: they would need a second task
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    await mesh.apply(name, config)
    await mesh.until_running(name, 1)
    source.create_topic(second, 1)
    await asyncio.to_thread(source.produce_ids, second, range(50), partition=0)
    await mesh.until_running(name, 2)
    for topic, count in ((first, 100), (second, 50)):
        copied = await asyncio.to_thread(mesh.consume_values, f"src.{topic}", count)
        assert sorted(copied) == sorted(value or b"" for _, value in source.records(topic))
    # A source with offsets by time is rewound: all records that are not older are copied again.
    await mesh.lifecycle("StopConnector", name)
    places = [{"cluster": "src", "partition": 0, "topic": topic} for topic in sorted((first, second))]
    assert await Offsets(mesh, name).rewind(0) == [(place, {"offset": -1}) for place in places]
    await mesh.lifecycle("ResumeConnector", name)
    for topic, count in ((first, 200), (second, 100)):
        await asyncio.to_thread(mesh.consume_values, f"src.{topic}", count)
    await mesh.delete(name)
    assert first not in kafka.admin.list_topics(timeout=10).topics, "the target has the copy only"


async def test_a_group_continues_at_the_target(mesh: Mesh, source: Kafka, tmp_topic: Callable[..., str]) -> None:
    """Offsets of the two clusters differ: the source's first 40 records are deleted before there is a mirror."""
    kafka, topic = Kafka(mesh.bootstrap), tmp_topic("group")
    source.create_topic(topic, 1)
    await asyncio.to_thread(source.produce_ids, topic, range(140), partition=0)
    source.admin.delete_records([TopicPartition(topic, 0, 40)])[TopicPartition(topic, 0, 40)].result(20)
    config = {
        "source.cluster.alias": f"{topic}-src",
        "target.cluster.alias": f"{topic}-dst",
        "source.cluster.bootstrap.servers": source.bootstrap,
        "target.cluster.bootstrap.servers": mesh.bootstrap,
        "topics": topic,
    }
    mirror = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }
    checkpoints = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "groups": f"{topic}-.*",
        "checkpoints.topic.replication.factor": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    beats = {"source.cluster.alias": f"{topic}-src", "target.cluster.alias": f"{topic}-dst"}
    await asyncio.to_thread(_beat, source, f"beats-{topic}", beats)
    await mesh.apply(f"checkpoints-{topic}", {**config, **checkpoints})
    await mesh.apply(f"mirror-{topic}", {**config, **mirror})
    copy, end, half = f"{topic}-src.{topic}", f"{topic}-end", f"{topic}-half"
    await asyncio.to_thread(_commit, source.bootstrap, end, TopicPartition(topic, 0, 140))
    await asyncio.to_thread(_commit, source.bootstrap, half, TopicPartition(topic, 0, 90))
    found: list[list[int]] = []
    while found != [[100], [1]]:  # right behind the last record, and behind the last sync before record 90
        found = [await asyncio.to_thread(kafka.committed, group, (copy, 0)) for group in (end, half)]
    await asyncio.to_thread(source.produce_ids, topic, range(140, 150), partition=0)
    assert await asyncio.to_thread(_ids_of, mesh.bootstrap, end, copy, 10) == list(range(140, 150))
    assert await asyncio.to_thread(_ids_of, mesh.bootstrap, half, copy, 109) == list(range(41, 150)), "skipped"
    (seen,) = {one.key() for one in await asyncio.to_thread(kafka.messages, f"{topic}-src.heartbeats", 1)}
    assert seen == Heartbeat(f"{topic}-src", f"{topic}-dst", 0).key()
    for name in (f"mirror-{topic}", f"checkpoints-{topic}"):
        await mesh.delete(name)
    # other mirrors of this broker would copy them
    await asyncio.to_thread(kafka.admin.delete_topics([f"{topic}-src.heartbeats"])[f"{topic}-src.heartbeats"].result)


def _beat(source: Kafka, name: str, aliases: dict[str, str]) -> None:
    """One run of the heartbeat connector on the source's side."""
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "heartbeats.topic.replication.factor": "1",
        **aliases,
    }
    (spec,) = specs_of(source, name, config)
    run_here(spec)


def _commit(bootstrap: str, group: str, place: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def _ids_of(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    """The first records that a consumer of the group reads there. Subscribed, like a consumer that moves to the
    target.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    try:
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < count:
            taken = consumer.consume(count - len(found), 1)
            assert not [one.error() for one in taken if one.error() is not None]
            found += [json.loads(one.value() or b"")["id"] for one in taken]
        return found
    finally:
        consumer.close()
