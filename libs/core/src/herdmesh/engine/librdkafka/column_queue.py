"""Queue call for a whole batch of records, which confluent-kafka does not offer (ADR 0013, 0016).

Owns the rows that such a call reads, and the error of each. `producing` decides which records may be queued this way,
and handles refusals; `native` accesses librdkafka.

confluent-kafka's `produce` takes one record, holds the interpreter's lock and costs twice as much; its `produce_batch`
creates a dict for each record.

Invariant: librdkafka has its own copy of each record when a call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Producer

from herdmesh.connect.model import PackedBytes
from herdmesh.engine.librdkafka import native
from herdmesh.engine.librdkafka.sticky_partitioner import StickyPartitioner

ANY_PARTITION = -1
"""The client's value for a record without a partition."""
NOW_MS = 0
"""The client's value for a record without a timestamp."""
_COPY = 2
"""RD_KAFKA_MSG_F_COPY."""
_MESSAGE = np.dtype(
    {
        "names": ["error", "rkt", "partition", "value", "value_length", "key", "key_length", "offset", "private"],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
"""rd_kafka_message_t, of librdkafka's public header."""

Columns = Sequence[bytes | None]
Times = Sequence[int | None]


class ColumnQueue:
    """Batch queue of one producer. Use it in the thread that uses the producer.

    A record queued here has no delivery report, and no headers.
    """

    def __init__(self, producer: Producer, library: Any, loops: Any = None) -> None:
        """`library`: from `native.librdkafka()`. `loops`: from `native.loops()`; None = `put` accepts no times."""
        self.spread = StickyPartitioner(producer)
        self.takes_times = loops is not None
        self._producer = producer
        self._library = library
        self._loops = loops

    def put(
        self, topic: str, partition: int, values: Columns, keys: Columns, times_ms: Times = ()
    ) -> list[tuple[int, KafkaError]]:
        """Queue records in order; return the places of those not queued, ascending, with the error.

        _QUEUE_FULL also applies to every record after the first without room. `keys`: empty = no record has one;
        `times_ms`: likewise, and None among them = now.

        Raises:
            RuntimeError: the producer was closed, as its own calls do.
            TypeError: a value or a key that is not bytes.
        """
        handle = native.handle(self._producer)
        rows = np.zeros(len(values), native.ROW if times_ms else _MESSAGE)
        held = [_point(rows, "value", values)]
        if keys:
            held.append(_point(rows, "key", keys))
        if times_ms:
            rows["time_ms"] = [NOW_MS if one is None else one for one in times_ms] if None in times_ms else times_ms
        kept = self._library.rd_kafka_topic_new(handle, topic.encode(), None)
        if not kept:
            error = _refused(self._library.rd_kafka_last_error())
            return [(place, error) for place in range(len(values))]
        try:
            if times_ms:
                queued = self._loops.herdmesh_put(handle, kept, partition, rows.ctypes.data, len(rows))
            else:
                queued = self._library.rd_kafka_produce_batch(kept, partition, _COPY, rows.ctypes.data, len(rows))
        finally:
            self._library.rd_kafka_topic_destroy(kept)
        del held
        if queued == len(rows):
            return []
        codes = rows["error"]
        return [(int(place), _refused(int(codes[place]))) for place in np.flatnonzero(codes)]


def column_queue(producer: Producer) -> ColumnQueue | None:
    """The batch queue; None with an unsupported client, so that every record is queued by a call of its own."""
    found = native.librdkafka()
    return None if found is None else ColumnQueue(producer, found, native.loops())


def _refused(code: int) -> KafkaError:
    """The error in the words of the producer's own calls."""
    return KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}")


def _point(rows: native.Rows, name: str, column: Columns) -> bytes:
    """Fill the rows with pointers into one buffer and return that buffer (keep it alive)."""
    length = f"{name}_length"
    if isinstance(column, PackedBytes):
        rows[name] = column.starts + np.uint64(native.address(column.data))
        rows[length] = column.lengths
        return column.data
    try:
        joined = b"".join(column)  # pyright: ignore[reportArgumentType] - a None raises TypeError
    except TypeError:
        texts = [b"" if one is None else one for one in column]
        present = np.fromiter((one is not None for one in column), np.bool_, len(column))
        joined = b"".join(texts)
    else:
        texts, present = column, None
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))  # pyright: ignore[reportArgumentType]
    if int(lengths.sum()) != len(joined):
        raise TypeError("a record's key or value is not bytes")  # items larger than a byte would be cut in pieces
    starts = np.cumsum(lengths)
    starts -= lengths
    starts += np.uint64(native.address(joined))
    if present is not None:
        starts[~present] = 0
    rows[name] = starts
    rows[length] = lengths
    return joined
