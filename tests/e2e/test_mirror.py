"""The mirror on the real mesh, with Java's own JSON: a topic that appears at the source gets to a task by itself, and
so does a group that is there later than its mirror.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from libs.core.tests.engine.harness import Kafka
from tests.e2e.test_offsets import Offsets
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def test_a_new_topic_of_the_source_is_copied_too(mesh: Mesh, tmp_topic: Callable[..., str]) -> None:
    kafka, first, second = Kafka(mesh.bootstrap), tmp_topic("first"), tmp_topic("second")
    mesh.create_topic(first, partitions=1)
    await asyncio.to_thread(kafka.produce_ids, first, range(100), partition=0)
    name = f"mirror-{first}"
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "source.cluster.alias": "src",
        "target.cluster.alias": "dst",
        "source.cluster.bootstrap.servers": mesh.bootstrap,
        "target.cluster.bootstrap.servers": mesh.bootstrap,
        "topics": f"{first},{second}",
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    await mesh.apply(name, config)
    await mesh.until_running(name, 1)
    mesh.create_topic(second, partitions=1)
    await asyncio.to_thread(kafka.produce_ids, second, range(50), partition=0)
    await mesh.until_running(name, 2)
    for topic, count in ((first, 100), (second, 50)):
        copied = await asyncio.to_thread(mesh.consume_values, f"src.{topic}", count)
        assert sorted(copied) == sorted(value or b"" for _, value in kafka.records(topic))
    # A source that knows where it was is rewound to a time: all that is not older is copied again.
    await mesh.lifecycle("StopConnector", name)
    places = [{"cluster": "src", "partition": 0, "topic": topic} for topic in sorted((first, second))]
    assert await Offsets(mesh, name).rewind(0) == [(place, {"offset": -1}) for place in places]
    await mesh.lifecycle("ResumeConnector", name)
    for topic, count in ((first, 200), (second, 100)):
        await asyncio.to_thread(mesh.consume_values, f"src.{topic}", count)
    await mesh.delete(name)


async def test_a_group_goes_on_at_the_target(mesh: Mesh, tmp_topic: Callable[..., str]) -> None:
    kafka, topic = Kafka(mesh.bootstrap), tmp_topic("group")
    mesh.create_topic(topic, partitions=1)
    await asyncio.to_thread(kafka.produce_ids, topic, range(100), partition=0)
    config = {
        "source.cluster.alias": f"{topic}-src",
        "target.cluster.alias": f"{topic}-dst",
        "source.cluster.bootstrap.servers": mesh.bootstrap,
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
    await mesh.apply(f"checkpoints-{topic}", {**config, **checkpoints})
    await mesh.apply(f"mirror-{topic}", {**config, **mirror})
    group = f"{topic}-readers"
    await asyncio.to_thread(_commit, mesh.bootstrap, group, TopicPartition(topic, 0, 100))
    found = [-1001]
    while found != [100]:  # right behind the last record that was copied; each look takes a consumer's time
        found = await asyncio.to_thread(kafka.committed, group, (f"{topic}-src.{topic}", 0))
    for name in (f"mirror-{topic}", f"checkpoints-{topic}"):
        await mesh.delete(name)


def _commit(bootstrap: str, group: str, place: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
