"""A source's transaction that Kafka left open in the offsets topic, and how the next run finishes it (ADR 0006).

Here, unlike for a sink, it matters how the transaction was decided: its data may be marked already, and offsets that
say otherwise would lose or double records. The transaction coordinator's own log tells, if the login may read it: the
last decision of the task's id that names the partition, since any later one would have ended the hung one.

Owns reading that decision and writing a marker of the same kind. Does not decide when it is due (`source_offsets`).

Invariant: nothing is finished whose decision was not read. What is written is the removal of an offset that no task has
(a tombstone of a partition `{"herdmesh.hung": n}`): Connect and this engine both forget a key that they do not have.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.connect import offsets_topic
from herdmesh.engine import clients, pulse
from herdmesh.engine.fence import Fence
from herdmesh.engine.hung import java_partition

STATE_TOPIC = "__transaction_state"
_TIMEOUT_S = 30.0
_BATCH_RECORDS_MAX = 10_000
_POLL_S = 0.1
#: TransactionLogKey: version, length of the id. TransactionLogValue: version, producer id and epoch, timeout, status.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hqhib")
_PREPARE_COMMIT, _PREPARE_ABORT = 2, 3
_FIRST_FLEXIBLE = 1

_log = logging.getLogger(__name__)


class Decision(NamedTuple):
    """How a transaction was to end, and where."""

    commit: bool
    partitions: frozenset[tuple[str, int]]


class OffsetsFinisher:
    """Finishes what hangs of the fence's id in one offsets topic. `look`: makes a consumer."""

    def __init__(
        self, topic: str, connector: str, transactional_id: str, fence: Fence, look: Callable[[], Consumer]
    ) -> None:
        self._topic = topic
        self._connector = connector
        self._transactional_id = transactional_id
        self._fence = fence
        self._look = look

    def finish(self, partition: int) -> None:
        """Have a marker written into the partition, if it is known which; nothing else, and no error, otherwise: the
        transaction may be another task's, which finishes it itself.

        Raises:
            TaskFenced, TaskFailed: as `Fence.commit`.
        """
        try:
            commit = self._decided(partition)
        except KafkaException as error:
            _log.warning("nobody may say how a transaction in %s-%d was decided: %s", self._topic, partition, error)
            return
        if commit is None:
            return
        _log.warning(
            "an earlier transaction of the task may still be open in %s-%d, decided and without a marker (a broker "
            "died at that moment, docs/bugs.md): finishing it by %s",
            self._topic, partition, "a commit" if commit else "an abort",
        )  # fmt: skip
        key = offsets_topic.encode_key(self._connector, {"herdmesh.hung": partition})
        self._fence.begin()
        self._fence.producer.produce(self._topic, None, key, partition)
        if commit:
            self._fence.commit()
        else:
            self._fence.abort()

    def _decided(self, partition: int) -> bool | None:
        """True = commit, None = no decision that names the partition. Raises KafkaException."""
        consumer, found = self._look(), None
        try:
            metadata = clients.retried(lambda: consumer.list_topics(STATE_TOPIC, clients.CALL_TIMEOUT_S))
            state = metadata.topics[STATE_TOPIC]
            if state.error is not None:
                raise KafkaException(state.error)
            number = java_partition(self._transactional_id, len(state.partitions))
            consumer.assign([TopicPartition(STATE_TOPIC, number, OFFSET_BEGINNING)])
            deadline_s = time.monotonic() + _TIMEOUT_S
            while time.monotonic() < deadline_s:
                pulse.moved()
                for message in consumer.consume(_BATCH_RECORDS_MAX, _POLL_S):
                    error = message.error()
                    if error is None:
                        decision = decode(self._transactional_id, message.key(), message.value())
                        if decision is not None and (self._topic, partition) in decision.partitions:
                            found = decision.commit
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        return None


def decode(transactional_id: str, key: bytes | None, value: bytes | None) -> Decision | None:
    """The decision in a record of the coordinator's log; None where it is no decision, or about another id."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    if key[_KEY.size :] != transactional_id.encode():
        return None
    version, _id, _epoch, _timeout, status = _VALUE.unpack_from(value)
    if status not in (_PREPARE_COMMIT, _PREPARE_ABORT) or version > _FIRST_FLEXIBLE:
        return None
    fields = _Fields(value, _VALUE.size, version >= _FIRST_FLEXIBLE)
    named = set[tuple[str, int]]()
    for _ in range(fields.count()):
        topic = fields.text()
        named.update((topic, fields.int32()) for _ in range(fields.count()))
        fields.end()
    return Decision(status == _PREPARE_COMMIT, frozenset(named))


class _Fields:
    """Kafka's wire types, in the plain and in the flexible encoding (KIP-482)."""

    def __init__(self, data: bytes, position: int, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def count(self) -> int:
        """The length of an array; 0 for a null one."""
        return max(0, self._varint() - 1 if self._flexible else self.int32())

    def text(self) -> str:
        length = self._varint() - 1 if self._flexible else int.from_bytes(self._take(2), "big")
        return self._take(length).decode()

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def end(self) -> None:
        """Pass over a structure's tagged fields."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def _take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        self._position += length
        return taken
