"""Transient errors of Kafka: those after which a reader continues and a call is retried.

Owns the list of codes. `KafkaError.retriable()` alone is not enough: librdkafka sets it only on the errors of a
transactional producer's calls, so it is False for every error of a consumer, even "not the leader". Invariant: an error
is transient when a retry may succeed without anybody fixing anything.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

#: A recreated topic has leaders whose epochs begin anew, and another id. Until the client has the new metadata, it
#: sends requests with the old values.
STALE_TOPIC: Final = frozenset(
    (
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    )
)
UNANSWERED: Final = frozenset(
    (
        KafkaError._ALL_BROKERS_DOWN,  # pyright: ignore[reportPrivateUsage]  # librdkafka's local codes
        KafkaError._TIMED_OUT,  # pyright: ignore[reportPrivateUsage]
        KafkaError._TRANSPORT,  # pyright: ignore[reportPrivateUsage]
    )
)
"""Errors of a request to which no broker responded."""
TRANSIENT: Final = (
    STALE_TOPIC
    | UNANSWERED
    | {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._RESOLVE,  # pyright: ignore[reportPrivateUsage]
        KafkaError._TIMED_OUT_QUEUE,  # pyright: ignore[reportPrivateUsage]
        KafkaError._WAIT_COORD,  # pyright: ignore[reportPrivateUsage]
    }
)


def is_transient(error: KafkaError) -> bool:
    """True when reading may continue after this error, or a request may be retried. The caller has a deadline."""
    return not error.fatal() and (error.retriable() or error.code() in TRANSIENT)


def may_be_repeated(error: KafkaError) -> bool:
    """True when a call of a transactional producer may be repeated unchanged. This is librdkafka's rule alone: after
    any other error the transaction may be in another state than the caller thinks.
    """
    return error.retriable()
