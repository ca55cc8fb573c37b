"""Dead letters of a sink task's run.

Owns their producer's queue and the moment when they are safe. A sink's dead letters have the bytes, headers and time
with which the record was read, and go through a producer of their own, since a task's transaction has only offsets in
it. The loop commits no offset before the dead letters of the records below it are acknowledged (`flush`), so that none
is missing and, after a crash between the two, some may be duplicated, even if the sink itself is exactly-once.

A dead letter that is rejected for its size is retried alone, as it may have shared a request with others, and is cut
when it is rejected alone (`dead_letter`).

Invariant: once a dead letter is rejected, every later `report` and `flush` raises: no offset is committed in this run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from herdmesh.connect.config import escaped, redacted
from herdmesh.engine.bad_records.dead_letters import queue
from herdmesh.engine.bad_records.dead_letters.dead_letter import DeadLetter, Header
from herdmesh.engine.bad_records.error_reports import context_headers, place_of
from herdmesh.engine.bad_records.tolerance import Counts, ErrorSettings, Failure, SourceRecord
from herdmesh.engine.librdkafka import forgotten, raise_guess
from herdmesh.engine.runtime import RunSpec, TaskFailed, message_of
from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.callback_exceptions import raise_pending
from herdmesh.kafka.checked_producer import CheckedProducer

CLOSE_S: Final = 5.0
_AGAIN_MAX: Final = 20
"""Maximum number of dead letters that wait for their retry: they may be large."""
#: Errors that may come from other records in the request.
_ALONE_CODES: Final = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_DIFFERENT_RECORD))
_PURGED: Final = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))


class SinkDeadLetters:
    """The dead letters of one run. Used from the loop's thread only."""

    def __init__(
        self, spec: RunSpec, settings: ErrorSettings, counts: Counts, producer: CheckedProducer, contact: Contact
    ) -> None:
        """`producer`: idempotent, used for nothing else. `contact`: of that producer."""
        self.producer = producer
        self._contact = contact
        self._spec = spec
        self._topic = settings.dead_letters
        self._with_context = settings.context_headers
        self._counts = counts
        self._again: list[DeadLetter] = []
        self._refused: TaskFailed | None = None

    def report(self, failure: Failure) -> None:
        """Queue the record's dead letter.

        Raises:
            TaskFailed: a dead letter was rejected; RETRIABLE, when the producer's queue does not empty.
            KafkaException: an outage, as the producer has forgotten its brokers (`Contact`).
        """
        self._raise_refused()
        self._counts.dead_letters += 1
        letter = self._letter(failure)
        error = queue.queued(self.producer, self._topic, letter, partial(self._delivered, letter), self._raise_lost)
        if error is not None:
            self._not_taken(letter, error)
        if len(self._again) >= _AGAIN_MAX:
            self._try_again()

    def flush(self) -> None:
        """Wait until each dead letter is acknowledged.

        Raises:
            TaskFailed: a dead letter was rejected; RETRIABLE, after a minute without reports, or when the client only
                inferred an acknowledgement (`raise_guess`).
            KafkaException: as `report`.
        """
        if len(self.producer):
            queue.flush(self.producer, self._topic, self._raise_lost)
        if self._again:
            self._try_again()
        self._raise_refused()
        raise_guess(self.producer)

    def close(self) -> None:
        """Wait briefly for queued dead letters, and discard the rest: their offsets are not committed."""
        # waits: for CLOSE_S at most
        if len(self.producer) and (self._contact.is_in_doubt or self.producer.flush(CLOSE_S)):
            self.producer.purge()
            self.producer.poll(0)

    def _letter(self, failure: Failure) -> DeadLetter:
        message = failure.record
        assert not isinstance(message, SourceRecord)
        kind, time_ms = message.timestamp()
        return DeadLetter(
            message.key(),
            message.value(),
            cast("Sequence[Header]", message.headers() or ()),
            context_headers(self._spec.connector, self._spec.task, failure),
            None if kind == TIMESTAMP_NOT_AVAILABLE else time_ms,
            place_of(failure),
            escaped(redacted(message_of(failure.error))),
            self._with_context,
        )

    def _delivered(self, letter: DeadLetter, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        raise_pending(error.code)
        if error.code() not in _PURGED:
            self._not_taken(letter, error)

    def _not_taken(self, letter: DeadLetter, error: KafkaError) -> None:
        if error.code() in _ALONE_CODES:
            self._again.append(letter)
        else:
            self._count_failed(letter, error)

    def _count_failed(self, letter: DeadLetter, error: KafkaError) -> None:
        self._counts.dead_letters_failed += 1
        if self._refused is None:
            self._refused = queue.refusal(self._topic, letter, error)

    def _try_again(self) -> None:
        """Send those that were rejected together with others again, each alone, cut if they are too large."""
        queue.flush(self.producer, self._topic, self._raise_lost)
        again, self._again = self._again, []
        for letter in again:
            error: KafkaError | None = None
            for form in letter.forms():
                error = self._alone(form)
                if error is None and form.is_cut:
                    self._counts.dead_letters_cut += 1
                    queue.log_cut(self._topic, letter)
                if error is None or error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    break
            if error is not None:
                self._count_failed(letter, error)

    def _alone(self, letter: DeadLetter) -> KafkaError | None:
        """Send one and wait for its delivery report."""
        outcome: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            raise_pending(_message.topic)
            outcome.append(error)

        error = queue.queued(self.producer, self._topic, letter, delivered, self._raise_lost)
        if error is not None:
            return error
        queue.flush(self.producer, self._topic, self._raise_lost)
        return outcome[0]

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._refused

    def _raise_lost(self) -> None:
        if self._contact.is_lost(self.producer):
            raise forgotten()
