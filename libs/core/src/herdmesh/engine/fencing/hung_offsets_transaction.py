"""Hung transaction of a source in the offsets topic, which the connector's next run finishes (ADR 0006).

Here, unlike for a sink, the decision of the transaction matters: its records may be marked already, and contradicting
offsets would lose or duplicate records. The transaction coordinator's own log has the decision, if the login may read
it: the last decision of the task's id that names the partition, since any later one would have ended the hung one.

Owns writing a marker of the same kind. `kafka.transaction_outcomes` reads the decision, `source_offsets` decides when
it is due.

Invariant: nothing is finished without a known decision. The written record deletes an offset that no task has
(a tombstone of a partition `{"herdmesh.hung": n}`): Connect and this engine both ignore the deletion of a missing key.
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
    """Finishes hung transactions of the fence's id in one offsets topic. `look`: creates a consumer."""

    def __init__(
        self, topic: str, connector: str, transactional_id: str, fence: Fence, look: Callable[[], Consumer]
    ) -> None:
        self._topic = topic
        self._connector = connector
        self._transactional_id = transactional_id
        self._fence = fence
        self._look = look

    def finish(self, partition: int) -> None:
        """Write a marker into the partition, if the decision is known. Otherwise do nothing and raise nothing: the
        transaction may be another task's, which finishes it itself.

        Raises:
            TaskFenced, TaskFailed: as `Fence.commit`.
        """
        try:
            commit = self._decided(partition)
        except (KafkaException, DecisionsNotRead) as error:
            _log.warning(
                "the outcome of a transaction in %s-%d could not be read, the next run tries again: %s",
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
        """True = commit, False = abort, None = no decision names the partition. Raises KafkaException,
        DecisionsNotRead.
        """
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
