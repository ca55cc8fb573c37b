"""librdkafka's own call that forgets single offsets of a group, which confluent-kafka does not offer (ADR 0014).

Owns the call and what it says. Whether offsets may be forgotten is for who calls.

It is made as `column_queue`'s is, with the versions tried there and by tests that forget offsets: the admin client's
handle is the first field of its object, as the producer's is.

Invariant: memory is read through the handle of an open client of a tried version, or not at all; what librdkafka hands
out is copied before it is given back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.connector import PartitionId
from herdmesh.engine import column_queue

_ANY_OPERATION = 0
"""RD_KAFKA_ADMIN_OP_ANY."""
_SPARE_MS = 5_000
"""The client answers by itself once its time is over; a wait that is longer says that it does not."""
_TEXT_BYTES = 512
_HANDLE_AT = object.__basicsize__


class _Partition(ctypes.Structure):
    """rd_kafka_topic_partition_t, of librdkafka's public header."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class _Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("cnt", ctypes.c_int), ("size", ctypes.c_int), ("elems", ctypes.POINTER(_Partition)))


def is_possible() -> bool:
    """False with a client that it was not tried with."""
    return _library() is not None


def forget(
    admin: AdminClient, group: str, partitions: Iterable[PartitionId], timeout_s: float
) -> dict[PartitionId, KafkaError]:
    """Forget the offsets of these partitions in a group without members: one request, and one write of the broker's.

    Returns:
        The partitions that were refused, and why; all others' offsets are forgotten.

    Raises:
        KafkaException: of the request as a whole.
        RuntimeError: there is no such call (`is_possible`), or the client is closed.
    """
    library = _library()
    handle = ctypes.c_void_p.from_address(id(admin) + _HANDLE_AT).value
    if library is None or not handle:
        raise RuntimeError("the client is closed, or is none of those that can forget single offsets")
    request = _request(library, group, sorted(partitions))
    options = library.rd_kafka_AdminOptions_new(handle, _ANY_OPERATION)
    queue = library.rd_kafka_queue_new(handle)
    event = None
    try:
        timeout_ms, text = int(timeout_s * 1000), ctypes.create_string_buffer(_TEXT_BYTES)
        refused = library.rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text, _TEXT_BYTES)
        if refused:
            raise KafkaException(KafkaError(refused, text.value.decode()))
        library.rd_kafka_DeleteConsumerGroupOffsets(handle, ctypes.byref(ctypes.c_void_p(request)), 1, options, queue)
        event = library.rd_kafka_queue_poll(queue, timeout_ms + _SPARE_MS)
        refusals = _refusals(library, event)
    finally:
        if event is not None:
            library.rd_kafka_event_destroy(event)
        library.rd_kafka_queue_destroy(queue)
        library.rd_kafka_AdminOptions_destroy(options)
        library.rd_kafka_DeleteConsumerGroupOffsets_destroy(request)
    return refusals


def _request(library: Any, group: str, partitions: list[PartitionId]) -> int:
    """librdkafka has copies of all that it names."""
    listed = library.rd_kafka_topic_partition_list_new(len(partitions))
    try:
        for topic, number in partitions:
            library.rd_kafka_topic_partition_list_add(listed, topic.encode(), number)
        return library.rd_kafka_DeleteConsumerGroupOffsets_new(group.encode(), listed)
    finally:
        library.rd_kafka_topic_partition_list_destroy(listed)


def _refusals(library: Any, event: int | None) -> dict[PartitionId, KafkaError]:
    """What the answer says of each partition. Raises KafkaException for what it says of the request or the group."""
    if event is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client does not say what became of the request"))
    code = library.rd_kafka_event_error(event)
    if code:
        raise KafkaException(KafkaError(code, (library.rd_kafka_event_error_string(event) or b"").decode()))
    found: dict[PartitionId, KafkaError] = {}
    result = library.rd_kafka_event_DeleteConsumerGroupOffsets_result(event)
    count = ctypes.c_size_t()
    groups = library.rd_kafka_DeleteConsumerGroupOffsets_result_groups(result, ctypes.byref(count))
    for of_group in groups[: count.value]:
        failed = library.rd_kafka_group_result_error(of_group)
        if failed:
            text = library.rd_kafka_error_string(failed) or b""
            raise KafkaException(KafkaError(library.rd_kafka_error_code(failed), text.decode()))
        listed = library.rd_kafka_group_result_partitions(of_group)
        for one in listed.contents.elems[: listed.contents.cnt] if listed else ():
            if one.err:
                topic, number = one.topic.decode(), one.partition
                found[topic, number] = KafkaError(one.err, f"{topic}-{number}: {KafkaError(one.err).str()}")
    return found


@cache
def _library() -> Any:
    loaded = column_queue.library()
    if loaded is None:
        return None
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    of = "DeleteConsumerGroupOffsets"
    for name, result, arguments in (
        ("topic_partition_list_new", pointer, [number]),
        ("topic_partition_list_add", pointer, [pointer, text, ctypes.c_int32]),
        ("topic_partition_list_destroy", None, [pointer]),
        (f"{of}_new", pointer, [text, pointer]),
        (f"{of}_destroy", None, [pointer]),
        (of, None, [pointer, pointer, size, pointer, pointer]),
        (f"event_{of}_result", pointer, [pointer]),
        (f"{of}_result_groups", ctypes.POINTER(pointer), [pointer, pointer]),
        ("AdminOptions_new", pointer, [pointer, number]),
        ("AdminOptions_set_request_timeout", number, [pointer, number, text, size]),
        ("AdminOptions_destroy", None, [pointer]),
        ("queue_new", pointer, [pointer]),
        ("queue_poll", pointer, [pointer, number]),
        ("queue_destroy", None, [pointer]),
        ("event_error", number, [pointer]),
        ("event_error_string", text, [pointer]),
        ("event_destroy", None, [pointer]),
        ("group_result_error", pointer, [pointer]),
        ("group_result_partitions", ctypes.POINTER(_Partitions), [pointer]),
        ("error_code", number, [pointer]),
        ("error_string", text, [pointer]),
    ):
        function = getattr(loaded, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded
