"""Offsets of a source task in Connect's offsets topic.

Owns reading them to the end of the topic and creating the records that move them. The bytes are those of
`connect.offsets_topic`.

Invariant: equality of source partitions is equality of key bytes, and the last record of a key in its partition wins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource  # the package re-exports these, but not for type checkers
from confluent_kafka.admin._resource import ResourceType

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.topics import offsets_topic
from herdmesh.engine.fencing import OffsetsFinisher
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, retried
from herdmesh.engine.runtime import TaskFailed, progress_ticks
from herdmesh.engine.source.unstable_offsets import OpenTransactionScan
from herdmesh.kafka.transient import is_transient

OffsetMap = Mapping[str, Any]

_POLICY = "cleanup.policy"
_POLL_S = 0.1
_UNSTABLE_S = 1.0
"""How long a decided transaction may lack its marker before it counts as hung; it takes milliseconds."""
_BATCH_RECORDS_MAX = 10_000

_log = logging.getLogger(__name__)


class SourceOffsets:
    """The committed offsets of one connector at the time of a read."""

    def __init__(self, connector: str) -> None:
        self._connector = connector
        self._values: dict[bytes, bytes] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic; keys of other connectors and undecodable keys are ignored."""
        decoded = offsets_topic.decode_key(key)
        if key is None or not isinstance(decoded, tuple) or decoded[0] != self._connector:
            return
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def committed_offset(self, partition: OffsetMap | None) -> OffsetMap | None:
        """The committed offset of a source partition, None = none.

        Raises:
            TaskFailed: FATAL, when the stored value is not an offset: a start without an offset would send everything
            again.
        """
        value = self._values.get(offsets_topic.encode_key(self._connector, partition))
        try:
            return offsets_topic.decode_value(value)
        except DataError as error:
            raise TaskFailed(
                f"the stored offset of {self._connector} for {partition} cannot be read: {error}", ErrorClass.FATAL
            ) from error

    def items(self) -> dict[bytes, bytes]:
        """Every key that has an offset, and the offset, in the topic's bytes."""
        return dict(self._values)

    def record(self, partition: OffsetMap | None, offset: OffsetMap | None) -> tuple[bytes, bytes | None]:
        """Key and value of the record that moves an offset. Raises DataError for values that Connect refuses."""
        return offsets_topic.encode_key(self._connector, partition), offsets_topic.encode_value(offset)


def read(
    consumer: Consumer,
    topic: str,
    connector: str,
    beyond: OpenTransactionScan,
    hung: OffsetsFinisher,
    over: SourceOffsets | None = None,
) -> SourceOffsets:
    """Read all committed offsets of a connector up to the current end of the topic. `over`: offsets read before, which
    this read updates.

    While a transaction is open, only records before it are readable. If records of the connector lie behind that point,
    this waits for them, because an older offset would send records again.

    Raises:
        TaskFailed: RETRIABLE when the end is not reached in time.
    """
    offsets = SourceOffsets(connector) if over is None else over
    filled, ends = _begin(consumer, topic, beyond)
    deadline = time.monotonic() + RETRY_TIMEOUT_S
    ended = _read_until(consumer, offsets, filled, ends, deadline)
    _refuse_missing(topic, filled, ended)
    held = {number: end for number, end in ended.items() if end < ends[number]}
    if held:
        own = beyond.own_ends(held, ends)
        ended |= _read_until(consumer, offsets, own, ends, time.monotonic() + _UNSTABLE_S)
        late = _missing(own, ended)
        for number in late:
            hung.finish(number)
        ended |= _read_until(consumer, offsets, late, ends, deadline)
        _refuse_missing(topic, late, ended)
    consumer.unassign()
    return offsets


def read_decided(consumer: Consumer, topic: str, beyond: OpenTransactionScan, over: SourceOffsets) -> None:
    """Read the topic as far as its transactions are decided, into `over`. Does not wait for open transactions, and
    ignores their records.

    Raises:
        TaskFailed: RETRIABLE when the end is not reached in time.
    """
    filled, ends = _begin(consumer, topic, beyond)
    _refuse_missing(topic, filled, _read_until(consumer, over, filled, ends, time.monotonic() + RETRY_TIMEOUT_S))
    consumer.unassign()


def _begin(consumer: Consumer, topic: str, beyond: OpenTransactionScan) -> tuple[dict[int, int], dict[int, int]]:
    """Begin to read the partitions that have records. Returns those, each with 0, and the ends of all.

    The client gets the first offsets, so it need not query them before it reads: that takes a third of the time.
    """
    beginnings, ends = beyond.bounds(partitions(consumer, topic))
    filled = {number: 0 for number, end in ends.items() if beginnings[number] < end}
    consumer.assign([TopicPartition(topic, number, beginnings[number]) for number in filled])
    return filled, ends


def _read_until(
    consumer: Consumer, offsets: SourceOffsets, wanted: Mapping[int, int], ends: Mapping[int, int], deadline_s: float
) -> dict[int, int]:
    """Read until each partition ended at or after the wanted offset, or until the deadline; return where they ended.

    A partition to which others write may get no end-of-partition event: reading up to `ends`, its true end at the time
    of the query, is enough.
    """
    waiting, ended = set(wanted), dict[int, int]()
    while waiting and time.monotonic() < deadline_s:
        progress_ticks.moved()
        # A request for more messages than available takes its whole timeout.
        for message in consumer.consume(_BATCH_RECORDS_MAX, 0) or consumer.consume(1, _POLL_S):
            error, number, offset = message.error(), message.partition(), message.offset()
            if error is None:
                assert number is not None
                assert offset is not None
                offsets.apply(message.key(), message.value())
                if offset + 1 >= ends[number]:
                    ended[number] = offset + 1
                    waiting.discard(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                assert number is not None
                assert offset is not None
                ended[number] = offset
                if offset >= wanted.get(number, 0):
                    waiting.discard(number)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise TaskFailed(
                    f"the offsets topic {message.topic()} lost records while it was read: {error.str()}",
                    ErrorClass.RETRIABLE,
                )
            elif not is_transient(error):
                raise KafkaException(error)
    return ended


def _missing(wanted: Mapping[int, int], ended: Mapping[int, int]) -> dict[int, int]:
    return {number: offset for number, offset in wanted.items() if ended.get(number, -1) < offset}


def _refuse_missing(topic: str, wanted: Mapping[int, int], ended: Mapping[int, int]) -> None:
    """Raise TaskFailed when a wanted offset was not reached."""
    missing = _missing(wanted, ended)
    if missing:
        raise TaskFailed(_not_read(topic, missing, ended), ErrorClass.RETRIABLE)


def _not_read(topic: str, waiting: Mapping[int, int], ended: Mapping[int, int]) -> str:
    held = {number: ended[number] for number in sorted(waiting) if number in ended}
    if not held:
        return f"the offsets topic {topic} could not be read to its end: partitions {sorted(waiting)} do not answer"
    places = ", ".join(f"partition {number} from offset {offset}" for number, offset in held.items())
    return (
        f"offsets of this connector in {topic} are in a transaction that does not end ({places}); find it with "
        f"kafka-transactions.sh find-hanging --topic {topic} and end it with kafka-transactions.sh abort "
        "--start-offset; the records it belongs to are sent again then if it was to be committed"
    )


def partitions(consumer: Consumer, topic: str) -> set[int]:
    """The partitions of the topic. Retries for a new topic, which not all brokers may know yet."""

    def known() -> set[int]:
        metadata = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return set(metadata.partitions)

    return retried(known, also=KafkaError.UNKNOWN_TOPIC_OR_PART)


def refuse_forgetful(admin: AdminClient, topic: str) -> None:
    """Refuse a topic that is not only compacted, because offsets would be lost. Raises ConfigError naming
    `offsets.storage.topic`.
    """
    untyped: Any = admin
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def policy() -> str:
        return untyped.describe_configs([resource], request_timeout=CALL_TIMEOUT_S)[resource].result()[_POLICY].value

    found = retried(policy, also=KafkaError.UNKNOWN_TOPIC_OR_PART)
    if found != "compact":
        raise ConfigError(
            f"Topic '{topic}' supplied via the 'offsets.storage.topic' property is required to have "
            f"'{_POLICY}=compact' to guarantee consistency and durability of source connector offsets, but found the "
            f"topic currently has '{_POLICY}={found}'.",
            field="offsets.storage.topic",
            fix=f"give the topic {_POLICY}=compact, or name another",
        )
