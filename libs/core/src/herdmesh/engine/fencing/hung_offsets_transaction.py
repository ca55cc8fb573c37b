"""Hung transaction of a source in the offsets topic, which the connector's next run finishes (ADR 0006).

Here, unlike for a sink, it matters how the transaction was decided: its data may be marked already, and offsets that
say otherwise would lose or double records. The transaction coordinator's own log tells, if the login may read it: the
last decision of the task's id that names the partition, since any later one would have ended the hung one.

Owns writing a marker of the same kind. How it was decided is read by `kafka.transaction_outcomes`, when it is due is
decided by `source_offsets`.

Invariant: nothing is finished whose decision was not read. What is written is the removal of an offset that no task has
(a tombstone of a partition `{"herdmesh.hung": n}`): Connect and this engine both forget a key that they do not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from herdmesh.connect.topics import offsets_topic
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import progress_ticks
from herdmesh.kafka.transaction_outcomes import DecisionsNotRead, decisions

_DECISIONS_LIMIT_S = 30.0

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
        except (KafkaException, DecisionsNotRead) as error:
            _log.warning(
                "how a transaction in %s-%d was decided could not be read, the next run asks again: %s",
                self._topic, partition, error,
            )  # fmt: skip
            return
        if commit is None:
            return
        _log.warning(
            "an earlier transaction of the task may still be open in %s-%d, decided and without a marker (a broker "
            "died at that moment, docs/internals/bugs.md): finishing it by %s",
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
        """True = commit, None = no decision that names the partition. Raises KafkaException, DecisionsNotRead."""
        consumer, shard = self._look(), (self._topic, partition)
        try:
            found = clients.retried(
                lambda: decisions(
                    consumer, self._transactional_id, [shard], limit_s=_DECISIONS_LIMIT_S, moved=progress_ticks.moved
                )
            )
        finally:
            consumer.close()
        return found.get(shard)
