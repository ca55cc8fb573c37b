"""Offsets of a consumer group in a producer's transaction, for group names with any characters.

confluent-kafka passes the group from consumer to producer as bytes, and librdkafka's parser of these bytes rejects
names with anything but printable ASCII ("Input buffer group id is not safe"), which Kafka and Java accept. Such groups
are passed by librdkafka's own function instead. Owns that choice; the transaction is the caller's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from herdmesh.kafka.librdkafka import Partition, Partitions, handle, librdkafka

_BEFORE_GROUP = len(b"CGMDv2:") + 4
"""Bytes before the group name in `Consumer.consumer_group_metadata()`: the name of the format, and the generation."""


def send_offsets(producer: Producer, offsets: Sequence[TopicPartition], group: bytes, timeout_s: float) -> None:
    """Like `Producer.send_offsets_to_transaction`. Blocks.

    Args:
        group: `Consumer.consumer_group_metadata()` of a consumer that is not a member of the group; if the group's name
            is printable ASCII, the consumer may be a member.

    Raises KafkaException, whose error has the flag whether the call may be repeated.
    """
    name = group[_BEFORE_GROUP:].partition(b"\0")[0] if group else b""
    library = None if _is_printable(name) else librdkafka()
    if library is None:
        producer.send_offsets_to_transaction(list(offsets), group, timeout_s)
        return
    texts = [(one.metadata or "").encode() for one in offsets]
    wanted = (Partition * len(offsets))(*map(_partition, offsets, texts))
    listed = Partitions(len(offsets), len(offsets), ctypes.cast(wanted, ctypes.POINTER(Partition)))
    metadata = library.rd_kafka_consumer_group_metadata_new(name)
    try:
        failed = library.rd_kafka_send_offsets_to_transaction(
            handle(producer), ctypes.byref(listed), metadata, int(timeout_s * 1000)
        )
    finally:
        library.rd_kafka_consumer_group_metadata_destroy(metadata)
    if failed:
        error = KafkaError(
            library.rd_kafka_error_code(failed),
            (library.rd_kafka_error_string(failed) or b"").decode("utf-8", "replace"),
            bool(library.rd_kafka_error_is_fatal(failed)),
            bool(library.rd_kafka_error_is_retriable(failed)),
            bool(library.rd_kafka_error_txn_requires_abort(failed)),
        )
        library.rd_kafka_error_destroy(failed)
        raise KafkaException(error)


def _is_printable(name: bytes) -> bool:
    return all(0x20 <= byte < 0x7F for byte in name)


def _partition(one: TopicPartition, metadata: bytes) -> Partition:
    """A `Partition`; `metadata` must stay alive as long as the result."""
    text = ctypes.cast(ctypes.c_char_p(metadata), ctypes.c_void_p) if metadata else None
    return Partition(one.topic.encode(), one.partition, one.offset, text, len(metadata))
