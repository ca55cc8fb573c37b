"""The side writes of a write, outside the store's own topics: records of other topics, and a group's offsets.

Owns sending them in the open transaction of the writer's producer, and the distinction between errors that Kafka
repeats at every attempt (`CommitBesideRefused`) and transient ones. Owns neither the transaction nor its end.
Invariant: when `send_beside` returns, the transaction has all side writes.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from herdmesh.kafka.call_timeout import CallHangs, bounded
from herdmesh.kafka.client_settings import NO_AUTO_CREATION
from herdmesh.kafka.logins import ready
from herdmesh.kafka.transaction_errors import transaction_trouble
from herdmesh.kafka.transaction_offsets import send_offsets
from herdmesh.kafka.transient import may_be_repeated
from herdmesh.topicstore.contract import Beside
from herdmesh.topicstore.errors import BesideRefused
from herdmesh.topicstore.kafka.client_calls import client_logger, close, on_client_error
from herdmesh.topicstore.kafka.topics import kafka_error
from herdmesh.topicstore.log import CommitBesideRefused, CommitNotSent
from herdmesh.topicstore.settings import TopicSettings

#: Exceptions of producer calls. RuntimeError: the call is forbidden in the current state. SystemError: a fatal error
#: (fenced) was raised in one of our delivery callbacks, and the client continued to run them with the exception set.
CLIENT_ERRORS = (KafkaException, BufferError, RuntimeError, SystemError)

_CALL_S = 5.0
_TURN_S = 0.2
#: A newly created topic may not be known yet to the broker that gets the query.
_PATIENCE_S = 1.0
_LOOK_AGAIN_S = 0.1
#: Limit in seconds for a call with the timeout `_CALL_S`.
_HANG_S = 15.0

_NO_SUCH_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # pyright: ignore[reportPrivateUsage]  # librdkafka's local code, here and below
        KafkaError._UNKNOWN_PARTITION,  # pyright: ignore[reportPrivateUsage]
    }
)
#: Does not include refusals of the transactional id: those concern the store itself.
_FOR_GOOD = _NO_SUCH_TOPIC | {
    KafkaError._INVALID_ARG,  # pyright: ignore[reportPrivateUsage]
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_RECORD,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_MEMBER_ID,
}


def reason_of(failure: Exception) -> str:
    """The message of one of `CLIENT_ERRORS`."""
    return str(failure.__cause__ if isinstance(failure, SystemError) and failure.__cause__ else failure)


def require_topics(producer: Producer, beside: Beside) -> None:
    """Check that every topic and partition exists, before a transaction begins. Records for a missing topic would wait
    in the client until their timeout, without a reason in the error. Raises `CommitNotSent`.
    """
    partitions = {record.topic or "": 0 for record in beside.records}
    for offset in beside.group_offsets:
        partitions[offset.topic] = max(offset.partition, partitions.get(offset.topic, 0))
        if offset.partition < 0:
            raise _refused(f"topic {offset.topic!r}", f"there is no partition {offset.partition} of it")
    until_s = time.monotonic() + _PATIENCE_S
    for topic, partition in partitions.items():
        while (missing := _missing(producer, topic, partition)) is not None:
            if time.monotonic() >= until_s:
                raise _refused(f"topic {topic!r}", missing)
            time.sleep(_LOOK_AGAIN_S)


def send_beside(producer: Producer, beside: Beside, settings: TopicSettings) -> None:
    """Send the side writes in the open transaction and wait until they are acknowledged. Raises `CommitNotSent`."""
    try:
        if beside.records:
            _send_records(producer, beside, settings)
        if beside.group_offsets:
            _send_offsets(producer, beside, settings)
    except CLIENT_ERRORS as failure:
        raise CommitNotSent(f"a write's other records or offsets could not be sent: {reason_of(failure)}") from failure


def _missing(producer: Producer, topic: str, partition: int) -> str | None:
    """The reason why the topic or partition cannot be used, or None. Raises `CommitNotSent`."""
    try:
        found = producer.list_topics(topic, _CALL_S).topics.get(topic)
    except CLIENT_ERRORS as failure:
        error = kafka_error(failure)
        raise _not_sent(f"topic {topic!r}", error) if error else CommitNotSent(reason_of(failure)) from failure
    if found is None or (found.error is not None and found.error.code() in _NO_SUCH_TOPIC):
        return "there is no such topic"
    if found.error is not None and found.error.code() in _FOR_GOOD:
        raise _refused(f"topic {topic!r}", found.error.str())
    # For a topic without leaders the metadata may be empty; the send will show the error.
    if found.error is None and partition >= len(found.partitions):
        return f"there is no partition {partition} of it"
    return None


def _send_records(producer: Producer, beside: Beside, settings: TopicSettings) -> None:
    failures: list[tuple[str, KafkaError]] = []
    acknowledged: list[int | None] = []

    def delivered(topic: str, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append((topic, error))
        else:
            acknowledged.append(message.offset())

    deadline_s = time.monotonic() + settings.transaction_timeout_ms / 1000
    for record in beside.records:
        topic = record.topic or ""
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                on_delivery=lambda error, message, topic=topic: delivered(topic, error, message),
            )
        except KafkaException as failure:
            if (error := kafka_error(failure)) is None:
                raise
            raise _not_sent(f"a record for topic {topic!r}", error) from failure
    while producer.flush(_TURN_S) and time.monotonic() < deadline_s and transaction_trouble(producer) is None:
        pass  # after an error of the transaction, queued records stay in the queue
    for topic, error in failures:
        if error.code() in _FOR_GOOD:
            raise _refused(f"a record for topic {topic!r}", error.str())
    topics = ", ".join(sorted({repr(record.topic) for record in beside.records}))
    if (trouble := transaction_trouble(producer)) is not None:
        # The delivery reports of the records themselves only show that they were purged.
        raise _not_sent(f"a record for topic {topics}", trouble)
    if failures:
        raise _not_sent(f"a record for topic {failures[0][0]!r}", failures[0][1])
    # A record without an offset is inferred to be acknowledged, from the acknowledgement of another record, and may be
    # lost.
    if len(acknowledged) < len(beside.records) or None in acknowledged:
        raise CommitNotSent(f"a record for topic {topics} was not acknowledged in time")


def _send_offsets(producer: Producer, beside: Beside, settings: TopicSettings) -> None:
    # Within a transaction Kafka 4 accepts offsets also for a group that has members: the caller must rule that out.
    what = f"offsets of group {beside.group!r}"
    offsets = [TopicPartition(one.topic, one.partition, one.offset, one.metadata) for one in beside.group_offsets]
    consumer = _in_name_only(beside.group, settings)
    try:
        group = consumer.consumer_group_metadata()
        deadline_s = time.monotonic() + settings.transaction_timeout_ms / 1000
        while True:
            try:
                # The writer's thread must return. A call that hangs keeps the producer, which is discarded.
                bounded(lambda: send_offsets(producer, offsets, group, _CALL_S), _HANG_S)
                return
            except CallHangs as failure:
                raise CommitNotSent(f"the call that sends {what} does not return") from failure
            except KafkaException as failure:
                error = kafka_error(failure)
                if error is None:
                    raise
                if not may_be_repeated(error) or time.monotonic() > deadline_s:
                    raise _not_sent(what, error) from failure
    finally:
        close(consumer, is_lost=True)  # the consumer is no member and commits nothing: nobody waits for its close


def _in_name_only(group: str, settings: TopicSettings) -> Consumer:
    """A consumer that joins no group and reads nothing: only a consumer can give the producer the group's metadata."""
    configs: dict[str, Any] = {
        "reconnect.backoff.max.ms": 500,
        **settings.client_configs,
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": f"{settings.client_id_base}-beside",
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        **NO_AUTO_CREATION,
        "error_cb": on_client_error,
    }
    return Consumer(ready(configs), logger=client_logger)


def _not_sent(what: str, error: KafkaError) -> CommitNotSent:
    if error.code() in _FOR_GOOD:
        return _refused(what, error.str())
    return CommitNotSent(f"{what} could not be sent: {error.str()}")


def _refused(what: str, reason: str) -> CommitBesideRefused:
    return CommitBesideRefused(BesideRefused(what, reason))
