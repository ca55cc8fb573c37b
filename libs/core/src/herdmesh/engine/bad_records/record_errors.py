"""Error handling of a run, put together from the connector's `errors.*` settings.

Owns the choice of reporters and their order (the log first, then the dead letter queue), and the clients they need.
`tolerance` handles a failure; `error_reports` describes it; `dead_letters` stores it.

Invariant: a connector that sets no `errors.*` has no reporter and no client for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient

from herdmesh.connect.chain import SinkChain
from herdmesh.connect.clients import client_settings
from herdmesh.connect.errors import ConnectError, RecordTooLargeError
from herdmesh.connect.model import Batch
from herdmesh.connect.spi import SourceBatch
from herdmesh.engine.bad_records.dead_letters import SinkDeadLetters, SourceDeadLetters, make_topic, size_max
from herdmesh.engine.bad_records.errant_records import ErrantRecords
from herdmesh.engine.bad_records.error_reports import LogReporter
from herdmesh.engine.bad_records.tolerance import (
    KAFKA_PRODUCE,
    Counts,
    ErrorSettings,
    FailedRecords,
    Failure,
    Reporter,
    SourceRecord,
    Tolerance,
    error_settings,
)
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import RunEnd, RunSpec, access_of

PRODUCER_CLASS = "org.apache.kafka.clients.producer.KafkaProducer"

_log = logging.getLogger(__name__)


class SinkErrors:
    """Error handling of a sink task's run."""

    def __init__(self, spec: RunSpec, admin: AdminClient, chain: SinkChain) -> None:
        """Creates the dead letter queue's topic and producer, if the config has one. `chain`: its converters write
        records that a task created.

        Raises:
            ConfigError: an invalid setting.
            TaskFailed: the topic does not exist and cannot be created.
        """
        self._settings = settings = error_settings(spec.connector_config, spec.worker_config)
        self.counts = Counts()
        self._letters: SinkDeadLetters | None = None
        if settings.dead_letters:
            make_topic(_queue_admin(spec, admin), settings)
            self._letters = _sink_letters(spec, settings, self.counts)
        self._failed = FailedRecords(settings, self.counts, _reporters(spec, settings, self.counts, self._letters))
        self.tolerates = settings.tolerate
        self._read: Sequence[Message] = ()
        #: exists with or without reporters: the task reports failed records through it.
        self.errant = ErrantRecords(self._failed, self.flush_dead_letters, chain)
        self.reporter = self.errant if settings.reports else None

    def tolerance(
        self, *, pause: Callable[[float, bool], RunEnd | None], requested_delay_ms: Callable[[], int | None]
    ) -> Tolerance:
        """The error policy of the run's loop. Arguments as of `Tolerance`."""
        return Tolerance(
            self._settings, self._failed, origin=self._origin, pause=pause, requested_delay_ms=requested_delay_ms
        )

    def begin(self, read: Sequence[Message]) -> None:
        """Set the records, read from one partition, among which the next failures are."""
        self._read = read

    def flush_dead_letters(self) -> None:
        """Wait until no dead letter is in flight. Raises TaskFailed when that takes too long."""
        if self._letters is not None:
            self._letters.flush()
        self.errant.complete_reports()

    @property
    def is_ending(self) -> bool:
        """True once the reporter raised the error that ends the run."""
        return self.errant.is_ending

    def raise_swallowed(self) -> None:
        """Raise the reporter's error if it ends the run and the task caught it."""
        self.errant.raise_swallowed()

    def poll_producer(self) -> None:
        """Poll the producer, so that it runs its callbacks."""
        if self._letters is not None:
            self._letters.producer.poll(0)

    def close(self) -> None:
        """Release the producer, after a short wait for records in flight."""
        if self._letters is not None:
            self._letters.close()

    def _origin(self, _batch: Batch, at: int) -> Message:
        return self._read[at]


class SourceErrors:
    """Error handling of a source task's run."""

    def __init__(self, spec: RunSpec, admin: AdminClient) -> None:
        """Like a sink's."""
        self._settings = settings = error_settings(spec.connector_config, spec.worker_config)
        self.counts = Counts()
        self.letters: SourceDeadLetters | None = None
        if settings.dead_letters:
            make_topic(admin, settings)
            self.letters = SourceDeadLetters(
                spec, settings, self.counts, lambda: size_max(admin, settings.dead_letters)
            )
        self._failed = FailedRecords(settings, self.counts, _reporters(spec, settings, self.counts, self.letters))
        self._polled: SourceBatch | None = None

    def tolerance(self, *, pause: Callable[[float, bool], RunEnd | None]) -> Tolerance:
        """The error policy of the run's loop. `pause` as of `Tolerance`."""
        return Tolerance(self._settings, self._failed, origin=self._origin, pause=pause)

    def begin(self, polled: SourceBatch) -> None:
        """Set the batch of the records that fail from now on."""
        self._polled = polled

    def refused(self, batch: Batch, at: int, error: KafkaError, topic: str, size_bytes: int) -> None:
        """Handle a record that the producer will never send, of `size_bytes`. Raises RecordError unless errors are
        tolerated.
        """
        origin = self._origin(batch, at)
        message = f"Kafka refused a record for topic {topic}: {error.str()}"
        kind = RecordTooLargeError if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else ConnectError
        if kind is RecordTooLargeError:
            message += (
                f": the record of source offset {origin.source_offset} (partition {origin.source_partition}) has "
                f"{size_bytes} bytes of key and value; raise producer.override.max.request.size, and the topic's "
                "max.message.bytes where that is smaller"
            )
        failure = Failure(KAFKA_PRODUCE, PRODUCER_CLASS, kind(message), origin)
        self._failed.add_outside(failure)

    def _origin(self, batch: Batch, at: int) -> SourceRecord:
        polled = self._polled
        assert polled is not None
        return SourceRecord(batch, at, polled.source_partition, polled.source_offset)


def _queue_admin(spec: RunSpec, admin: AdminClient) -> AdminClient:
    """The admin client that creates a sink's queue: `admin`, with the consumer's login, unless the config has an admin
    client.
    """
    given = client_settings("admin", spec.worker_config, spec.connector_config)
    for warning in given.warnings:
        _log.warning("%s", warning.message)
    wanted = {**given.config, **access_of(spec, "admin", "consumer")}
    return admin if wanted == access_of(spec, "consumer") else clients.admin(spec, wanted)


def _sink_letters(spec: RunSpec, settings: ErrorSettings, counts: Counts) -> SinkDeadLetters:
    given = client_settings("producer", spec.worker_config, spec.connector_config)
    for warning in given.warnings:
        _log.warning("%s", warning.message)
    config = {**given.config, **access_of(spec, "producer", "consumer")}
    contact = clients.contact(spec, config, settings.dead_letters)
    return SinkDeadLetters(spec, settings, counts, clients.dead_letter_producer(spec, config, contact.note), contact)


def _reporters(spec: RunSpec, settings: ErrorSettings, counts: Counts, letters: Reporter | None) -> Sequence[Reporter]:
    found: list[Reporter] = []
    if settings.log:
        found.append(LogReporter(spec.connector, spec.task, counts, messages=settings.log_messages))
    if letters is not None:
        found.append(letters)
    return found
