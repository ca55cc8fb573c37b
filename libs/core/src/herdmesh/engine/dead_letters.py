"""Dead letters: records that failed, put into a topic of their own (reference data-model 5.4).

Owns the topic, what a letter is made of, and when it is safe. A sink's letters have the bytes, headers and time the
record was read with, and go through a producer of their own, since a task's transaction has only offsets in it. The
loop commits no offset before the letters of the records below it are acknowledged (`settle`), so that no letter is
missing and, after a crash between the two, some may be there twice, also where the sink itself is exactly-once. A
source's letters go where its records go, and are in the transaction of the batch they are from: there exactly when its
offset is (at least once: before it is). Connect has none for sources; a source's record has no bytes yet, so key, value
and headers are JSON with schema (JsonConverter), as the task gave them.

Invariant: a letter that Kafka does not take is counted and logged, and ends no run: as in Connect, the record is lost
then. Only a source's letter that the broker refuses once it is in the transaction cannot be left out of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.converters import make_converter
from herdmesh.connect.converters.base import Converter
from herdmesh.connect.data import Header
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.schemas import OPTIONAL_STRING, Schema
from herdmesh.engine import pulse
from herdmesh.engine.clients import RETRY_TIMEOUT_S, forgotten, raise_guess
from herdmesh.engine.contract import ErrorClass, RunSpec
from herdmesh.engine.error_reports import context_headers
from herdmesh.engine.errors import TaskFailed
from herdmesh.engine.failure import classify_kafka
from herdmesh.engine.outlet import Outlet
from herdmesh.engine.source_offsets import ensure_topic
from herdmesh.engine.tolerance import Counts, ErrorSettings, Failure, SourceRecord
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.contact import Contact

PARTITIONS = 1
CLOSE_S = 5.0
_QUEUE_PAUSE_S = 0.05
_TURN_S = 1.0
_FACTOR = "errors.deadletterqueue.topic.replication.factor"
_JSON = "org.apache.kafka.connect.json.JsonConverter"

_log = logging.getLogger(__name__)


def make_topic(admin: AdminClient, settings: ErrorSettings) -> None:
    """Create the queue's topic unless it exists.

    Raises:
        TaskFailed: with Connect's text, the cause, and what to change when that is known.
    """
    topic = settings.dead_letters
    failed = f"Could not initialize dead letter queue with topic={topic}"
    try:
        ensure_topic(admin, topic, PARTITIONS, settings.replication_factor, {})
    except ConfigError as error:
        fix = f"; set {_FACTOR} (it is {settings.replication_factor}) to at most the number of brokers"
        raise TaskFailed(f"{failed}: {error}{fix}", ErrorClass.BAD_CONFIG) from error
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        raise TaskFailed(f"{failed}: {cause.str()}", classify_kafka(cause)) from error


class SinkDeadLetters:
    """The letters of a sink task's run."""

    def __init__(
        self, spec: RunSpec, settings: ErrorSettings, counts: Counts, producer: CheckedProducer, contact: Contact
    ) -> None:
        """`producer`: idempotent, and nobody else's. `contact`: its."""
        self.producer = producer
        self._contact = contact
        self._spec = spec
        self._settings = settings
        self._counts = counts

    def report(self, failure: Failure) -> None:
        """Put the record on its way.

        Raises:
            TaskFailed: RETRIABLE, when the producer's queue does not empty.
            KafkaException: an outage, as the producer has forgotten its brokers (`Contact`).
        """
        self._counts.dead_letters += 1
        message = failure.record
        assert not isinstance(message, SourceRecord)
        headers: list[Any] = [*(message.headers() or ())]
        if self._settings.context_headers:
            headers += context_headers(self._spec.connector, self._spec.task, failure)
        kind, time_ms = message.timestamp()
        more: dict[str, Any] = {"headers": headers} if headers else {}
        if kind != TIMESTAMP_NOT_AVAILABLE:
            more["timestamp"] = time_ms
        topic = self._settings.dead_letters
        more["on_delivery"] = self._delivered
        if not _queued(self.producer, self._raise_lost, topic, message.key(), message.value(), **more):
            self._counts.dead_letters_failed += 1

    def settle(self) -> None:
        """Return once each letter is acknowledged, or known to be lost.

        Raises:
            TaskFailed: RETRIABLE, when nobody says which in a minute, or the client guesses (`raise_guess`).
            KafkaException: as `report`.
        """
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        while len(self.producer) and self.producer.flush(_TURN_S):
            self._raise_lost()
            pulse.moved()
            if time.monotonic() >= deadline_s:
                raise TaskFailed(
                    f"dead letters are not acknowledged by {self._settings.dead_letters}; no offset is committed",
                    ErrorClass.RETRIABLE,
                )
        raise_guess(self.producer)

    def close(self) -> None:
        """Wait a little for what is on its way, and give the rest up: its offsets are not committed."""
        if len(self.producer) and (self._contact.is_in_doubt or self.producer.flush(CLOSE_S)):
            self.producer.purge()
            self.producer.poll(0)

    def _raise_lost(self) -> None:
        if self._contact.is_lost(self.producer):
            raise forgotten()

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._counts.dead_letters_failed += 1
            _tell(self._settings.dead_letters, error)


class SourceDeadLetters:
    """The letters of a source task's run: they wait here until there is a transaction for them."""

    def __init__(self, spec: RunSpec, settings: ErrorSettings, counts: Counts) -> None:
        self._spec = spec
        self._settings = settings
        self._counts = counts
        self._key, self._value = _json("key"), _json("value")
        self._waiting: list[tuple[bytes | None, bytes | None, list[Any], int | None]] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def report(self, failure: Failure) -> None:
        """Keep the record for `send`."""
        self._counts.dead_letters += 1
        record = failure.record
        assert isinstance(record, SourceRecord)
        batch, at = record.batch, record.at
        own: list[Header] = batch.headers[at] if batch.headers else []
        headers: list[Any] = [(one.key, _written(self._value, one.value, one.schema)) for one in own]
        if self._settings.context_headers:
            headers += context_headers(self._spec.connector, self._spec.task, failure)
        key = _written(self._key, batch.keys[at] if batch.keys else None, batch.key_schema)
        value = _written(self._value, batch.values[at], batch.value_schema)
        self._waiting.append((key, value, headers, batch.timestamps_ms[at] if batch.timestamps_ms else None))

    def forget(self) -> None:
        """The batch is not sent: its records will be polled, and fail, again."""
        self._waiting.clear()

    def send(self, outlet: Outlet) -> None:
        """Have those that wait go where the records go. Raises KafkaException as `Outlet.raise_lost`."""
        for key, value, headers, time_ms in self._waiting:
            more: dict[str, Any] = {"headers": headers} if headers else {}
            if time_ms is not None:
                more["timestamp"] = time_ms
            if not _queued(outlet.producer, outlet.raise_lost, self._settings.dead_letters, key, value, **more):
                self._counts.dead_letters_failed += 1
        self._waiting.clear()


def _queued(producer: Producer, between: Callable[[], None], topic: str, key: Any, value: Any, **more: Any) -> bool:
    """Queue a letter; False when the client will never send it, which is told. `between`: called at each turn of
    waiting for room. Raises TaskFailed."""
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    while True:
        try:
            producer.produce(topic, value, key, **more)
        except BufferError:
            if time.monotonic() >= deadline_s:
                raise TaskFailed(f"dead letters wait in vain for {topic}", ErrorClass.RETRIABLE) from None
            producer.poll(_QUEUE_PAUSE_S)
            pulse.moved()
            between()
        except KafkaException as error:
            _tell(topic, error.args[0])
            return False
        else:
            producer.poll(0)
            return True


def _tell(topic: str, error: KafkaError) -> None:
    _log.error("Could not produce message to dead letter queue. topic=%s: %s", topic, error.str())


def _json(role: Any) -> Converter:
    return make_converter("converter", {"converter": _JSON}, role=role)


def _written(converter: Converter, value: Any, schema: Schema | None) -> bytes | None:
    """As JSON with its schema; what is no value under its schema, which may be why it failed, as the text of it."""
    if value is None and schema is None:
        return None
    try:
        return converter.write(value, schema)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the letter goes out
        return converter.write(repr(value), OPTIONAL_STRING)
