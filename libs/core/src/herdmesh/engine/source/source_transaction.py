"""Open transaction of a source's run: its records, its offsets, and how it ends.

Owns its records by topic, the offsets it moves, and their destination: the offsets topics, or the worker's file once
the records are committed (ADR 0003). `source_delivery` owns the commit in Kafka; with at-least-once delivery the
records are in no transaction of Kafka's. The loop decides when it ends, and reports it.

Invariant: offsets move with all the records before them or not at all; an aborted transaction leaves no count of its
records behind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import SourceBatch
from herdmesh.connect.topics import why_no_topic
from herdmesh.engine.delivery import DeliveryFailures, DeliveryReports, Report, SourceDelivery, producing
from herdmesh.engine.runtime import (
    RunLink,
    RunSpec,
    SourceSettings,
    TaskFailed,
    TaskFenced,
    classify_kafka,
    log_context,
)

_REPORT_S = 1.0
"""How long to wait for the report of a refused record, from a client that only reports that it cannot continue."""
_REPORT_POLL_S = 0.02
_ASK_S = 1.0
#: How long to wait for the number of partitions, from a broker that is busy or does not know a new topic yet.
_TOLD_S = 5.0
_PAUSE_S = 0.05
"""Pause between two queries of the number of partitions."""


class SourceTransaction:
    """The transactions of a run, one after the other, through one `SourceDelivery`. `receipts`: for a task that
    wants to be notified of its records.
    """

    def __init__(
        self,
        spec: RunSpec,
        settings: SourceSettings,
        link: RunLink,
        outlet: SourceDelivery,
        failures: DeliveryFailures,
        receipts: DeliveryReports | None,
    ) -> None:
        self.sent: Counter[str] = Counter()
        """Records by topic."""
        self._spec = spec
        self._link = link
        self._outlet = outlet
        self._failures = failures
        self._receipts = receipts
        self._timeout_ms = settings.transaction_timeout_ms
        self._begun_s = 0.0
        self._pending: dict[bytes, bytes | None] = {}
        #: by topic, for topics for which a task chose partitions; queried again for a partition past the number.
        self._partition_counts: dict[str, int] = {}
        #: topics to which each commit writes its offsets; none if the worker keeps them.
        self.offsets_topics = [topic for topic in (settings.offsets_topic, settings.offsets_copy) if topic]
        if spec.source_offsets is not None:
            self.offsets_topics = []

    def refuse_overdue(self) -> None:
        """Raises TaskFailed: RETRIABLE, when the transaction is open for longer than Kafka allows: Kafka aborts it
        then, and the next call would fail as if another owner had taken over.
        """
        if self._is_overdue():
            raise TaskFailed(
                f"the task has not ended the transaction it began {self._timeout_ms} ms ago, and Kafka leaves none "
                "open for longer: raise producer.override.transaction.timeout.ms, or have the connector end "
                "transactions sooner",
                ErrorClass.RETRIABLE,
            )

    @property
    def is_open(self) -> bool:
        """True from `begin` on, until it is committed or aborted."""
        return self._outlet.is_open

    def begin(self) -> None:
        """Begin a transaction. Raises TaskFenced."""
        self._outlet.begin()
        self._begun_s = time.monotonic()

    def take(self, batch: SourceBatch) -> None:
        """Set the batch from which the next produced records come."""
        if self._receipts is not None:
            self._receipts.begin(batch)

    def produce(self, raw: Batch) -> producing.Refused:
        """Queue converted records. Returns those that the client refuses, and those with an invalid topic name (a
        transformation may produce any name). Raises KafkaException, as `producing.produce`.
        """
        if raw.topic not in self.sent and (why := why_no_topic(raw.topic)):
            error = KafkaError(KafkaError.TOPIC_EXCEPTION, why)
            return [(place, error) for place in range(len(raw.values))]
        if raw.partition is not None and raw.partition >= self._partition_counts.get(raw.topic, 0):
            count = self._count_partitions(raw.topic)
            if count and raw.partition >= count:
                text = f"topic {raw.topic} has {count} partitions, and none with the number {raw.partition}"
                error = KafkaError(KafkaError._UNKNOWN_PARTITION, text)  # pyright: ignore[reportPrivateUsage]
                return [(place, error) for place in range(len(raw.values))]
        reports: Sequence[Report] = () if self._receipts is None else self._receipts.of(raw.places)
        outlet = self._outlet
        refused = producing.produce(outlet.producer, raw, reports, outlet.raise_lost, outlet.columns)
        self.sent[raw.topic] += len(raw.values) - len(refused)
        return refused

    def _count_partitions(self, topic: str) -> int:
        """The number of partitions; 0 when it is still unknown after `_TOLD_S`. It must be checked before, because the
        client accepts a record for a missing partition (even of a topic that it has written to), and reports it only at
        the commit, which then fails as a whole.
        """
        until_s = time.monotonic() + _TOLD_S
        while not (count := self._ask_partitions(topic)) and time.monotonic() < until_s:
            self._outlet.producer.poll(_PAUSE_S)
            self._outlet.raise_lost()
        self._partition_counts[topic] = count
        return count

    def _ask_partitions(self, topic: str) -> int:
        """The number of partitions; 0 when the broker does not return it."""
        try:
            return len(self._outlet.producer.list_topics(topic, _ASK_S).topics[topic].partitions)
        except KafkaException:
            return 0

    def move(self, key: bytes, value: bytes | None) -> None:
        """Add an offset to the transaction, in the bytes of the offsets topic."""
        self._pending[key] = value

    def commit(self) -> None:
        """Commit its records with their offsets, or pass the offsets to the worker afterwards. `sent` is kept.

        Raises:
            TaskFenced: as `SourceDelivery.commit`; also TaskFailed, possibly with the reason why Kafka refused its
            records.
        """
        with log_context.offsets_of(self._spec):
            try:
                self._outlet.commit(self._pending, self.offsets_topics, self.sent.keys())
            except TaskFenced as error:
                if not (self._outlet.is_transactional and self._is_overdue()):
                    raise
                raise TaskFenced(
                    f"{error}; or it was Kafka that ended the transaction, which took longer than "
                    f"transaction.timeout.ms ({self._timeout_ms}): raise producer.override.transaction.timeout.ms, or "
                    "have transactions end sooner (transaction.boundary)"
                ) from error
            except (TaskFailed, KafkaException) as error:
                self.raise_refused(error)
                raise
            if self._spec.source_offsets is not None:
                self._link.store_offsets(self._pending)
        self._pending.clear()

    def report_commit(self) -> None:
        """Notify the task of its records after the commit."""
        if self._receipts is not None:
            self._receipts.report_commit()

    def discard_records(self) -> None:
        """Abort the records, and begin another transaction with the offsets alone, as Connect does for a task that
        requests an abort.
        """
        self._abort()
        if self._receipts is not None:
            self._receipts.abandon()
        self.begin()

    def abandon(self) -> None:
        """Abort it with its offsets, so that its records are polled again. With at-least-once delivery records cannot
        be aborted: only the last batch, which failed in part, is dropped from the reports; earlier ones must still be
        committed.
        """
        if not self._outlet.is_transactional:
            if self._receipts is not None:
                self._receipts.forget_last()
            return
        self._abort()
        self._pending.clear()
        if self._receipts is not None:
            self._receipts.forget()

    def raise_refused(self, error: Exception) -> None:
        """Raise TaskFailed with the reason why Kafka refused its records, which explains more than the error of the
        call that failed because of it. Returns when Kafka refused none.

        From the moment it learns of a refusal, the client rejects all calls, and reports the refusal a little later.
        For records queued as columns, without the one that has their report, it never does; a query of the
        transaction's error shows the reason then. Raises TaskFenced if that is the reason.
        """
        cause = _refusal(error)
        deadline_s = time.monotonic() + (0 if cause is None else _REPORT_S)
        self._outlet.producer.poll(0)
        while not self._failures and time.monotonic() < deadline_s:
            self._outlet.producer.poll(_REPORT_POLL_S)
        if self._failures.names_culprit:
            self._failures.raise_first()
        if cause is not None:
            asked = self._outlet.fence.trouble() if cause.code() == KafkaError._STATE else None
            cause = asked or cause
            found = classify_kafka(cause)
            if asked is not None or found is not ErrorClass.RETRIABLE:
                raise TaskFailed(f"Kafka refused records: {cause.str()}", found) from KafkaException(cause)
        self._failures.raise_first()

    def _is_overdue(self) -> bool:
        return (time.monotonic() - self._begun_s) * 1000 >= self._timeout_ms

    def _abort(self) -> None:
        self._outlet.abort()
        self.sent.clear()
        self._failures.forget()


def _refusal(error: Exception) -> KafkaError | None:
    """The client's error, if it may be about the state in which a refused record leaves a transaction."""
    found = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(found, KafkaException):
        return None
    cause: KafkaError = found.args[0]
    return cause if cause.code() == KafkaError._STATE or cause.txn_requires_abort() else None
