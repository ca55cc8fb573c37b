"""Reader of a dead letter queue: ranges of its partitions, and pages from the newest dead letter back.

Owns the consumer, the bounds of one read (time, records, bytes), and page tokens. The caller's filter (`keep`) decides
which dead letters count.

Invariant: memory is bounded by `WINDOW_BYTES` per partition at a time, whatever the size of the dead letters. The pages
of one listing have every dead letter at most once, and every one that existed at the beginning and still exists.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import RunSpec, TaskFailed, access_of
from herdmesh.kafka.listed_offsets import list_offsets, read_topic_metadata
from herdmesh.kafka.transient import is_transient
from herdmesh.worker.state import dead_letter_headers
from herdmesh.worker.state.dead_letter_headers import DeadLetter, Header

Keep = Callable[[DeadLetter], DeadLetter | None]
"""Filter of dead letters: returns the dead letter as it is listed, None = it is left out."""
Ranges = Mapping[int, tuple[int, int]]
"""First offset of a range, and the offset after its last one, by partition."""

PAGE_BYTES: Final = 2 * 1024 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
SCAN_RECORDS_MAX: Final = 50_000
SCAN_S: Final = 5.0
_WINDOW_FIRST: Final = 200
_WINDOW_MAX: Final = 10_000
_STALLED_S: Final = 20.0
_CONSUME_MAX: Final = 500
_NEAR: Final = 1_000
_POLL_S: Final = 0.1
_NO_TIME: Final = 0
_NO_RECORD: Final = frozenset(
    (
        KafkaError._PARTITION_EOF,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    )
)
_CLIENT: Final = {"queued.min.messages": 10_000, "queued.max.messages.kbytes": 16_384}


class TopicLog:
    """Reader of a topic's committed records by offset. Use it in one thread, and close it."""

    def __init__(self, spec: RunSpec, topic: str) -> None:
        """`spec` is of a task of the connector; its clients' credentials are used. Raises ConfigError."""
        access = access_of(spec, "consumer", "producer")
        config = {**_CLIENT, **access, "client.id": f"herdmesh-dlq-{spec.connector}"}
        self.topic = topic
        self.admin = clients.admin(spec, access)
        self._consumer = clients.consumer(spec, f"connect-{spec.connector}", config)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Partition counts of the topics; topics that do not exist are left out."""
        found: dict[str, int] = {}
        for topic in topics:
            known = clients.retried(lambda topic=topic: self._consumer.list_topics(topic, clients.CALL_TIMEOUT_S))
            if (one := known.topics[topic]).error is None:
                found[topic] = len(one.partitions)
        return found

    def topic_id(self) -> str:
        """The topic's id, which differs from that of a recreated topic of the same name. Raises ConfigError when the
        topic does not exist.
        """
        untyped: Any = self.admin
        names = TopicCollection([self.topic])
        try:
            found = clients.retried(
                lambda: untyped.describe_topics(names, request_timeout=clients.CALL_TIMEOUT_S)[self.topic].result()
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            raise ConfigError(
                f"its dead letter queue {self.topic} does not exist: a task creates it when it starts",
                field=dead_letter_headers.QUEUE_KEY,
            ) from error
        return str(found.topic_id)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """The offsets that can be read now."""
        partitions = range(self.partition_counts([self.topic]).get(self.topic, 0))
        asked = [TopicPartition(self.topic, number) for number in partitions]

        def answered() -> list[dict[int, int]]:
            known = read_topic_metadata(self.admin, [self.topic], clients.CALL_TIMEOUT_S)
            both = [
                list_offsets(
                    self.admin,
                    dict.fromkeys(asked, which),
                    isolation_level=IsolationLevel.READ_COMMITTED,
                    timeout_s=clients.CALL_TIMEOUT_S,
                    known=known,
                )
                for which in (OffsetSpec.earliest(), OffsetSpec.latest())
            ]
            return [
                {one.partition: clients.offset_of(future.result()) for one, future in each.items()} for each in both
            ]

        beginnings, ends = clients.retried(answered) if asked else ({}, {})
        return {number: (beginnings[number], ends[number]) for number in sorted(ends)}

    def read(self, partition: int, first: int, end: int) -> Iterator[Message]:
        """The records from offset `first` up to, but not including, `end`.

        Raises:
            KafkaException: the records cannot be read.
            TaskFailed: RETRIABLE, when no record arrives for `_STALLED_S`.
        """
        if first >= end:
            return
        self._consumer.assign([TopicPartition(self.topic, partition, first)])
        heard_s = time.monotonic()
        while time.monotonic() - heard_s < _STALLED_S:
            for message in self._next():
                error, offset = message.error(), message.offset()
                if error is None:
                    heard_s = time.monotonic()  # a repeated error does not count as an answer
                    assert offset is not None
                    if offset < end:
                        yield message
                    if offset + 1 >= end:
                        return
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not is_transient(error):
                    raise KafkaException(error)
        raise TaskFailed(f"Kafka delivers no records of {self.topic}-{partition}", ErrorClass.RETRIABLE)

    def record(self, topic: str, partition: int, offset: int) -> Message | None:
        """The committed record of any topic at this offset; None when there is none.

        Raises:
            KafkaException: it cannot be read.
            TaskFailed: RETRIABLE, when Kafka delivers nothing for `_STALLED_S`.
        """
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        deadline_s = time.monotonic() + _STALLED_S
        while time.monotonic() < deadline_s:
            for message in self._next():
                error, found = message.error(), message.offset()
                if error is None:
                    return message if found == offset else None
                if error.code() in _NO_RECORD:
                    return None
                if not is_transient(error):
                    raise KafkaException(error)
        raise TaskFailed(f"Kafka delivers no record of {topic}-{partition}", ErrorClass.RETRIABLE)

    def _next(self) -> list[Message]:
        """The buffered records, or the next one to arrive. (`consume` would wait for the whole timeout; a tombstone is
        falsy.)
        """
        if found := self._consumer.consume(_CONSUME_MAX, 0):
            return found
        first = self._consumer.poll(_POLL_S)
        return [] if first is None else [first]

    def dead_letters(self, partition: int, first: int, end: int) -> Iterator[DeadLetter]:
        """Dead letters of a range; arguments and errors as of `read`."""
        return map(dead_letter_of, self.read(partition, first, end))


def dead_letter_of(message: Message) -> DeadLetter:
    """The dead letter in a record of a queue."""
    headers = cast("list[Header]", message.headers() or [])
    own, errors = dead_letter_headers.split(headers)
    kind, time_ms = message.timestamp()
    number, offset = message.partition(), message.offset()
    assert number is not None
    assert offset is not None
    return DeadLetter(
        number, offset, message.key(), message.value(), None if kind == _NO_TIME else time_ms, own, errors
    )


def picked(log: TopicLog, ranges: Ranges, places: Iterable[tuple[int, int]]) -> list[DeadLetter]:
    """The dead letters at these places, sorted by place; missing ones are left out."""
    found: list[DeadLetter] = []
    by_partition: dict[int, set[int]] = {}
    for partition, offset in places:
        beginning, end = ranges.get(partition, (0, 0))
        if beginning <= offset < end:
            by_partition.setdefault(partition, set()).add(offset)
    for partition, offsets in sorted(by_partition.items()):
        for stretch in _stretches(sorted(offsets)):
            read = log.dead_letters(partition, stretch[0], stretch[-1] + 1)
            found += [letter for letter in read if letter.offset in offsets]
    return found


def _stretches(offsets: Sequence[int]) -> list[list[int]]:
    """Groups of offsets that are close enough to be read in one range."""
    made: list[list[int]] = []
    for offset in offsets:
        if made and offset - made[-1][-1] <= _NEAR:
            made[-1].append(offset)
        else:
            made.append([offset])
    return made


def page(log: TopicLog, ranges: Ranges, token: str, size: int, keep: Keep) -> tuple[list[DeadLetter], str]:
    """At most `size` dead letters from the newest back, and the token for the next page ("" = this was the last).

    Of several partitions, the dead letter with the latest time comes first. A page may have fewer, even none, although
    more follow: it ends when its scan budget is used up. Raises ConfigError for an invalid token; otherwise as
    `TopicLog.read`.
    """
    uppers = positions(token) if token else {number: end for number, (_, end) in ranges.items()}
    tails = [_Tail(log, number, ranges[number][0], upper, keep) for number, upper in uppers.items() if number in ranges]
    budget = _Budget()
    for tail in tails:
        tail.load(budget)
    found: list[DeadLetter] = []
    size_bytes = 0
    while len(found) < size:
        for tail in tails:
            while tail.unknown and not budget.used_up:
                tail.load(budget)
        heads = [tail for tail in tails if tail.pending]
        if not heads or any(tail.unknown for tail in tails):
            break
        newest = max(heads, key=_newest_first)
        size_bytes += newest.pending[-1].size_bytes
        if found and size_bytes > PAGE_BYTES:
            break
        found.append(newest.pending.pop())
    more = any(tail.pending or tail.floor > tail.low for tail in tails)
    return found, token_of({tail.partition: tail.upper for tail in tails}) if more else ""


class _Budget:
    """Scan budget of one page: records and time."""

    def __init__(self) -> None:
        self._records = SCAN_RECORDS_MAX
        self._until_s = time.monotonic() + SCAN_S

    def take(self) -> None:
        self._records -= 1

    @property
    def used_up(self) -> bool:
        return self._records <= 0 or time.monotonic() >= self._until_s


class _Tail:
    """Backward reader of one partition, a window at a time."""

    def __init__(self, log: TopicLog, partition: int, low: int, upper: int, keep: Keep) -> None:
        self.partition = partition
        self.low = low
        #: everything from here on was returned, or is left out by the filter.
        self.floor = max(low, upper)
        #: dead letters of the window that were not returned yet, the newest last.
        self.pending: list[DeadLetter] = []
        self._log = log
        self._keep = keep
        self._window = _WINDOW_FIRST

    @property
    def unknown(self) -> bool:
        """True when the newest dead letter is still to be read."""
        return not self.pending and self.floor > self.low

    @property
    def upper(self) -> int:
        """The offset where a later page continues: nothing before it was returned."""
        return self.pending[-1].offset + 1 if self.pending else self.floor

    def load(self, budget: _Budget) -> None:
        """Read the next window."""
        end, first = self.floor, max(self.low, self.floor - self._window)
        kept: deque[DeadLetter] = deque()
        size_bytes, self.floor = 0, first
        for read in self._log.dead_letters(self.partition, first, end):
            budget.take()
            letter = self._keep(read)
            if letter is None:
                continue
            kept.append(letter)
            size_bytes += letter.size_bytes
            while size_bytes > WINDOW_BYTES and len(kept) > 1:  # a later, smaller window reads the older ones again
                gone = kept.popleft()
                size_bytes, self.floor = size_bytes - gone.size_bytes, gone.offset + 1
        self.pending = list(kept)
        self._window = max(1, end - self.floor) if self.floor > first else min(2 * self._window, _WINDOW_MAX)


def _newest_first(tail: _Tail) -> tuple[int, int]:
    newest = tail.pending[-1]
    return -1 if newest.time_ms is None else newest.time_ms, -tail.partition


def token_of(found: Mapping[int, int]) -> str:
    """Positions by partition as text."""
    return ",".join(f"{number}:{position}" for number, position in sorted(found.items()))


def positions(token: str) -> dict[int, int]:
    """The inverse of `token_of`. Raises ConfigError."""
    try:
        pairs = [part.split(":") for part in token.split(",")]
        return {int(number): int(position) for number, position in pairs}
    except ValueError:
        raise ConfigError(f"{token!r} is not a page token of this listing: begin with an empty one") from None
