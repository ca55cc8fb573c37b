"""Transient errors of Kafka: the ones after which a reader goes on and a call is retried.

Owns the list of codes. `KafkaError.retriable()` alone is no answer: librdkafka sets it only on the errors of a
transactional producer's calls, so it is False for every error of a consumer, even "not the leader". Invariant: an error
is transient when a retry may succeed without anybody fixing anything.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

#: A topic that was deleted and made again has leaders whose epochs begin anew, and another id: until the client has its
#: metadata it asks with the old ones.
STALE_TOPIC: Final = frozenset(
    (
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    )
)
TRANSIENT: Final = STALE_TOPIC | {
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
    KafkaError._ALL_BROKERS_DOWN,  # pyright: ignore[reportPrivateUsage]  # librdkafka's local codes, here and below
    KafkaError._RESOLVE,  # pyright: ignore[reportPrivateUsage]
    KafkaError._TIMED_OUT,  # pyright: ignore[reportPrivateUsage]
    KafkaError._TIMED_OUT_QUEUE,  # pyright: ignore[reportPrivateUsage]
    KafkaError._TRANSPORT,  # pyright: ignore[reportPrivateUsage]
    KafkaError._WAIT_COORD,  # pyright: ignore[reportPrivateUsage]
}


def is_transient(error: KafkaError) -> bool:
    """True when reading goes on after it, or a question may be asked again. Whoever goes on has a deadline."""
    return not error.fatal() and (error.retriable() or error.code() in TRANSIENT)


def may_be_repeated(error: KafkaError) -> bool:
    """True when a call of a transactional producer may be made again as it was: librdkafka's rule, and its alone, for
    after any other error the transaction may be in another state than the caller thinks."""
    return error.retriable()
