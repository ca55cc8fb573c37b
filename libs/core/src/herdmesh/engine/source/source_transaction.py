"""Open transaction of a source's run: its records, its offsets, and how it ends.

Owns its records by topic, the offsets it is to move, and where those go: the offsets topics, or the worker's file once
the records are committed (ADR 0003). What a commit is to Kafka is `source_delivery`'s, where records that are sent at
least once are in no transaction of Kafka's. When it ends, and what is told of it, is the loop's.

Invariant: offsets move with all the records before them or not at all; a transaction that is given up leaves no count
of a record behind.
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
"""How long the report of a refused record is waited for, of a client that says only that it cannot go on."""
_REPORT_POLL_S = 0.02
_ASK_S = 1.0
#: Of a broker that is busy, or has yet to tell of a new topic.
_TOLD_S = 5.0
_PAUSE_S = 0.05
"""How long the number of partitions is waited for."""


class SourceTransaction:
    """One after the other, through one outlet. `delivery_reports`: of a task that wants to hear of its records."""

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
        #: of topics for which a task chose partitions; asked for again when one is beyond it.
        self._partition_counts: dict[str, int] = {}
        #: where each commit puts its offsets; none where the worker keeps them.
        self.offsets_topics = [topic for topic in (settings.offsets_topic, settings.offsets_copy) if topic]
        if spec.source_offsets is not None:
            self.offsets_topics = []
        outlet.fence.sends_to = lambda: (*self.sent, *self.offsets_topics)

    def refuse_overdue(self) -> None:
        """Raises TaskFailed: RETRIABLE, when it is open for longer than Kafka leaves it: Kafka ends it then, and what
        comes next would look like another owner's doing."""
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
        """Open one. Raises TaskFenced."""
        self._outlet.begin()
        self._begun_s = time.monotonic()

    def take(self, batch: SourceBatch) -> None:
        """What is produced from now on became of this batch."""
        if self._receipts is not None:
            self._receipts.begin(batch)

    def produce(self, raw: Batch) -> producing.Refused:
        """Queue converted records; those the client refuses, and those whose topic Kafka has no name for (a
        transformation may make any of it). Raises KafkaException, as `producing.produce`."""
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
        """0 when nobody says for `_TOLD_S`. The client takes a record for a partition there is not (also of a
        topic that it has written to), and reports it at the commit, which is the end of the whole transaction."""
        until_s = time.monotonic() + _TOLD_S
        while not (count := self._ask_partitions(topic)) and time.monotonic() < until_s:
            self._outlet.producer.poll(_PAUSE_S)
            self._outlet.raise_lost()
        self._partition_counts[topic] = count
        return count

    def _ask_partitions(self, topic: str) -> int:
        """0 when nobody says."""
        try:
            return len(self._outlet.producer.list_topics(topic, _ASK_S).topics[topic].partitions)
        except KafkaException:
            return 0

    def move(self, key: bytes, value: bytes | None) -> None:
        """Have it move an offset, in the bytes of the offsets topic."""
        self._pending[key] = value

    def commit(self) -> None:
        """Commit its records with their offsets, or hand the offsets to the worker after it. `sent` is kept.

        Raises:
            TaskFenced: as `SourceDelivery.commit`; so TaskFailed, or with what Kafka refused of its records.
        """
        with log_context.offsets_of(self._spec):
            try:
                self._outlet.commit(self._pending, self.offsets_topics)
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

    def told(self) -> None:
        """It is committed: have the task hear of its records."""
        if self._receipts is not None:
            self._receipts.tell()

    def give_up_records(self) -> None:
        """Abort it, and begin another with its offsets alone, as Connect does for a task that asks for an abort."""
        self._abort()
        if self._receipts is not None:
            self._receipts.abandon()
        self.begin()

    def give_up(self) -> None:
        """Abort it, offsets and all: its records are polled again. Of records that cannot be given up (at least once)
        those of the last batch are, which failed in part; what came before is still to be committed."""
        if not self._outlet.is_transactional:
            if self._receipts is not None:
                self._receipts.forget_last()
            return
        self._abort()
        self._pending.clear()
        if self._receipts is not None:
            self._receipts.forget()

    def raise_refused(self, error: Exception) -> None:
        """Raise TaskFailed with what Kafka refused of its records, which says more than the error of a call that could
        not go on for it. Returns when it refused none.

        The client takes no more calls from the moment on when it hears of a refusal, and reports it a little later; or
        never, of records that were queued as columns and not with the one that has their report. It says why when it is
        asked then. Raises TaskFenced when that is why.
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
    """What Kafka's client says, when it may be about the state a refused record leaves a transaction in."""
    found = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(found, KafkaException):
        return None
    cause: KafkaError = found.args[0]
    return cause if cause.code() == KafkaError._STATE or cause.txn_requires_abort() else None
