"""Kafka queries about the partitions of a sink task: which it owns, and where it begins in them.

Owns the queries: metadata, committed offsets, beginnings and ends, members of the group. `ownership` and `positions`
decide on the results.

Invariant: committed offsets are read stable. A commit that an earlier owner left open is either visible or lost for
good before the result is returned (the fence is taken first, and unstable offsets are requested again).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # the package re-exports it, but not for type checkers

from herdmesh.connect.clients import OffsetReset
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import PartitionId
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.fencing import GROUP_OFFSETS_TOPIC, GroupFinisher
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, offset_of, retried
from herdmesh.engine.runtime import ForeignMembers, SinkSettings, TaskFailed
from herdmesh.engine.sink.ownership import owns
from herdmesh.engine.sink.positions import PartitionRange
from herdmesh.kafka.committed_offsets import CommittedOffset, committed_offsets
from herdmesh.kafka.groups import describe_group
from herdmesh.kafka.listed_offsets import list_offsets, read_topic_metadata

UNSTABLE_S = 1.0
"""How long a decided transaction may lack its marker before it counts as hung; it takes milliseconds."""
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id from a broker without topic ids."""
_NO_TOPIC = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED)
)
_UNSTABLE = frozenset((KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT))

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owned:
    """The partitions that a task owns."""

    partitions: list[PartitionId]
    """Sorted."""
    is_complete: bool
    """All topics named in the config exist and can be consumed."""
    unclear: frozenset[str]
    """Topics about which the brokers return an error now; partitions owned of them may still exist."""
    topics: frozenset[str] = frozenset()
    """All topics that the config subscribes to, whoever owns them: existing ones, and unclear ones."""
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kafka's ids of the partitions' topics, as far as known."""


def owned_partitions(consumer: Consumer, settings: SinkSettings, task: int, task_count: int) -> Owned:
    """The existing partitions that this task owns."""
    counts, unclear = _partition_counts(consumer, settings)
    found = [
        (topic, number)
        for topic, partition_count in counts.items()
        for number in range(partition_count)
        if owns(topic, number, task, task_count)
    ]
    is_complete = all(topic in counts for topic in settings.topics)
    return Owned(sorted(found), is_complete, frozenset(unclear), frozenset(counts) | unclear)


def _partition_counts(consumer: Consumer, settings: SinkSettings) -> tuple[dict[str, int], set[str]]:
    """Number of partitions by topic, and the topics about which the brokers return an error now."""
    metadata: dict[str, Any] = {}
    if settings.topics_regex is not None:
        metadata.update(retried(lambda: consumer.list_topics(timeout=CALL_TIMEOUT_S)).topics)
    else:
        for topic in settings.topics:
            metadata.update(retried(lambda topic=topic: consumer.list_topics(topic, timeout=CALL_TIMEOUT_S)).topics)
    counts, unclear = dict[str, int](), set[str]()
    for topic, known in metadata.items():
        if not settings.wants(topic):
            continue
        if known.error is not None:
            _log.warning("topic %s cannot be consumed now: %s", topic, known.error)
            if known.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                unclear.add(topic)
            continue
        counts[topic] = len(known.partitions)
    return counts, unclear


def topic_ids(admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """Kafka's ids of these topics (KIP-516); omits topics that do not exist or whose id the broker does not return."""
    found: dict[str, str] = {}
    for topic, answer in _described(admin, topics, CALL_TIMEOUT_S).items():
        try:
            found[topic] = str(answer.result().topic_id)
        except KafkaException as error:
            _log.info("the id of topic %s is not known: %s", topic, error)
    return {topic: one for topic, one in found.items() if one != NO_TOPIC_ID}


def answered_ids(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
    """Like `topic_ids`, but a missing reply is an error: a topic is omitted only if the brokers reply that it does not
    exist or may not be read. Raises KafkaException.
    """
    found: dict[str, str] = {}
    for topic, answer in _described(admin, topics, timeout_s).items():
        try:
            found[topic] = str(answer.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() not in _NO_TOPIC:
                raise
    return {topic: one for topic, one in found.items() if one != NO_TOPIC_ID}


def _described(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> Mapping[str, Any]:
    names, untyped = sorted(set(topics)), cast(Any, admin)
    return untyped.describe_topics(TopicCollection(names), request_timeout=timeout_s) if names else {}


def missing(consumer: Consumer, wanted: Iterable[PartitionId]) -> set[PartitionId]:
    """The partitions of `wanted` that no longer exist. Queries Kafka. Raises KafkaException without a clear reply."""
    by_topic: dict[str, set[int]] = {}
    for topic, number in wanted:
        by_topic.setdefault(topic, set()).add(number)
    found: set[PartitionId] = set()
    for topic, numbers in by_topic.items():
        known = retried(lambda topic=topic: consumer.list_topics(topic, timeout=CALL_TIMEOUT_S)).topics[topic]
        if known.error is not None and known.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(known.error)
        found.update((topic, number) for number in numbers.difference(known.partitions))
    return found


def refuse_members(admin: AdminClient, group: str) -> None:
    """Raise ForeignMembers when another program consumes with the task's group: Kafka would accept both sides'
    commits."""
    members: Sequence[Any] = retried(lambda: describe_group(admin, group, CALL_TIMEOUT_S)).members or ()
    if members:
        raise ForeignMembers(group, sorted(f"{member.client_id} at {member.host}" for member in members))


def committed(
    consumer: Consumer, partitions: Iterable[PartitionId], hung: GroupFinisher
) -> dict[PartitionId, tuple[int | None, str]]:
    """Committed offset (None = none) and its metadata per partition. If an offset stays unstable after the fence was
    taken, the broker lost the end of a transaction: `hung_group_transaction` ends it.

    Raises:
        TaskFailed: RETRIABLE, when another program's transaction stays open: an operator has to end it.
    """
    asked = list(partitions)
    if not asked:
        return {}
    stable = _Stable(hung)
    try:
        answered = retried(lambda: stable.ask(consumer, asked))
    except KafkaException as error:
        if not stable.hangs:
            raise
        raise TaskFailed(
            f"the offsets of group {hung.group} are in a transaction that is not this task's and does not end; when "
            f"nobody uses the group, find it with kafka-transactions.sh find-hanging --topic {GROUP_OFFSETS_TOPIC} "
            f"--partition {hung.offsets_partition(consumer)} and end it with kafka-transactions.sh abort",
            ErrorClass.RETRIABLE,
        ) from error
    return {(one.topic, one.partition): (one.offset, one.metadata) for one in answered}


def forgotten(
    consumer: Consumer, hung: GroupFinisher, scope: CommitScope | None, offsets: Mapping[PartitionId, tuple[Any, str]]
) -> set[str]:
    """The topics in `offsets` that another task of the connector committed before (`CommitScope.elsewhere`), and of
    which the group no longer has an offset in any partition. Sends queries only for topics without any offset in
    `offsets`. Raises as `committed`.
    """
    if scope is None or scope.group != hung.group:
        return set()
    has = {topic for (topic, _), (offset, _) in offsets.items() if offset is not None}
    found = set[str]()
    for topic in sorted({topic for topic, _ in offsets if topic in scope.elsewhere} - has):
        numbers = retried(lambda topic=topic: _partition_numbers(consumer, topic))
        others = [(topic, number) for number in numbers if (topic, number) not in offsets]
        if all(offset is None for offset, _ in committed(consumer, others, hung).values()):
            found.add(topic)
    return found


def _partition_numbers(consumer: Consumer, topic: str) -> list[int]:
    known = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return list(known.partitions)


class _Stable:
    """Reader of stable offsets. The client itself repeats a request after UNSTABLE_OFFSET_COMMIT until its timeout, and
    then reports only the timeout. So the first timeout is short, and a second query checks whether the group can be
    read at all.
    """

    def __init__(self, hung: GroupFinisher) -> None:
        self._hung = hung
        self._timeout_s = UNSTABLE_S
        self.hangs = False

    def ask(self, consumer: Consumer, asked: list[PartitionId]) -> list[CommittedOffset]:
        try:
            return committed_offsets(consumer, asked, self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() in _UNSTABLE:
                self.hangs = self._hung.is_readable_unstable(consumer)
                if self.hangs and self._timeout_s == UNSTABLE_S:
                    self._timeout_s = CALL_TIMEOUT_S
                    self._hung.finish(consumer, asked[0])
            raise


def ranges(
    admin: AdminClient, offsets: Mapping[PartitionId, tuple[int | None, str]], reset: OffsetReset | None = None
) -> dict[PartitionId, PartitionRange]:
    """Beginning and end of each partition with its committed offset; with a `reset` by time, also its current starting
    offset. Raises KafkaException if one is missing.
    """
    asked = [TopicPartition(topic, number) for topic, number in offsets]
    if not asked:
        return {}
    specs: list[Any] = [OffsetSpec.earliest(), OffsetSpec.latest()]
    time_ms = None if reset is None else reset.begins_ms(int(time.time() * 1000))
    if time_ms is not None:
        specs.append(OffsetSpec.for_timestamp(time_ms))

    def answered() -> list[dict[PartitionId, int]]:
        known = read_topic_metadata(admin, {one.topic for one in asked}, CALL_TIMEOUT_S)
        # Send all requests before waiting for the first.
        told = [
            list_offsets(admin, dict.fromkeys(asked, spec), timeout_s=CALL_TIMEOUT_S, known=known) for spec in specs
        ]
        return [
            {
                (one.topic, one.partition): offset_of(future.result()) if place < 2 else future.result().offset
                for one, future in each.items()
            }
            for place, each in enumerate(told)
        ]

    beginnings, ends, *by_time = retried(answered)
    later = {partition: at for one in by_time for partition, at in one.items() if at >= 0}
    return {
        partition: PartitionRange(offset, beginnings[partition], ends[partition], later.get(partition))
        for partition, (offset, _) in offsets.items()
    }
