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
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from herdmesh.connect import offsets_topic, transaction_topic
from herdmesh.engine import clients, pulse
from herdmesh.engine.fence import Fence

_TIMEOUT_S = 30.0
_BATCH_RECORDS_MAX = 10_000
_POLL_S = 0.1

_log = logging.getLogger(__name__)


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
            metadata = clients.retried(lambda: consumer.list_topics(transaction_topic.NAME, clients.CALL_TIMEOUT_S))
            state = metadata.topics[transaction_topic.NAME]
            if state.error is not None:
                raise KafkaException(state.error)
            number = transaction_topic.java_partition(self._transactional_id, len(state.partitions))
            shard = TopicPartition(transaction_topic.NAME, number, OFFSET_BEGINNING)
            # A partition that others go on writing to, as this one, is not told to be at its end.
            _, end = clients.retried(lambda: consumer.get_watermark_offsets(shard, timeout=clients.CALL_TIMEOUT_S))
            consumer.assign([shard])
            if end == 0:
                return None
            deadline_s = time.monotonic() + _TIMEOUT_S
            while time.monotonic() < deadline_s:
                pulse.moved()
                for message in consumer.consume(_BATCH_RECORDS_MAX, _POLL_S):
                    error = message.error()
                    if error is None:
                        decision = transaction_topic.decode(self._transactional_id, message.key(), message.value())
                        if decision is not None and (self._topic, partition) in decision.partitions:
                            found = decision.commit
                        if (message.offset() or 0) + 1 >= end:
                            return found
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        return None
