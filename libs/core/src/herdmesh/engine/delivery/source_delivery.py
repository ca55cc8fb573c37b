"""Delivery of a source's records, exactly once or at least once (`herdmesh.delivery.guarantee`; ADR 0003, ADR 0012).

Owns the two ways. Exactly once: records and offsets are in one transaction of the fence. At least once: records go
through a producer of their own, outside of transactions, and are visible at once; when all are acknowledged, their
offsets are committed in a transaction of the fence that has nothing else. The loop decides when to commit, and what.

Invariant: an offset is committed under the fence only, and never before a record that it covers. So a fenced owner may
duplicate records if the user chose at least once, but moves no offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.delivery import producing
from herdmesh.engine.delivery.delivery_reports import DeliveryFailures
from herdmesh.engine.fencing import TRANSACTIONS_TOPIC, Fence, held
from herdmesh.engine.librdkafka import RETRY_TIMEOUT_S, Unacknowledged, clients, column_queue
from herdmesh.engine.runtime import RunSpec, SourceSettings, TaskFailed, failpoints, progress_ticks
from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.checked_producer import CheckedProducer

_TURN_S = 1.0

_log = logging.getLogger(__name__)


class SourceDelivery:
    """Exactly-once delivery."""

    is_transactional = True
    """Records are in the fence's transaction from `begin` on: invisible before `commit`, and they can be aborted."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.producer = fence.producer
        """Producer of the records."""
        self.columns = column_queue(fence.producer)
        """Its faster queue for records without a report each: a commit fails when Kafka rejected one of them."""

    @property
    def is_open(self) -> bool:
        """True between `begin` and `commit`: there may be records whose offsets are not committed."""
        return self.fence.in_transaction

    def begin(self) -> None:
        """Begin a commit unit: records produced from now on belong to the next commit. Raises TaskFenced."""
        self.fence.begin()

    def commit(
        self, offsets: Mapping[bytes, bytes | None], topics: Sequence[str], sends_to: Collection[str] = ()
    ) -> None:
        """Return once the records are acknowledged and visible, and the offsets are in the offsets topics.

        Args:
            topics: the offsets topics; none = the worker keeps the offsets.
            sends_to: the topics of the records, named in the task's status while no broker acknowledges them.

        Raises:
            TaskFenced: as `Fence.commit`; also TaskFailed.
            KafkaException: the client rejects the offsets, or is lost (`raise_lost`).
        """
        self._write(offsets, topics)
        self.fence.commit((*sends_to, *topics))

    def abort(self) -> None:
        """Abort the records since `begin`; only for a transactional delivery. Raises as `Fence.commit`."""
        self.fence.abort()

    def is_lost(self) -> bool:
        """Like `Fence.is_lost`, for all its producers."""
        return self.fence.is_lost()

    @property
    def is_in_doubt(self) -> bool:
        """Like `Fence.is_in_doubt`, for all its producers."""
        return self.fence.is_in_doubt

    def raise_lost(self) -> None:
        """Like `Fence.raise_lost`, for all its producers."""
        if self.is_lost():
            raise clients.forgotten()

    def raise_fatal(self, error: KafkaException) -> None:
        """See `Fence.raise_fatal`."""
        self.fence.raise_fatal(error)

    def poll_clients(self, admin: AdminClient) -> None:
        """See `clients.poll_clients`."""
        clients.poll_clients(self.producer, admin)

    def close(self) -> None:
        """See `Fence.close`."""
        self.fence.close()

    def _write(self, offsets: Mapping[bytes, bytes | None], topics: Sequence[str]) -> None:
        for topic in topics:
            producing.produce_all(self.fence.producer, topic, offsets, self.fence.raise_lost)


class AtLeastOnce(SourceDelivery):
    """At-least-once delivery: every acknowledged record stays, and is sent again unless its offset is committed,
    too."""

    is_transactional = False

    def __init__(self, fence: Fence, producer: CheckedProducer, contact: Contact, failures: DeliveryFailures) -> None:
        """`producer`: idempotent, not transactional, used for nothing else; reports to `failures`. `contact`: of that
        producer.
        """
        super().__init__(fence)
        self.producer = producer
        self.columns = None  # only its report shows that a record was rejected
        self._contact = contact
        self._failures = failures
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """See `SourceDelivery`."""
        return self._is_open

    def begin(self) -> None:
        """See `SourceDelivery`."""
        self._is_open = True

    def commit(
        self, offsets: Mapping[bytes, bytes | None], topics: Sequence[str], sends_to: Collection[str] = ()
    ) -> None:
        """See `SourceDelivery`.

        Raises also TaskFailed: the reason why Kafka rejected records, or RETRIABLE: not all are acknowledged after a
        minute. No offset is committed then, and all acknowledged records will be sent again.
        """
        self._settle(sends_to)
        failpoints.hit("before-offset-commit")
        if topics:
            self.fence.begin()
            self._write(offsets, topics)
            self.fence.commit(topics)
        self._is_open = False

    def is_lost(self) -> bool:
        """See `SourceDelivery`."""
        return super().is_lost() or self._contact.is_lost(self.producer)

    @property
    def is_in_doubt(self) -> bool:
        """See `SourceDelivery`."""
        return super().is_in_doubt or self._contact.is_in_doubt

    def raise_fatal(self, error: KafkaException) -> None:
        """See `SourceDelivery`. An error of the records' own producer is complete in itself."""
        if self.fence.in_transaction:
            super().raise_fatal(error)

    def poll_clients(self, admin: AdminClient) -> None:
        """See `SourceDelivery`."""
        super().poll_clients(admin)
        self.fence.producer.poll(0)

    def close(self) -> None:
        """See `SourceDelivery`. Discards records in flight: their offsets are not committed."""
        try:
            self.producer.purge()
            self.producer.poll(0)
        except KafkaException as error:
            _log.info("the producer of the records is abandoned: %s", error)
        super().close()

    def _settle(self, sends_to: Collection[str]) -> None:
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        before = len(self.producer)
        with Unacknowledged(self.producer, self.fence.waits_for, sends_to) as doubt:
            while before and (left := self.producer.flush(_TURN_S)):  # waits: reported by `doubt`
                if left == before:
                    self._contact.doubt()
                before = left
                self.raise_lost()
                progress_ticks.moved()
                doubt.note()
                if time.monotonic() >= deadline_s:
                    raise TaskFailed(
                        f"records are not acknowledged after {RETRY_TIMEOUT_S:g} s; no offset is committed, and they "
                        "are sent again",
                        ErrorClass.RETRIABLE,
                    )
        self._failures.raise_first()
        clients.raise_guess(self.producer)


def outlet(spec: RunSpec, settings: SourceSettings, failures: DeliveryFailures, *, reports: bool) -> SourceDelivery:
    """The delivery that a run's settings require. `reports`: of the records, as in `clients.producer`.

    Raises:
        ConfigError: as `clients.producer`.
    """
    if not settings.at_least_once:
        return SourceDelivery(held(spec, settings.producer, failures.add, reports=reports))
    fence = held(spec, {"client.id": f"connector-offsets-producer-{spec.connector}-{spec.task}", **settings.producer})
    contact = clients.contact(spec, settings.producer, TRANSACTIONS_TOPIC)
    producer = clients.producer(
        spec, settings.producer, failures.add, reports=reports, on_error=contact.note, is_fenced=False
    )
    return AtLeastOnce(fence, producer, contact, failures)
