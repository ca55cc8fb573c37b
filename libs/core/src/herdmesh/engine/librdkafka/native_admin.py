"""Admin calls of librdkafka about groups that confluent-kafka does not offer, or not safely (ADR 0014).

Owns the call, the wait, and the result for each partition. `delete_group_offsets` and `group_offsets` define the calls
and their conditions; `kafka.groups` the timeouts.

They are made as `native` describes, only with supported versions; tests make each of them.

Invariant: memory is read only through the handle of an open client of a supported version; librdkafka's results are
copied before they are freed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import native
from herdmesh.kafka.committed_offsets import metadata_text
from herdmesh.kafka.groups import QUESTION_S
from herdmesh.kafka.librdkafka import Partitions

_ANY_OPERATION = 0
"""RD_KAFKA_ADMIN_OP_ANY."""
_SPARE_S = 5.0
"""The client itself fails a change after its timeout; a wait longer by this proves that it does not."""
_TEXT_BYTES = 512


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result for one partition of a group."""

    partition: PartitionId
    offset: int
    """Negative: no offset."""
    metadata: str
    error: KafkaError | None


def is_possible() -> bool:
    """False with an unsupported client."""
    return _library() is not None


def request_group_offsets(
    client: AdminClient | Consumer,
    call: str,
    group: str,
    partitions: Iterable[PartitionId] | None,
    timeout_s: float,
    *,
    is_question: bool,
) -> list[PartitionResult]:
    """Make the call for one group, and wait for its result. Blocks.

    Args:
        call: librdkafka's name: `ListConsumerGroupOffsets`, `DeleteConsumerGroupOffsets`.
        partitions: the partitions in the request; None = all.
        is_question: False = a change; call `kafka.groups.find_coordinator` right before.

    Raises:
        KafkaException: the error of the whole request, or of the group.
        RuntimeError: there is no such call (`is_possible`), or the client is closed.
    """
    library = _library()
    if library is None:
        raise RuntimeError("these calls were not tested with this version of the client")
    handle = native.handle(client)
    request = _request(library, call, group, partitions)
    options = library.rd_kafka_AdminOptions_new(handle, _ANY_OPERATION)
    queue = library.rd_kafka_queue_new(handle)
    event = None
    try:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        wait_s, request_s = (timeout_s, QUESTION_S) if is_question else (timeout_s + _SPARE_S, timeout_s)
        refused = library.rd_kafka_AdminOptions_set_request_timeout(options, int(request_s * 1000), text, _TEXT_BYTES)
        if refused:
            raise KafkaException(KafkaError(refused, text.value.decode()))
        _of(library, call)(handle, ctypes.byref(ctypes.c_void_p(request)), 1, options, queue)
        event = library.rd_kafka_queue_poll(queue, int(wait_s * 1000))
        return list(_told(library, call, event))
    finally:
        if event is not None:
            library.rd_kafka_event_destroy(event)
        library.rd_kafka_queue_destroy(queue)
        library.rd_kafka_AdminOptions_destroy(options)
        _of(library, call, "_destroy")(request)


def _of(library: Any, call: str, what: str = "") -> Any:
    return getattr(library, f"rd_kafka_{call}{what}")


def _request(library: Any, call: str, group: str, partitions: Iterable[PartitionId] | None) -> int:
    """Create the request; librdkafka copies everything it names."""
    if partitions is None:
        return _of(library, call, "_new")(group.encode(), None)
    named = list(partitions)
    listed = library.rd_kafka_topic_partition_list_new(len(named))
    try:
        for topic, number in named:
            library.rd_kafka_topic_partition_list_add(listed, topic.encode(), number)
        return _of(library, call, "_new")(group.encode(), listed)
    finally:
        library.rd_kafka_topic_partition_list_destroy(listed)


def _told(library: Any, call: str, event: int | None) -> Iterator[PartitionResult]:
    if event is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client does not report the result of the request"))
    code = library.rd_kafka_event_error(event)
    if code:
        raise KafkaException(KafkaError(code, (library.rd_kafka_event_error_string(event) or b"").decode()))
    result = getattr(library, f"rd_kafka_event_{call}_result")(event)
    count = ctypes.c_size_t()
    groups = _of(library, call, "_result_groups")(result, ctypes.byref(count))
    for of_group in groups[: count.value]:
        failed = library.rd_kafka_group_result_error(of_group)
        if failed:
            text = library.rd_kafka_error_string(failed) or b""
            raise KafkaException(KafkaError(library.rd_kafka_error_code(failed), text.decode()))
        listed = library.rd_kafka_group_result_partitions(of_group)
        for one in listed.contents.elems[: listed.contents.cnt] if listed else ():
            topic, number = one.topic.decode(), one.partition
            error = KafkaError(one.err, f"{topic}-{number}: {KafkaError(one.err).str()}") if one.err else None
            yield PartitionResult((topic, number), one.offset, metadata_text(one), error)


@cache
def _library() -> Any:
    loaded = native.librdkafka()
    if loaded is None:
        return None
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    calls = [
        signature
        for call in ("DeleteConsumerGroupOffsets", "ListConsumerGroupOffsets")
        for signature in (
            (f"{call}_new", pointer, [text, pointer]),
            (f"{call}_destroy", None, [pointer]),
            (call, None, [pointer, pointer, size, pointer, pointer]),
            (f"event_{call}_result", pointer, [pointer]),
            (f"{call}_result_groups", ctypes.POINTER(pointer), [pointer, pointer]),
        )
    ]
    for name, result, arguments in (
        *calls,
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
        ("group_result_partitions", ctypes.POINTER(Partitions), [pointer]),
        ("error_code", number, [pointer]),
        ("error_string", text, [pointer]),
    ):
        function = getattr(loaded, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded
