"""Scan of the offsets topic past its last stable offset, for a connector's records in open transactions (ADR 0006).

Owns the queries: the true ends, and the connector's records in transactions that are not over. Does not interpret
them: only a reader of committed records may use offsets.

Invariant: if the fence was taken before, all records of the connector's earlier owners are before `ends`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics import offsets_topic
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, offset_of, retried
from herdmesh.engine.runtime import TaskFailed, progress_ticks
from herdmesh.kafka.listed_offsets import list_offsets, read_topic_metadata
from herdmesh.kafka.transient import is_transient

_BATCH_RECORDS_MAX = 10_000
_POLL_S = 0.1


class OpenTransactionScan:
    """One connector's view of one offsets topic. `unstable`: creates a consumer that reads open transactions too."""

    def __init__(self, topic: str, connector: str, admin: AdminClient, unstable: Callable[[], Consumer]) -> None:
        self._topic = topic
        self._connector = connector
        self._admin = admin
        self._unstable = unstable

    def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end of each partition, open transactions included."""
        return self._told(partitions, OffsetSpec.latest())[0]

    def bounds(self, partitions: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
        """The beginning of each partition, and its end as in `ends`; both queries run in parallel."""
        beginnings, ends = self._told(partitions, OffsetSpec.earliest(), OffsetSpec.latest())
        return beginnings, ends

    def _told(self, partitions: Iterable[int], *specs: Any) -> list[dict[int, int]]:
        places = [TopicPartition(self._topic, number) for number in partitions]

        def answered() -> list[dict[int, int]]:
            known = read_topic_metadata(self._admin, [self._topic], CALL_TIMEOUT_S)
            asked = [
                list_offsets(self._admin, dict.fromkeys(places, spec), timeout_s=CALL_TIMEOUT_S, known=known)
                for spec in specs
            ]
            return [{one.partition: offset_of(future.result()) for one, future in found.items()} for found in asked]

        return retried(answered, also=KafkaError.UNKNOWN_TOPIC_OR_PART)

    def own_ends(self, stable: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """For partitions that are stable only up to an offset: the end of the connector's records behind it. Omits
        partitions without such records.

        Raises:
            TaskFailed: RETRIABLE when they cannot be read in time.
        """
        found, waiting = dict[int, int](), set(stable)
        consumer = self._unstable()
        try:
            consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in stable.items()])
            deadline_s = time.monotonic() + RETRY_TIMEOUT_S
            while waiting:
                progress_ticks.moved()
                for message in consumer.consume(_BATCH_RECORDS_MAX, _POLL_S):
                    error, number, offset = message.error(), message.partition(), message.offset()
                    assert number is not None
                    assert offset is not None
                    if error is None and offset < ends[number] and self._is_own(message.key()):
                        found[number] = offset + 1
                    if error is None:
                        if (
                            offset + 1 >= ends[number]
                        ):  # if others continue to write, there is no end-of-partition event
                            waiting.discard(number)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        waiting.discard(number)
                    elif not is_transient(error):
                        raise KafkaException(error)
                if waiting and time.monotonic() > deadline_s:
                    raise TaskFailed(
                        f"the offsets topic {self._topic} could not be read to its end: partitions {sorted(waiting)} "
                        "do not answer",
                        ErrorClass.RETRIABLE,
                    )
        finally:
            consumer.close()
        return found

    def _is_own(self, key: bytes | None) -> bool:
        decoded = offsets_topic.decode_key(key)
        return isinstance(decoded, tuple) and decoded[0] == self._connector
