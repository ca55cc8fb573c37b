"""Dead letters of a source task's run.

Owns those that wait for the transaction, and their cut before sending. A source's dead letters go where its records go,
in the transaction of their batch: visible exactly when its offset is (with at-least-once delivery: before it is).
Connect has none for sources; a source's record has no bytes yet, so key, value and headers are JSON with schema
(JsonConverter), as the task returned them.

A record that the broker rejects spoils the whole transaction, so a dead letter cannot be tried whole first: one that is
larger than the topic's limit without compression is cut before it is sent, and a request has no more of them than the
topic accepts.

Invariant: a dead letter that Kafka rejects fails the run before its transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message

from herdmesh.connect.config import escaped, redacted
from herdmesh.connect.converters import Converter, make_converter
from herdmesh.connect.model import OPTIONAL_STRING, Header, Schema
from herdmesh.engine.bad_records.dead_letters import queue
from herdmesh.engine.bad_records.dead_letters.dead_letter import DeadLetter
from herdmesh.engine.bad_records.error_reports import context_headers, place_of
from herdmesh.engine.bad_records.tolerance import Counts, ErrorSettings, Failure, SourceRecord
from herdmesh.engine.delivery import DeliveryFailures, SourceDelivery
from herdmesh.engine.runtime import RunSpec, message_of
from herdmesh.kafka.callback_exceptions import raise_pending

_JSON = "org.apache.kafka.connect.json.JsonConverter"


class SourceDeadLetters:
    """The dead letters of one run; they wait here until there is a transaction for them."""

    def __init__(
        self, spec: RunSpec, settings: ErrorSettings, counts: Counts, size_max_bytes: Callable[[], int]
    ) -> None:
        """`size_max_bytes`: the topic's limit; queried with the first dead letter of the run."""
        self._spec = spec
        self._topic = settings.dead_letters
        self._with_context = settings.context_headers
        self._counts = counts
        self._key, self._value = _json("key"), _json("value")
        self._waiting: list[DeadLetter] = []
        self._ask_size_max = size_max_bytes
        self._size_max_bytes = 0

    def __len__(self) -> int:
        """The number of waiting dead letters."""
        return len(self._waiting)

    def report(self, failure: Failure) -> None:
        """Keep the record for `send`."""
        self._counts.dead_letters += 1
        record = failure.record
        assert isinstance(record, SourceRecord)
        batch, at = record.batch, record.at
        own: list[Header] = batch.headers[at] if batch.headers else []
        self._waiting.append(
            DeadLetter(
                _written(self._key, batch.keys[at] if batch.keys else None, batch.key_schema),
                _written(self._value, batch.values[at], batch.value_schema),
                [(one.key, _written(self._value, one.value, one.schema)) for one in own],
                context_headers(self._spec.connector, self._spec.task, failure),
                batch.timestamps_ms[at] if batch.timestamps_ms else None,
                place_of(failure),
                escaped(redacted(message_of(failure.error))),
                self._with_context,
            )
        )

    def forget(self) -> None:
        """Discard them, because the batch is not sent: its records will be polled, and fail, again."""
        self._waiting.clear()

    def send(self, outlet: SourceDelivery, failures: DeliveryFailures) -> None:
        """Produce the waiting dead letters like records. Later rejections by Kafka go to `failures`.

        Raises:
            TaskFailed: the client rejects one in every form.
            KafkaException: as `SourceDelivery.raise_lost`.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._size_max_bytes = self._size_max_bytes or self._ask_size_max()
        in_flight_bytes = 0
        for letter in waiting:
            forms = letter.forms()
            fitting = [one for one in forms if one.size_bytes <= self._size_max_bytes] or forms[-1:]
            if in_flight_bytes + fitting[0].size_bytes > self._size_max_bytes:
                queue.flush(outlet.producer, self._topic, outlet.raise_lost)
                in_flight_bytes = 0
            in_flight_bytes += fitting[0].size_bytes
            self._send(letter, fitting, outlet, failures)

    def _send(
        self, letter: DeadLetter, forms: Sequence[DeadLetter], outlet: SourceDelivery, failures: DeliveryFailures
    ) -> None:
        error: KafkaError | None = None
        for form in forms:
            told = partial(self._delivered, letter, failures)
            error = queue.queued(outlet.producer, self._topic, form, told, outlet.raise_lost)
            if error is None and form.is_cut:
                self._counts.dead_letters_cut += 1
                queue.log_cut(self._topic, letter)
            if error is None or error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                break
        if error is not None:
            self._counts.dead_letters_failed += 1
            raise queue.refusal(self._topic, letter, error)

    def _delivered(
        self, letter: DeadLetter, failures: DeliveryFailures, error: KafkaError | None, _message: Message
    ) -> None:
        if error is None:
            return
        raise_pending(error.code)
        if failures.add(error, None, queue.refusal(self._topic, letter, error)):
            self._counts.dead_letters_failed += 1


def _json(role: Any) -> Converter:
    return make_converter("converter", {"converter": _JSON}, role=role)


def _written(converter: Converter, value: Any, schema: Schema | None) -> bytes | None:
    """JSON with the schema. A value that does not fit its schema, which may be the failure itself, is written as
    text."""
    if value is None and schema is None:
        return None
    try:
        return converter.write(value, schema)
    except Exception:  # noqa: BLE001 - the dead letter is sent, whatever is wrong with the value
        return converter.write(repr(value), OPTIONAL_STRING)
