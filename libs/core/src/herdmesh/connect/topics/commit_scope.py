"""Scope of a task's last offset commit: the topics of the commit, and other topics that its connector has committed.

Owns the value that travels with a task: the status topic stores it, the leader passes it to the worker that starts the
task, and a sink run uses it to distinguish lost offsets from a first start (`herdmesh.engine.sink.positions`). Decides
nothing about offsets.

Invariant: a scope names at most TOPICS_MAX topics, however many the connector has, because it is part of every status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

TOPICS_MAX = 100
"""Maximum number of topics in a scope. A full scope may lack further topics, all of which sort after those it names."""


class CommitScope(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Consumer group and topics of a task's last offset commit."""

    group: str
    """A sink's consumer group; empty for a source, whose offsets are in no group."""
    topics: tuple[str, ...]
    """For a sink: the topics of its partitions, sorted, the first TOPICS_MAX. For a source: the topics that have its
    offsets; empty = the offsets are in the worker's file (standalone mode).
    """
    elsewhere: tuple[str, ...] = ()
    """For a sink: other topics for which any task of its connector has committed under this group, sorted. Their
    partitions may belong to a task with another number by now. Limited to the rest of TOPICS_MAX; further topics are
    left out.
    """

    topic_ids: tuple[str, ...] = ()
    """For a sink: Kafka's ids of `topics` (KIP-516), in their order, "" = not known; empty = no id is known. A topic
    that was deleted and created again has another id.
    """

    @classmethod
    def of(cls, group: str, topics: Iterable[str], ids: Mapping[str, str] | None = None) -> CommitScope:
        """The scope of a commit. `topics`: in any order, with or without duplicates, any number. `ids`: the known
        ones."""
        names = tuple(sorted(set(topics))[:TOPICS_MAX])
        found = tuple((ids or {}).get(name, "") for name in names)
        return cls(group, names, (), found if any(found) else ())

    def beside(self, others: Iterable[str]) -> CommitScope:
        """The same scope, with those of `others` that this task's commit did not include."""
        names = sorted(set(others).difference(self.topics))
        return CommitScope(self.group, self.topics, tuple(names[: TOPICS_MAX - len(self.topics)]), self.topic_ids)

    def without(self, gone: Collection[str]) -> CommitScope:
        """The same scope without these deleted topics: commits of a deleted topic are no loss."""
        ids = {topic: one for topic, one in self.ids().items() if topic not in gone}
        kept = CommitScope.of(self.group, (topic for topic in self.topics if topic not in gone), ids)
        return kept.beside(topic for topic in self.elsewhere if topic not in gone)

    def ids(self) -> dict[str, str]:
        """The known ids of `topics` by topic name."""
        return {topic: one for topic, one in zip(self.topics, self.topic_ids, strict=False) if one}

    def covers(self, group: str, topic: str) -> bool:
        """True when the commit included this topic under this group. Also true for a topic that a full scope may lack,
        so that a loss is never mistaken for a first start.
        """
        if group != self.group:
            return False
        return topic in self.topics or (len(self.topics) >= TOPICS_MAX and topic > max(self.topics))
