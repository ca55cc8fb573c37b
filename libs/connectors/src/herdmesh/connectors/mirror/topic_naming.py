"""Rules of MirrorMaker 2 for topics: the selection of topics,
the names of copies, the assignment of partitions to tasks.

Owns these rules (KIP-382: `ReplicationPolicy`, `DefaultTopicFilter`, `MirrorSourceConnector`). Pure: the inputs are
names and counts of topics. Knows neither Kafka nor configs.

Tested against recorded results of the Java classes (`mirror_names/recorded.jsonl` of the tests).

Invariant: a topic that came from the target is never copied back
to it, and Kafka's and MirrorMaker's own topics are never copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from herdmesh.connect.java import matches
from herdmesh.sdk import PartitionId

HEARTBEATS = "heartbeats"
"""The topic of MirrorMaker's heartbeat connector."""


@dataclass(frozen=True)
class Naming:
    """A replication policy. `separator` is the text between alias and topic."""

    source: str
    target: str
    separator: str = "."
    keeps_names: bool = False
    """True: IdentityReplicationPolicy, a topic has the same name at the target."""
    internal_separator: str = "."
    """Separator in the names of MirrorMaker's own topics."""

    def offset_syncs(self, at_target: bool) -> str:
        """Return the topic of offset syncs; it is named after
        the other cluster, because each cluster may have one.
        """
        other = self.source if at_target else self.target
        return self.internal_separator.join(("mm2-offset-syncs", other, "internal"))

    def checkpoints(self) -> str:
        """Return the topic of checkpoints, at the target."""
        return self.internal_separator.join((self.source, "checkpoints", "internal"))

    def remote(self, topic: str) -> str:
        """Return the topic's name at the target. A heartbeats topic gets the alias with every policy, as in Java."""
        return topic if self._is_kept(topic) else f"{self.source}{self.separator}{topic}"

    def is_heartbeats(self, topic: str) -> bool:
        """True for `heartbeats`, and for mirrors of it over any number of clusters."""
        upstream = self._upstream(topic)
        while upstream is not None and upstream != topic:
            topic, upstream = upstream, self._upstream(upstream)
        return topic == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """True for topics of Kafka and of MirrorMaker itself (Java:
        `isInternalTopic`; since KIP-1074 their suffix alone is not enough).
        """
        end = f"{self.internal_separator}internal"
        return (
            topic.startswith(("__", "."))
            or topic.endswith(f"{self.internal_separator}checkpoints{end}")
            or (topic.startswith("mm2") and topic.endswith(end))
        )

    def is_cycle(self, topic: str) -> bool:
        """True when the topic came through the target before, over any number of clusters.

        A policy that keeps names cannot detect it, so two mirrors against each other copy for ever, as in Java.
        """
        while True:
            source = self.source if self._is_kept(topic) else self._alias(topic)
            if source is None or source == self.target:
                return source is not None
            upstream = self._upstream(topic)
            if upstream is None or upstream == topic:
                return False
            topic = upstream

    def _is_kept(self, topic: str) -> bool:
        """True when the policy keeps the topic's name (Java: not `looksLikeHeartbeat`)."""
        return self.keeps_names and not topic.endswith(HEARTBEATS)

    def _alias(self, topic: str) -> str | None:
        """Return the alias of the cluster that the topic came from; None = it has none. As in Java's `Pattern.split`,
        empty parts at the end are discarded, and without a separator each character is a part.
        """
        parts = topic.split(self.separator) if self.separator else list(topic)
        while parts and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def _upstream(self, topic: str) -> str | None:
        """Return the topic's name at that cluster; None = it has no alias."""
        if self._is_kept(topic):
            return topic
        alias = self._alias(topic)
        return None if alias is None else topic[len(alias) + len(self.separator) :]


@dataclass(frozen=True)
class Selection:
    """The selection of topics. `include` and `exclude` are topic names or
    Java regular expressions that match whole names; `exclude` wins.
    """

    naming: Naming
    include: Sequence[str]
    exclude: Sequence[str]
    heartbeats: bool = True
    """Copy heartbeats even if `include` does not match them."""

    @cached_property
    def _included(self) -> str:
        return "|".join(self.include)

    @cached_property
    def _excluded(self) -> str:
        return "|".join(self.exclude)

    def has(self, topic: str) -> bool:
        """True when the topic is to be copied. Raises ConfigError for an invalid expression."""
        if self.naming.is_internal(topic) or self.naming.is_cycle(topic):
            return False
        if self.heartbeats and self.naming.is_heartbeats(topic):
            return True
        # Joined as in Java: without any expression only the empty name matches, which no topic has.
        return matches(self._included, topic) and not matches(self._excluded, topic)

    def partitions(self, counts: Mapping[str, int]) -> list[PartitionId]:
        """Return all partitions to copy, sorted; `counts`: the number of partitions of each source topic."""
        return [(topic, number) for topic in sorted(filter(self.has, counts)) for number in range(counts[topic])]


def split(partitions: Sequence[PartitionId], tasks_max: int) -> list[list[PartitionId]]:
    """Return the partitions of each task, distributed in turn, so
    that a busy topic is spread over tasks. No task is empty.
    """
    count = min(tasks_max, len(partitions))
    return [list(partitions[task::count]) for task in range(count)]


def partitions_text(partitions: Iterable[PartitionId]) -> str:
    """Format partitions as Java does in a task's config: `topic-0,topic-1`."""
    return ",".join(f"{topic}-{number}" for topic, number in partitions)


def read(text: str) -> list[PartitionId]:
    """Parse the text of `partitions_text`. Raises ValueError for a part that is no `topic-number`."""
    found: list[PartitionId] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        topic, _, number = one.rpartition("-")
        if not topic or not number.isdecimal():
            raise ValueError(one)
        found.append((topic, int(number)))
    return found
