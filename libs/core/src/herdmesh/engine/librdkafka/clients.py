"""Kafka clients of a run: their creation, and the retry of their calls.

Owns the fixed settings (comments give the measurements) and the retry rule. Does not decide what is consumed or
produced.

Invariant: every producer picks partitions as Java does, every consumer of records reads committed ones only
(`engine.source.unstable_offsets` reads open transactions, and uses no records from them), and none commits by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import waits
from herdmesh.engine.runtime import FETCH_PARTITION_BYTES, ClientConfig, RunSpec, TaskFailed, note_error, progress_ticks
from herdmesh.kafka.broker_reachability import Contact
from herdmesh.kafka.callback_exceptions import raise_pending
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.log_dedup import Repeats
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transient import is_transient

T = TypeVar("T")

_ALL = logging.getLogger("librdkafka")
LOGGERS = {kind: logging.getLogger(f"librdkafka.{kind}") for kind in ("consumer", "producer", "admin")}
"""Loggers of the clients of runs. A client passes its lines on when it is polled."""
for _logger in LOGGERS.values():
    _logger.addFilter(Repeats())
_DEBUG = "broker,topic,eos"
"""Debug categories when their logger, or `librdkafka`, has the level DEBUG. Many lines: the root logger's level does
not count.
"""
CALL_TIMEOUT_S = 10.0
RETRY_TIMEOUT_S = 60.0
_RETRY_PAUSE_S = 0.1
RECONNECT: ClientConfig = {
    # A client picks a broker to connect to at most every half of this, and a new one does so twice: once for the
    # bootstrap address, once for the broker behind it. With the default of 100 each takes 55 ms, with this 15.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
}


def consumer(
    spec: RunSpec,
    group: str,
    overrides: ClientConfig,
    *,
    isolation_level: str = "read_committed",
    on_error: Callable[[KafkaError], None] = note_error,
    for_worker: bool = False,
) -> Consumer:
    """A consumer with manual assignment. `for_worker`: for reads of a worker about the connector, not of a task. Raises
    ConfigError for an override that librdkafka does not know.
    """
    name = spec.connector if for_worker else f"{spec.connector}-{spec.task}"
    defaults: ClientConfig = {
        "bootstrap.servers": spec.bootstrap_servers,
        "client.id": f"connector-consumer-{name}",
        "queued.min.messages": 200_000,
        "queued.max.messages.kbytes": 131_072,
        "fetch.message.max.bytes": FETCH_PARTITION_BYTES,
        # Irrelevant for records, which end the wait. But a waiting run learns only at this interval that it has read
        # everything, and only then yields its slot: librdkafka's default of 500 would keep other tasks waiting.
        "fetch.wait.max.ms": 100,
        # The default of 1 s stalls the loop after a full queue and after every seek.
        "fetch.queue.backoff.ms": 5,
        **RECONNECT,
    }
    fixed: ClientConfig = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": isolation_level,
        # An offset that goes out of range during the run is a loss to report, not a reason to jump.
        "auto.offset.reset": "error",
        # Only this event reports the end of a partition, transaction markers included.
        "enable.partition.eof": True,
    }
    return made(Consumer, "consumer", {**defaults, **overrides, **fixed}, on_error)


def contact(spec: RunSpec, overrides: ClientConfig, topic: str) -> Contact:
    """Broker reachability of a client with these `overrides`, whose `on_error` must be its `note`. `topic`: a topic
    whose metadata it may request.
    """
    return Contact(str(overrides.get("bootstrap.servers", spec.bootstrap_servers)), topic, note_error)


def forgotten() -> KafkaException:
    """The error of a run whose client has lost its brokers for good (`Contact`): an outage, because no setting is
    wrong, and the next run has new clients.
    """
    text = "the client has lost all its brokers, as it may when the last one that it knew stops; a new client is needed"
    return KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, text))


def close_in_background(consumer: Consumer) -> None:
    """Close the consumer without waiting some 15 ms for its threads. It is in no group and commits nothing, so its
    remaining work does not concern the next reader.
    """
    Thread(target=consumer.close, name="close consumer", daemon=True).start()


def producer(
    spec: RunSpec,
    overrides: ClientConfig,
    on_failure: Callable[[KafkaError, Message], object] | None = None,
    *,
    reports: bool = False,
    on_error: Callable[[KafkaError], None] = note_error,
    is_fenced: bool = True,
) -> CheckedProducer:
    """The producer that holds the task's fence, and writes a source's records.

    Args:
        on_failure: called during the producer's own calls for each message that Kafka rejects, unless the message has a
            callback of its own.
        reports: call such callbacks for acknowledged messages, too, which costs time for each.
        is_fenced: False = for at-least-once delivery: without the fence, and outside of transactions.
    """
    defaults: ClientConfig = {
        "bootstrap.servers": spec.bootstrap_servers,
        "client.id": f"connector-producer-{spec.connector}-{spec.task}",
        "linger.ms": 5,
        "batch.size": 262_144,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 131_072,
        **RECONNECT,
    }
    fixed: ClientConfig = {
        # When no broker answers, the default forgets all brokers, and the group's coordinator in a way that lets
        # send_offsets_to_transaction wait forever (librdkafka issues 5456, 5511; observed with 2.16.0).
        "metadata.recovery.strategy": "none",
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
    }
    config: dict[str, Any] = {**defaults, **overrides, **fixed}
    if is_fenced:
        config["transactional.id"] = spec.transactional_id
    else:
        config.pop("transaction.timeout.ms", None)
    if on_failure is not None:
        config |= {"on_delivery": _failures(on_failure), "delivery.report.only.error": not reports}
    return made(CheckedProducer, "producer", config, on_error)


def offsets_producer(
    spec: RunSpec, overrides: ClientConfig, on_failure: Callable[[KafkaError, Message], object] | None = None
) -> CheckedProducer:
    """The producer of a worker that changes a connector's offsets. It holds the fence of the task in `spec`, and, as in
    Connect, has the task's client id if the worker supports exactly-once sources.
    """
    if (spec.worker_config.get("exactly.once.source.support") or "").lower() == "enabled":
        return producer(spec, overrides, on_failure)
    return producer(spec, {"client.id": f"connector-offset-producer-{spec.connector}", **overrides}, on_failure)


def dead_letter_producer(
    spec: RunSpec, overrides: ClientConfig, on_error: Callable[[KafkaError], None] = note_error
) -> CheckedProducer:
    """The producer of a sink task's dead letters: idempotent, and outside of any transaction."""
    defaults: ClientConfig = {
        "bootstrap.servers": spec.bootstrap_servers,
        "client.id": f"connector-dlq-producer-{spec.connector}-{spec.task}",
        "linger.ms": 5,
        **RECONNECT,
    }
    fixed: ClientConfig = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
    return made(CheckedProducer, "producer", {**defaults, **overrides, **fixed}, on_error)


def raise_guess(producer: CheckedProducer) -> None:
    """Check for lost acknowledgements. Call it after `flush` returned 0, and before a commit that depends on the
    records.

    Raises:
        TaskFailed: RETRIABLE: the client only inferred that a record is acknowledged.
    """
    producer.poll(0)  # `flush` may return before the last log line was delivered
    if producer.guess is not None:
        raise TaskFailed(
            f"records were not acknowledged and may be lost, as when a partition has just moved; they are sent again: "
            f"{producer.guess}",
            ErrorClass.RETRIABLE,
        )


def admin(spec: RunSpec, access: ClientConfig, *, for_worker: bool = False) -> AdminClient:
    """A client for queries about groups and topics. `access`: its login and encryption. `for_worker`: for queries of a
    worker about the connector, not of a task.
    """
    name = f"worker-adminclient-{spec.connector}" if for_worker else f"adminclient-{spec.connector}-{spec.task}"
    config: ClientConfig = {
        "bootstrap.servers": spec.bootstrap_servers,
        "client.id": f"connector-{name}",
        **NO_AUTO_CREATION,
        **RECONNECT,
        **access,
    }
    return made(AdminClient, "admin", config)


def rehearse() -> None:
    """Create and discard a client without brokers, with its threads: librdkafka initialises itself with the first
    client of a process.
    """
    Producer({"log_level": 0})


def opened(
    client: Callable[..., T],
    kind: str,
    config: Mapping[str, Any],
    on_error: Callable[[KafkaError], None] = note_error,
) -> T:
    """Create a client; every client of a worker and of its runs is created here. Its log lines go to its logger of
    `LOGGERS` when it is polled, never to standard error. Its errors go to `on_error`, which must call `note_error`.
    Raises KafkaException for a setting it refuses, and for an invalid login (`logins`).
    """
    logger = LOGGERS[kind]
    given = {**ready(config), "error_cb": on_error}
    if any(0 < one.level <= logging.DEBUG for one in (logger, _ALL)):
        given.setdefault("debug", _DEBUG)
    return client(given, logger=logger)


def _failures(
    on_failure: Callable[[KafkaError, Message], object],
) -> Callable[[KafkaError | None, Message], None]:
    def reported(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise_pending(error.code)
            on_failure(error, message)

    return reported


def poll_clients(producer: Producer, admin: AdminClient) -> None:
    """Poll clients without frequent calls, so that they deliver log lines, errors and callbacks.

    Raises:
        KafkaException: the producer was fenced, or has another error from which it does not recover.
    """
    producer.poll(0)
    admin.poll(0)


def made(
    client: Callable[..., T],
    kind: str,
    config: Mapping[str, Any],
    on_error: Callable[[KafkaError], None] = note_error,
) -> T:
    """Like `opened`. Raises ConfigError for a setting that the client refuses, with the field `<kind>.override.<name>`
    by librdkafka's name, or an empty field if the client does not name the setting.
    """
    prefix = f"{kind}.override."
    try:
        return opened(client, kind, config, on_error)
    except (TypeError, ValueError, OverflowError) as error:  # raised by the Python part of the client
        raise ConfigError(f"no Kafka client can be created with these settings: {error}") from error
    except KafkaException as error:
        cause = error.args[0] if error.args else None
        if not (isinstance(cause, KafkaError) and cause.code() == KafkaError._INVALID_ARG):
            raise
        text = cause.str()
        key = next((key for key in config if f'"{key}"' in text or f"{key} " in text), "")
        if not key:
            raise ConfigError(f"no Kafka client can be created with these settings: {text}") from error
        raise ConfigError(f"{prefix}{key}: {text}", field=prefix + key) from error


def offset_of(answer: Any) -> int:
    """The offset in a result of `list_offsets`.

    Raises:
        KafkaException: LEADER_NOT_AVAILABLE, worth a retry: a broker that has just started may return no offset
            (OFFSET_INVALID, seen in `make chaos`), and that is not the end of a partition.
    """
    if answer.offset < 0:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "the broker does not know the offset yet"))
    return answer.offset


def nothing() -> None:
    """Do nothing; default callback of wait loops."""


def retried(call: Callable[[], T], *, also: int | None = None, between: Callable[[], None] = nothing) -> T:
    """Repeat a request to Kafka while the error is that a coordinator or leader is not ready yet.

    Args:
        also: one more error code that is worth a retry.
        between: called before each retry.

    Raises:
        KafkaException: the last error, when it is of another kind or the time is over; also errors of `between`.
    """
    deadline = time.monotonic() + RETRY_TIMEOUT_S
    with waits.unless_named("Kafka", "an answer that it gives once a leader or coordinator is ready"):
        while True:
            try:
                return call()
            except KafkaException as error:
                cause = error.args[0] if error.args else None
                transient = isinstance(cause, KafkaError) and (is_transient(cause) or cause.code() == also)
                if not transient or time.monotonic() >= deadline:
                    raise
                progress_ticks.moved()
                between()
                time.sleep(_RETRY_PAUSE_S)
