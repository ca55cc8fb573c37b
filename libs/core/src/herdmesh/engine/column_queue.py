"""librdkafka's own call that queues a whole batch, which confluent-kafka does not offer (ADR 0013).

Owns where that call is found, the rows it reads, and what it says of each. Which records may go this way, and what a
refusal means, is `producing`'s.

confluent-kafka's `produce` takes one record, holds the interpreter's lock and costs twice as much; its `produce_batch`
makes a dict of each record. The producer's handle is private to it: the first field of its object. So this is done with
the versions that were tried (`_TRIED`), by tests that send records, and with no other.

Invariant: memory is read through the handle of an open producer of a tried version, or not at all; librdkafka has its
own copy of each record when a call returns.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
from confluent_kafka import KafkaError, Producer

from herdmesh.connect.packed import PackedBytes
from herdmesh.engine.spread import Spread

_TRIED = frozenset(("2.16.1",))
"""A version belongs here when the engine's tests of queueing pass with it, on every platform it is used on."""
_HANDLE_AT = object.__basicsize__
"""Where its object has librdkafka's handle: behind what every Python object begins with."""
ANY_PARTITION = -1
"""What the client takes for a record without one."""
_COPY = 2
"""RD_KAFKA_MSG_F_COPY."""
_POINTER_BYTES = 8
_ROW = np.dtype(
    {
        "names": ["err", "rkt", "partition", "payload", "len", "key", "key_len", "offset", "private"],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
"""rd_kafka_message_t, of librdkafka's public header."""

_log = logging.getLogger(__name__)

Columns = Sequence[bytes | None]


class ColumnQueue:
    """Of one producer. Used from the thread that uses the producer.

    A record queued here has no delivery report, and neither a time of its own nor headers.
    """

    def __init__(self, producer: Producer, library: Any) -> None:
        """`library`: as `library()`."""
        self.spread = Spread(producer)
        self._producer = producer
        self._library = library

    def put(self, topic: str, partition: int, values: Columns, keys: Columns) -> list[tuple[int, KafkaError]]:
        """Queue records in order; the places of those that were not, ascending, and why.

        _QUEUE_FULL is also every record's after the first that found no room. `keys`: empty = none has one.

        Raises:
            RuntimeError: the producer was closed, as its own calls do.
            TypeError: a value or a key that is no bytes.
        """
        handle = ctypes.c_void_p.from_address(id(self._producer) + _HANDLE_AT).value
        if not handle:
            raise RuntimeError("Producer has been closed")
        rows = np.zeros(len(values), _ROW)
        held = [_point(rows, "payload", "len", values)]
        if keys:
            held.append(_point(rows, "key", "key_len", keys))
        kept = self._library.rd_kafka_topic_new(handle, topic.encode(), None)
        if not kept:
            error = _refused(self._library.rd_kafka_last_error())
            return [(place, error) for place in range(len(values))]
        try:
            queued = self._library.rd_kafka_produce_batch(kept, partition, _COPY, rows.ctypes.data, len(rows))
        finally:
            self._library.rd_kafka_topic_destroy(kept)
        del held
        if queued == len(rows):
            return []
        codes = rows["err"]
        return [(int(place), _refused(int(codes[place]))) for place in np.flatnonzero(codes)]


def column_queue(producer: Producer) -> ColumnQueue | None:
    """None with a client that it was not tried with: every record is queued by a call of its own then."""
    found = library()
    return None if found is None else ColumnQueue(producer, found)


def _refused(code: int) -> KafkaError:
    """In the words of the producer's own calls."""
    return KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}")


def _point(rows: np.ndarray[Any, Any], start: str, length: str, column: Columns) -> bytes:
    """Have the rows name the bytes of a column, which are in what is returned."""
    if isinstance(column, PackedBytes):
        rows[start] = column.starts + np.uint64(_address(column.data))
        rows[length] = column.lengths
        return column.data
    try:
        joined = b"".join(column)  # pyright: ignore[reportArgumentType] - a None says so itself
    except TypeError:
        texts = [b"" if one is None else one for one in column]
        present = np.fromiter((one is not None for one in column), np.bool_, len(column))
        joined = b"".join(texts)
    else:
        texts, present = column, None
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))  # pyright: ignore[reportArgumentType]
    if int(lengths.sum()) != len(joined):
        raise TypeError("a record's key or value is no bytes")  # whose items are larger: they would be cut in pieces
    starts = np.cumsum(lengths)
    starts -= lengths
    starts += np.uint64(_address(joined))
    if present is not None:
        starts[~present] = 0
    rows[start] = starts
    rows[length] = lengths
    return joined


def _address(data: bytes) -> int:
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def library() -> Any:
    """librdkafka as confluent-kafka has it; None where that is not one that was tried."""
    found = str(confluent_kafka.__version__)
    if found not in _TRIED or sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _POINTER_BYTES:
        _log.info("records are queued one by one: batches were not tried with confluent-kafka %s", found)
        return None
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    files = list(folder.glob("librdkafka*"))
    if len(files) != 1:
        _log.info("records are queued one by one: confluent-kafka %s has no librdkafka of its own", found)
        return None
    try:
        loaded = ctypes.CDLL(str(files[0]), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:  # it is not the one that the client has loaded
        _log.info("records are queued one by one: confluent-kafka %s has another librdkafka than its own", found)
        return None
    loaded.rd_kafka_topic_new.restype = ctypes.c_void_p
    loaded.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    loaded.rd_kafka_topic_destroy.argtypes = [ctypes.c_void_p]
    loaded.rd_kafka_topic_destroy.restype = None
    loaded.rd_kafka_last_error.argtypes = []
    loaded.rd_kafka_produce_batch.argtypes = [
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
    ]  # fmt: skip
    return loaded
