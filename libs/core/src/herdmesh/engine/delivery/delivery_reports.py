"""Delivery reports of a source's records: refusals, and, for a task with `commit_batch`, the place of each record.

Owns the callbacks, and for such a task the batches of the open transaction with the places of their records. Any other
task has none of this, and its producer reports failures only.

Invariant: a task is notified of a batch once, in the order in which it returned batches, and only after their commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from herdmesh.connect.spi import RecordMetadata, SourceBatch, SourceTask
from herdmesh.engine.runtime import TaskFailed, classify_kafka
from herdmesh.kafka.callback_exceptions import raise_pending

Report = Callable[[KafkaError | None, Message], None]
"""Called from the producer's own calls."""

_log = logging.getLogger(__name__)


class DeliveryFailures:
    """The first message that Kafka rejected: the reason why the open transaction cannot commit."""

    def __init__(self) -> None:
        self._first: tuple[KafkaError, str, TaskFailed | None] | None = None

    def add(self, error: KafkaError, message: Message | None, told: TaskFailed | None = None) -> bool:
        """Note a failure; False = it is not the one to report. Messages purged because the run ends are no failures.
        `told`: the error to raise for it, if it explains more than topic and error.
        """
        if self.names_culprit or error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return False
        self._first = error, "" if message is None else _refusal(error, message), told
        return True

    def forget(self) -> None:
        """Forget the failure, because its transaction is aborted."""
        self._first = None

    @property
    def names_culprit(self) -> bool:
        """True when there is a failure, and its record itself was the reason, not another record of the request."""
        return self._first is not None and self._first[0].code() != KafkaError._INVALID_DIFFERENT_RECORD

    def __bool__(self) -> bool:
        return self._first is not None

    def raise_first(self) -> None:
        """Raise TaskFailed when there is a failure."""
        if self._first is not None:
            error, text, told = self._first
            if told is not None:
                raise told
            raise TaskFailed(text or f"Kafka refused a record: {error.str()}", classify_kafka(error)) from (
                KafkaException(error)
            )


def _refusal(error: KafkaError, message: Message) -> str:
    """The rejected record, the reason, and the fix."""
    topic, key, value = message.topic(), message.key(), message.value()
    text = f"Kafka refused a record for topic {topic}: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        size_bytes = len(key or b"") + len(value or b"")
        return (
            f"{text}: the record has {size_bytes} bytes of key and value; raise max.message.bytes of topic {topic}, "
            "or, where that is more than the record has, lower producer.override.batch.size (262144 if not set) below "
            "it, as records are sent together"
        )
    if error.code() == KafkaError.INVALID_RECORD and key is None:
        return (
            f"{text}: the record has no key, and a compacted topic accepts only records with a key "
            "(cleanup.policy=compact)"
        )
    return text


class DeliveryReports:
    """The reports of one run. `refused`: called for each record that Kafka rejected, as without such reports."""

    def __init__(self, task: SourceTask, refused: Callable[[KafkaError, Message], object]) -> None:
        self._task = task
        self._refused = refused
        self._open: list[tuple[SourceBatch, list[RecordMetadata | None]]] = []

    def begin(self, batch: SourceBatch) -> None:
        """Set the batch of the records that are produced from now on."""
        if len(batch):
            self._open.append((batch, [None] * len(batch)))

    def of(self, places: Iterable[int]) -> list[Report]:
        """Callbacks for the producer, one for the record at each of these indexes of the batch."""
        metadata = self._open[-1][1]
        return [partial(self._delivered, metadata, at) for at in places]

    def abandon(self) -> None:
        """Note that the transaction is aborted: no record of it exists. The next commit reports that to the task."""
        self._open = [(batch, [None] * len(batch)) for batch, _ in self._open]

    def forget(self) -> None:
        """Forget the transaction's batches: the run discards them with their offsets, and they will be polled again."""
        self._open.clear()

    def forget_last(self) -> None:
        """Forget the last batch, which failed in part and will be polled again; those before it are committed."""
        self._open.pop()

    def report_commit(self) -> None:
        """Report the committed batches to the task. Its exception is logged and has no other effect, as in Connect."""
        told, self._open = self._open, []
        for batch, metadata in told:
            try:
                self._task.commit_batch(batch, metadata)
            except Exception:  # noqa: BLE001 - an author's code may raise anything, and the commit is done
                _log.exception("the task failed in commit_batch; its records are committed all the same")

    def _delivered(
        self, metadata: list[RecordMetadata | None], at: int, error: KafkaError | None, message: Message
    ) -> None:
        raise_pending(message.topic)
        if error is not None:
            self._refused(error, message)
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if (
            offset is None
        ):  # the client only inferred it (`kafka.checked_producer`), and this transaction will not be committed
            return
        assert topic is not None
        assert partition is not None
        metadata[at] = RecordMetadata(topic, partition, offset, message.timestamp()[1])
