"""Committed offsets of a consumer's group, with their metadata read by its length.

`Consumer.committed` reads the metadata up to a zero byte. librdkafka's copy has none unless the committed text had one
(`rd_kafka_topic_partition_update`). So garbage from the heap may follow the text, or the call may fail with
UnicodeDecodeError (2.16.1; docs/internals/bugs.md). Texts that confluent-kafka commits end in a zero; those of Java's
clients and of `transaction_offsets` do not.

Owns the call and its result. Invariant: the metadata is the committed text, up to a zero byte if it has one; bytes that
are not UTF-8 are replaced, since another program may have written them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.kafka.librdkafka import Partitions, handle, librdkafka


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of one partition; `offset` is None when none is committed."""

    topic: str
    partition: int
    offset: int | None
    metadata: str


def committed_offsets(
    consumer: Consumer, partitions: Sequence[tuple[str, int]], timeout_s: float
) -> list[CommittedOffset]:
    """Like `Consumer.committed`. Blocks. With an unsupported confluent-kafka it is that call, with its bug.

    Raises:
        KafkaException: as the client does.
        RuntimeError: the consumer is closed.
    """
    library = librdkafka()
    if library is None:
        asked = [TopicPartition(topic, number) for topic, number in partitions]
        found = consumer.committed(asked, timeout=timeout_s)
        return [CommittedOffset(one.topic, one.partition, _known(one.offset), one.metadata or "") for one in found]
    listed = library.rd_kafka_topic_partition_list_new(len(partitions))
    try:
        for topic, number in partitions:
            library.rd_kafka_topic_partition_list_add(listed, topic.encode(), number)
        failed = library.rd_kafka_committed(handle(consumer), listed, int(timeout_s * 1000))
        if failed:
            raise KafkaException(KafkaError(failed))
        answered = ctypes.cast(listed, ctypes.POINTER(Partitions)).contents
        return [_copied(one) for one in answered.elems[: answered.cnt]]
    finally:
        library.rd_kafka_topic_partition_list_destroy(listed)


def metadata_text(one: Any) -> str:
    """The metadata of a `Partition` that librdkafka filled in."""
    data = ctypes.string_at(one.metadata, one.metadata_size).partition(b"\0")[0] if one.metadata else b""
    return data.decode("utf-8", "replace")


def _copied(one: Any) -> CommittedOffset:
    return CommittedOffset(one.topic.decode(), one.partition, _known(one.offset), metadata_text(one))


def _known(offset: int) -> int | None:
    return None if offset == OFFSET_INVALID else offset
