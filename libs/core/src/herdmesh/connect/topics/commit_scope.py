"""Scope of a task's last offset commit: the topics it was for, and what else its connector has committed.

Owns the value that travels with a task: the status topic keeps it, the leader passes it to the worker that starts the
task, and a sink run uses it to tell lost offsets from a first start (`herdmesh.engine.sink.positions`). Decides nothing
about offsets.

Invariant: a scope names at most TOPICS_MAX topics, however many the connector has, because it is part of every status.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

TOPICS_MAX = 100
"""Topics a scope names at most. One that names so many may lack others, all of which come later in order."""


class CommitScope(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Under which group and for which topics a task committed offsets last."""

    group: str
    """A sink's consumer group; empty for a source, whose offsets are in no group."""
    topics: tuple[str, ...]
    """Of a sink: those it had partitions of, sorted, the first TOPICS_MAX. Of a source: those that its offsets are in;
    none = they are in the worker's file (standalone mode)."""
    elsewhere: tuple[str, ...] = ()
    """Of a sink: others that a task of its connector, of whatever number, has committed under this group, sorted. A
    partition of theirs may be another number's by now. As many as TOPICS_MAX leaves room for; more are not named."""

    topic_ids: tuple[str, ...] = ()
    """Of a sink: Kafka's ids of `topics` (KIP-516), in their order, "" = not known; empty = none is known. A topic that
    was deleted and made again has another."""

    @classmethod
    def of(cls, group: str, topics: Iterable[str], ids: Mapping[str, str] | None = None) -> CommitScope:
        """The scope of a commit; topics in any order, doubled or not, as many as there are. `ids`: as far as known."""
        names = tuple(sorted(set(topics))[:TOPICS_MAX])
        found = tuple((ids or {}).get(name, "") for name in names)
        return cls(group, names, (), found if any(found) else ())

    def beside(self, others: Iterable[str]) -> CommitScope:
        """The same scope, with those of `others` that this task's commit was not for."""
        names = sorted(set(others).difference(self.topics))
        return CommitScope(self.group, self.topics, tuple(names[: TOPICS_MAX - len(self.topics)]), self.topic_ids)

    def without(self, gone: Collection[str]) -> CommitScope:
        """The same without these topics, which were deleted: nothing is lost that was committed of them."""
        ids = {topic: one for topic, one in self.ids().items() if topic not in gone}
        kept = CommitScope.of(self.group, (topic for topic in self.topics if topic not in gone), ids)
        return kept.beside(topic for topic in self.elsewhere if topic not in gone)

    def ids(self) -> dict[str, str]:
        """Kafka's ids of `topics` by their names, as far as known."""
        return {topic: one for topic, one in zip(self.topics, self.topic_ids, strict=False) if one}

    def covers(self, group: str, topic: str) -> bool:
        """True when the commit was for this topic under this group. Where more topics were committed than the scope
        names, also of one that it may lack: a loss must not pass for a first start."""
        if group != self.group:
            return False
        return topic in self.topics or (len(self.topics) >= TOPICS_MAX and topic > max(self.topics))
