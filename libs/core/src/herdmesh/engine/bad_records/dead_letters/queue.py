"""Topic of the dead letter queue: its creation, its size limit, sending, and the error of a rejected dead letter.

Owns the texts with the fix. `sink` and `source` know when dead letters are safe.

Invariant: the error of a rejected dead letter names the record's place, the reason of its failure, and the next step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource  # the package re-exports these, but not for type checkers
from confluent_kafka.admin._resource import ResourceType

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import waits
from herdmesh.engine.bad_records.dead_letters.dead_letter import DeadLetter
from herdmesh.engine.bad_records.tolerance import ErrorSettings
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, ensure_topic, retried
from herdmesh.engine.runtime import TaskFailed, classify_kafka, progress_ticks

PARTITIONS: Final = 1
SIZE_KEY: Final = "max.message.bytes"
DEFAULT_SIZE_MAX: Final = 1_048_588
"""Kafka's default of `SIZE_KEY`."""
_QUEUE_PAUSE_S = 0.05
_FACTOR = "errors.deadletterqueue.topic.replication.factor"
_GONE = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
)  # fmt: skip

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
        fix = (
            f"; set {_FACTOR} (it is {settings.replication_factor}) to at most the number of brokers, or the worker's "
            "dead_letter_replication_factor for all connectors that do not set it"
        )
        raise TaskFailed(f"{failed}: {error}{fix}", ErrorClass.BAD_CONFIG) from error
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        raise TaskFailed(f"{failed}: {cause.str()}", classify_kafka(cause)) from error


def size_max(admin: AdminClient, topic: str) -> int:
    """The largest record batch in bytes that the topic accepts; Kafka's default when the broker does not return it."""
    untyped: Any = admin
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def asked() -> str:
        return untyped.describe_configs([resource], request_timeout=CALL_TIMEOUT_S)[resource].result()[SIZE_KEY].value

    try:
        return int(retried(asked))
    except KafkaException as error:
        _log.info(
            "cannot read %s of dead letter queue %s, assuming %d: %s",
            SIZE_KEY, topic, DEFAULT_SIZE_MAX, error,
        )  # fmt: skip
        return DEFAULT_SIZE_MAX


def queued(
    producer: Producer,
    topic: str,
    letter: DeadLetter,
    on_delivery: Callable[[KafkaError | None, Message], None],
    between: Callable[[], None],
) -> KafkaError | None:
    """Queue a dead letter in the client; return the error when the client will never send it. `between`: called at each
    turn of the wait for room. Raises TaskFailed: RETRIABLE, when there is no room for long.
    """
    more: dict[str, Any] = {"headers": letter.headers} if letter.headers else {}
    if letter.time_ms is not None:
        more["timestamp"] = letter.time_ms
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    with waits.Standing() as no_room:
        while True:
            try:
                producer.produce(topic, letter.value, letter.key, on_delivery=on_delivery, **more)
            except BufferError:
                if len(producer) == 0:  # it is larger than the whole buffer
                    return KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "it is larger than producer.buffer.memory")
                if time.monotonic() >= deadline_s:
                    raise TaskFailed(
                        f"dead letters cannot be sent to {topic}: the producer's buffer stays full",
                        ErrorClass.RETRIABLE,
                    ) from None
                no_room.goes_on(
                    f"dead letter queue {topic}", "Kafka accepts no dead letters, and the producer's buffer is full"
                )
                producer.poll(_QUEUE_PAUSE_S)
                progress_ticks.moved()
                between()
            except KafkaException as error:
                return error.args[0]
            else:
                producer.poll(0)
                return None


def flush(producer: Producer, topic: str, between: Callable[[], None]) -> None:
    """Wait until every queued dead letter has its delivery report. `between`: called each second.

    Raises:
        TaskFailed: RETRIABLE, after a minute without reports.
    """
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    with waits.on(f"dead letter queue {topic}", "Kafka has not acknowledged the dead letters"):
        while len(producer) and producer.flush(1.0):
            between()
            progress_ticks.moved()
            if time.monotonic() >= deadline_s:
                raise TaskFailed(
                    f"dead letters are not acknowledged by {topic}; no offset is committed", ErrorClass.RETRIABLE
                )


def log_cut(topic: str, letter: DeadLetter) -> None:
    """Log that a dead letter was cut."""
    _log.warning(
        "the dead letter of %s is too large for topic %s and was cut to the position of the record; raise %s of the "
        "topic, and producer.override.max.request.size, to store whole dead letters",
        letter.place, topic, SIZE_KEY,
    )  # fmt: skip


def refusal(topic: str, letter: DeadLetter, error: KafkaError) -> TaskFailed:
    """The error of a task whose dead letter is rejected."""
    failed = TaskFailed(
        f"the dead letter of {letter.place} cannot be written to topic {topic}: {error.str()}. No offset past that "
        f"record is committed. {_next_step(topic, error)} The record had failed with: {letter.cause}",
        classify_kafka(error),
    )
    failed.__cause__ = KafkaException(error)
    return failed


def _next_step(topic: str, error: KafkaError) -> str:
    code = error.code()
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            f"Not even a dead letter cut to the record's position fits: raise {SIZE_KEY} of topic {topic}, and "
            "producer.override.max.request.size of the connector."
        )
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"Allow the connector's producer to WRITE to topic {topic}."
    if code in _GONE:
        return f"Topic {topic} was deleted or lost partitions: restart the task, which makes the topic again."
    if code == KafkaError.INVALID_RECORD:
        return f"A dead letter may have no key: topic {topic} must not be compacted (set cleanup.policy=delete)."
    if code == KafkaError.INVALID_TIMESTAMP:
        return (
            "A dead letter has its record's timestamp: raise message.timestamp.before.max.ms and "
            "message.timestamp.after.max.ms "
            f"of topic {topic}."
        )
    return f"Once topic {topic} accepts records again, restart the task."
