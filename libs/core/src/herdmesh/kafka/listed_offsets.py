"""Safe `list_offsets`: beginnings and ends of partitions, without the crash of librdkafka's own lookup of leaders.

`AdminClient.list_offsets` looks up the leaders in its caller's thread. For an unknown leader it registers for cluster
updates first and continues afterwards. An update in between makes librdkafka's own thread answer the request and free
memory that the caller still uses, and the process dies of SIGSEGV (librdkafka 2.15 and 2.16.1,
`rd_kafka_topic_partition_list_query_leaders_async`; docs/internals/bugs.md has how often). So it is called only for
partitions whose leader the client has just learned. `delete_records` looks up leaders in the same way.

Owns that rule. Invariant: nothing else in this project calls `AdminClient.list_offsets` (tests/tidy checks it).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import TopicMetadata  # pyright: ignore[reportPrivateImportUsage] - public by its docs

KNOWN_S: Final = 10.0
"""How long leaders from a client's metadata count as known. The client forgets them after `metadata.max.age.ms`,
fifteen minutes; our limit is lower, because a forgotten leader makes the request dangerous again.
"""
_ONE_BY_ONE_MAX: Final = 3
"""Metadata of more topics is requested in one request for all topics of the cluster."""

Topics = Mapping[str, TopicMetadata]
"""Metadata of topics, from `AdminClient.list_topics`."""


def read_topic_metadata(client: Any, topics: Collection[str], timeout_s: float) -> Topics:
    """Read the metadata of at least these topics; missing topics are not created. Blocks. Raises KafkaException.

    Args:
        client: an `AdminClient` created with `client_settings.NO_AUTO_CREATION`.
    """
    if len(topics) > _ONE_BY_ONE_MAX:
        return client.list_topics(timeout=timeout_s).topics
    found: dict[str, TopicMetadata] = {}
    for topic in topics:
        found |= client.list_topics(topic, timeout=timeout_s).topics
    return found


def list_offsets(
    client: Any,
    asked: Mapping[TopicPartition, Any],
    *,
    timeout_s: float,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    known: Topics | None = None,
) -> dict[TopicPartition, Future[Any]]:
    """`AdminClient.list_offsets` without the crash; its results have an `offset`. The futures raise all errors.

    Args:
        client: see `read_topic_metadata`; keep it until the futures are done, because they never complete without it.
        asked: an `OffsetSpec` for each partition.
        timeout_s: of this request, and of the metadata request before it.
        known: metadata of all these topics that this client read at most KNOWN_S ago; None = read it now, which blocks.

    The futures raise KafkaException: LEADER_NOT_AVAILABLE, worth a retry, for a partition without a leader; for a
    missing partition the error of its topic, or _UNKNOWN_PARTITION.
    """
    if known is None:
        try:
            known = read_topic_metadata(client, {one.topic for one in asked}, timeout_s)
        except KafkaException as error:
            return {one: _failed(error) for one in asked}
    troubles = {one: trouble for one in asked if (trouble := _trouble(known, one)) is not None}
    led = {one: spec for one, spec in asked.items() if one not in troubles}
    answers = {one: _failed(KafkaException(trouble)) for one, trouble in troubles.items()}
    if led:
        answers |= client.list_offsets(led, isolation_level=isolation_level, request_timeout=timeout_s)
    return answers


def _trouble(known: Topics, partition: TopicPartition) -> KafkaError | None:
    """The reason why the partition's leader is not known, or None."""
    topic = known.get(partition.topic)
    if topic is None:
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    if topic.error is not None:
        return topic.error
    found = topic.partitions.get(partition.partition)
    if found is None:
        return KafkaError(KafkaError._UNKNOWN_PARTITION)  # pyright: ignore[reportPrivateUsage] - the client's own
    return KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if found.leader < 0 else None


def _failed(error: KafkaException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
