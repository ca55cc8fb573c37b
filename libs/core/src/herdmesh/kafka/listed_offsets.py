"""Safe `list_offsets`: beginnings and ends of partitions, without the crash of librdkafka's own lookup of leaders.

`AdminClient.list_offsets` looks for the leaders in its caller's thread. For an unknown leader it registers for cluster
updates first and goes on afterwards; an update that comes in between makes librdkafka's own thread answer the request
and free memory that the caller still uses, and the process dies of SIGSEGV (librdkafka 2.15 and 2.16.1,
`rd_kafka_topic_partition_list_query_leaders_async`; docs/internals/bugs.md has how often). So it is called for
partitions whose leader the client has just learned, and for no others. `delete_records` looks for leaders in the same
way.

Owns that rule. Invariant: nothing else in this project calls `AdminClient.list_offsets` (tests/tidy checks it).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import TopicMetadata  # pyright: ignore[reportPrivateImportUsage] - public by its docs

KNOWN_S: Final = 10.0
"""How long leaders that a client was told of may be taken for known. It forgets them after `metadata.max.age.ms`,
fifteen minutes; sooner, for one that is lost makes the question dangerous again."""
_ONE_BY_ONE_MAX: Final = 3
"""More topics are asked about all at once, with all others of the cluster."""

Topics = Mapping[str, TopicMetadata]
"""As `AdminClient.list_topics` tells of them."""


def read_topic_metadata(client: Any, topics: Collection[str], timeout_s: float) -> Topics:
    """What the cluster says of these topics at least; none that there is not is made. Blocks. Raises KafkaException.

    Args:
        client: an `AdminClient` made with `client_settings.NO_AUTO_CREATION`.
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
    """As `AdminClient.list_offsets`, whose answers have an `offset`. All that is wrong is raised by the futures.

    Args:
        client: as of `read_topic_metadata`; to be kept until the futures are done, which never are when it is gone.
        asked: an `OffsetSpec` for each partition.
        timeout_s: of the question, and of one about the topics before it.
        known: what this client was told of all these topics at most KNOWN_S ago; None = it is asked, which blocks.

    The futures raise KafkaException. Of a partition without a leader it is LEADER_NOT_AVAILABLE, worth repeating; of
    one there is not, what the broker says of its topic, or _UNKNOWN_PARTITION.
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
    """Why its leader cannot be asked."""
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
