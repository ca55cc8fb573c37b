"""Batch consumer: records of manually assigned partitions, a batch at a time, as columns (ADR 0016).

Owns the queue into which followed partitions fetch, and the split of its content. The queue is not the client's own,
which also has callbacks and log lines: those stay with the client's `poll`, which each turn calls.

Invariant: a record is returned once, in its partition's order, and nothing of librdkafka's memory outlives a turn.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import native
from herdmesh.engine.librdkafka.native import Rows
from herdmesh.engine.librdkafka.record_columns import Headers, RecordColumns, column, of_messages, of_rows

_new_bytes: Any = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t]

_FORWARD_S = 0.02
"""Interval at which a partition without messages so far is forwarded again; the interval grows while it has none."""
_SILENT_SHARE = 10

Heard = tuple[list[RecordColumns], list[Message]]
"""Records, and events that are not records (ends of partitions, errors)."""


class BatchConsumer:
    """Batches of one consumer. Use it in the thread that uses the consumer, but for `wake`, and close it before the
    consumer.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._library, self._loops = native.librdkafka(), native.loops()
        self._queue: int | None = None
        self._closing = threading.Lock()
        self._woken = False
        #: librdkafka's handle of the fetch queue of each followed partition.
        self._fetched: dict[PartitionId, int] = {}
        #: followed partitions from which nothing was read since.
        self._unheard: set[PartitionId] = set()
        self._followed_s = self._forward_s = 0.0
        if self._loops is not None:
            self._queue = self._library.rd_kafka_queue_new(native.handle(consumer))

    def follow(self, partitions: Iterable[PartitionId]) -> None:
        """Read these partitions as columns; call it each time before they are assigned. Other partitions are read
        message by message.
        """
        if self._queue is None:
            return
        client = native.handle(self._consumer)
        for topic, number in partitions:
            # No queue: the partition does not exist for the client. If it is created later, it is read message by
            # message.
            if fetched := self._library.rd_kafka_queue_get_partition(client, topic.encode(), number):
                self.unfollow([(topic, number)])
                self._fetched[topic, number] = fetched
                self._unheard.add((topic, number))
        self._followed_s = time.monotonic()
        self._forward()

    def unfollow(self, partitions: Iterable[PartitionId]) -> None:
        """Stop following partitions that are no longer assigned."""
        for one in partitions:
            self._unheard.discard(one)
            if (fetched := self._fetched.pop(one, None)) is not None:
                self._library.rd_kafka_queue_destroy(fetched)

    def take(self, records_max: int, wait_s: float) -> Heard:
        """The available records and events; waits only for the first. Raises KafkaException, RuntimeError as the
        consumer's `poll`.
        """
        if self._queue is None:
            messages = self._consumer.consume(records_max, 0) or _one(self._consumer.poll(wait_s))
            return _apart(messages)
        if self._unheard and time.monotonic() >= self._forward_s:
            self._forward()
        event = self._consumer.poll(0)
        taken, events = self._take(records_max, 0.0)
        if event is None and not taken and not events:
            until_s = max(0.0, self._forward_s - time.monotonic()) if self._unheard else wait_s
            # The call above, which does not wait, may have taken a wake-up from the queue.
            woken, self._woken = self._woken, False
            taken, events = self._take(1, 0.0 if woken else min(wait_s, until_s))
        if self._unheard:
            self._unheard.difference_update(one.partition for one in taken)
            self._unheard.difference_update((one.topic() or "", one.partition() or 0) for one in events)
        others, more = _apart(_one(event))
        return [*others, *taken], [*more, *events]

    def wake(self) -> None:
        """End the wait of a `take` that another thread has called, or else of the next one."""
        self._woken = True
        with self._closing:
            if self._queue is not None:
                self._library.rd_kafka_queue_yield(self._queue)

    def close(self) -> None:
        """Release the queues; may be called again."""
        self.unfollow(list(self._fetched))
        with self._closing:
            queue, self._queue = self._queue, None
        if queue is not None:
            self._library.rd_kafka_queue_destroy(queue)

    def _forward(self) -> None:
        """Forward the partitions' fetch queues to ours. A partition that is assigned again is stopped first, some time
        after the call, which ends the forwarding (`rd_kafka_toppar_fetch_stop`) and keeps its messages in its own
        queue. So the forwarding is repeated until a message of the partition arrives.
        """
        for one in self._unheard:
            self._library.rd_kafka_queue_forward(self._fetched[one], self._queue)
        now_s = time.monotonic()
        self._forward_s = now_s + max(_FORWARD_S, (now_s - self._followed_s) / _SILENT_SHARE)

    def _take(self, records_max: int, wait_s: float) -> Heard:
        rows, messages = np.empty(records_max, native.ROW), np.empty(records_max, np.uint64)
        at = messages.ctypes.data
        found = native.Summary()
        count: int = self._loops.herdmesh_take(
            self._queue, int(wait_s * 1000), at, rows.ctypes.data, ctypes.byref(found), records_max
        )
        if count < 0:
            code: int = self._library.rd_kafka_last_error()
            raise KafkaException(KafkaError(code, f"the queue of records cannot be read: {KafkaError(code).str()}"))
        if count == 0:
            return [], []
        try:
            return self._apart(rows[:count], messages[:count], found)
        finally:
            self._loops.herdmesh_release(at, count)

    def _apart(self, rows: Rows, messages: Rows, found: native.Summary) -> Heard:
        events: list[Message] = []
        if found.errors:
            failed = rows["error"] != 0
            events = [self._event(row) for row in rows[failed]]
            rows, messages = rows[~failed], messages[~failed]
            if not len(rows):
                return [], events
        bounds = [0, len(rows)]
        if found.strangers:
            topics, numbers = rows["topic"], rows["partition"]
            order = np.lexsort((numbers, topics))  # keeps records of one partition in their order
            rows, messages = rows[order], messages[order]
            topics, numbers = rows["topic"], rows["partition"]
            changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(numbers) != 0)) + 1
            bounds = [0, *changes.tolist(), len(rows)]
        headers = self._headers(rows, messages) if found.headers else ()
        # All values, each followed by an LF as in a file, and all keys.
        values, keys = _new_bytes(None, found.value_bytes + found.values), _new_bytes(None, found.key_bytes)
        places = np.empty((4, len(rows)), np.uint64)
        self._loops.herdmesh_copy(
            rows.ctypes.data, len(rows), native.address(values), native.address(keys), places.ctypes.data
        )
        has_all = len(rows) == found.values, len(rows) == found.keys
        taken: list[RecordColumns] = []
        for begin, end in pairwise(bounds):
            partition = self._topic(int(rows["topic"][begin])), int(rows["partition"][begin])
            starts, lengths, key_starts, key_lengths = places[:, begin:end]
            value_column = column(values, starts, lengths, has_all=has_all[0])
            key_column = (
                column(keys, key_starts, key_lengths, has_all=has_all[1]) if found.keys else [None] * (end - begin)
            )
            taken.append(of_rows(partition, rows[begin:end], value_column, key_column, headers[begin:end]))
        return taken, events

    def _headers(self, rows: Rows, messages: Rows) -> Headers:
        counts = rows["headers"]
        lengths = np.empty(2 * int(counts.sum()), np.int64)
        given = np.ascontiguousarray(messages).ctypes.data, len(messages), lengths.ctypes.data
        data = _new_bytes(None, self._loops.herdmesh_headers(*given, None))
        self._loops.herdmesh_headers(*given, native.address(data))
        pairs = _pairs(data, lengths.tolist())
        return [[next(pairs) for _ in range(count)] for count in counts.tolist()]

    def _event(self, row: Any) -> Message:
        """An event as the client itself would create it; librdkafka passes the reason as the value."""
        reason = ctypes.string_at(int(row["value"]), int(row["value_length"])) if row["value"] else b""
        code = int(row["error"])
        error = KafkaError(code, reason.decode("utf-8", "replace") or KafkaError(code).str())
        topic = self._topic(int(row["topic"])) if row["topic"] else None
        return Message(topic=topic, partition=int(row["partition"]), offset=int(row["offset"]), error=error)

    def _topic(self, topic: int) -> str:
        return str(self._library.rd_kafka_topic_name(topic), "utf-8")


def _pairs(data: bytes, lengths: Sequence[int]) -> Iterator[tuple[str, bytes | None]]:
    place = 0
    for at in range(0, len(lengths), 2):
        name = str(data[place : place + lengths[at]], "utf-8")
        place += lengths[at]
        size = lengths[at + 1]
        yield name, None if size < 0 else data[place : place + size]
        place += max(size, 0)


def _one(message: Message | None) -> list[Message]:
    return [] if message is None else [message]


def _apart(messages: list[Message]) -> Heard:
    """Split messages created by the client into columns and events."""
    errors: list[KafkaError | None] = list(map(Message.error, messages))
    events = list(compress(messages, errors))
    if events:
        messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
    groups: dict[PartitionId, list[Message]] = {}
    for message in messages:
        partition = message.topic() or "", message.partition() or 0
        groups.setdefault(partition, []).append(message)
    return [of_messages(partition, group) for partition, group in groups.items()], events
