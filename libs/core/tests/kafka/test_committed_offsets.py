"""Metadata of committed offsets, read by its length, whichever client committed it and whatever the heap holds."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from herdmesh.kafka import librdkafka, transaction_offsets
from herdmesh.kafka.committed_offsets import committed_offsets
from herdmesh.kafka.librdkafka import Partition
from herdmesh.kafka.transaction_offsets import send_offsets
from libs.core.tests.engine.harness import Kafka

pytestmark = pytest.mark.kafka
_MANIFEST = json.dumps({"herdmesh": 1, "topic": "x" * 22}, separators=(",", ":"))
#: Number of chunks of one size that a thread's allocator cache keeps.
_KEPT = 64


def _leave_garbage(size: int) -> None:
    """Free chunks of the size that the copy of the metadata will get, filled with bytes that are not UTF-8."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.malloc_usable_size.restype, libc.malloc_usable_size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    made = [libc.malloc(size) for _ in range(_KEPT)]
    for one in made:
        ctypes.memset(one, 0x8D, libc.malloc_usable_size(one))
    for one in made:
        libc.free(one)


@pytest.mark.parametrize("name", ["plain", "größe"])
@pytest.mark.parametrize("text", [_MANIFEST, "", "é" * 20])
def test_committed_metadata_is_read_back(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], name: str, text: str
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic("committed"), 2)
    group = f"{topic}-{name}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    send_offsets(producer, [TopicPartition(topic, 0, 7, text)], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    for _ in range(20):
        _leave_garbage(len(text.encode()))
        first, second = committed_offsets(consumer, [(topic, 0), (topic, 1)], 30)
        assert (first.topic, first.partition, first.offset, first.metadata) == (topic, 0, 7, text)
        assert (second.partition, second.offset, second.metadata) == (1, None, "")
    consumer.close()


def test_metadata_that_is_not_utf_8_does_not_fail_the_run(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic("committed"), 1)
    group = f"{topic}-größe"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group})
    made = transaction_offsets._partition  # pyright: ignore[reportPrivateUsage] - no client commits such bytes

    def as_another_program(one: TopicPartition, _metadata: bytes) -> Partition:
        return made(one, b"a\xffb")

    monkeypatch.setattr(transaction_offsets, "_partition", as_another_program)
    producer.init_transactions(30)
    producer.begin_transaction()
    send_offsets(producer, [TopicPartition(topic, 0, 7, "a")], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    (found,) = committed_offsets(consumer, [(topic, 0)], 30)
    assert (found.offset, found.metadata) == (7, "a\N{REPLACEMENT CHARACTER}b")
    consumer.close()


def test_a_closed_consumer_is_not_read(kafka_bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "closed"})
    consumer.close()
    assert librdkafka.librdkafka() is not None
    with pytest.raises(RuntimeError, match="closed"):
        committed_offsets(consumer, [("none", 0)], 1)
