"""A config topic in a list, for tests of the config store: append as Java or as our writer does, compact, replay.

Owns the appending of records and the log cleaner; the fold and the plans under test are the config store's own.
Invariant: offsets only grow, with a gap after each transaction, as its marker leaves one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from herdmesh.configstore.state.changes import Change, ConnectorChanged
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.configstore.state.mutations import LeaderToken, Mutation, WriteContext
from herdmesh.configstore.state.writes import WritePlan, plan, plan_epoch
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import ConfigRecord
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.topicstore.contract import NewRecord, Revision, StoredRecord

TOPIC = "connect-configs"
AUDIT = "connect-configs-audit"
STORE_ID = "store"


def replay(records: Iterable[StoredRecord]) -> ConfigState:
    """The state after these records."""
    state = ConfigState(AUDIT)
    for record in records:
        state.apply(record)
    return state


def compacted(records: Sequence[StoredRecord], cleaned_to: int, tombstones_to: int = 0) -> list[StoredRecord]:
    """Records that remain after a log cleaner has reached offset `cleaned_to`: of each key the last record before it,
    and everything after it. Tombstones below `tombstones_to` have outlived their retention and are removed too.
    """
    last = {record.key: record.offset for record in records if record.offset < cleaned_to and record.topic == TOPIC}
    return [
        record
        for record in records
        if record.topic != TOPIC
        or record.offset >= cleaned_to
        or (last[record.key] == record.offset and not (record.value is None and record.offset < tombstones_to))
    ]


def revision(offset: int) -> Revision:
    """A revision of this topic's store."""
    return Revision(STORE_ID, (offset,))


@dataclass
class ConfigTopic:
    """The topic with a replica that has read all of it. `changes` are the events its watchers got, in order."""

    records: list[StoredRecord] = field(default_factory=lambda: list[StoredRecord]())
    state: ConfigState = field(default_factory=lambda: ConfigState(AUDIT))
    changes: list[Change] = field(default_factory=lambda: list[Change]())
    now_ms: int = 1_700_000_000_000
    next_offset: int = 0
    incarnations: int = 0

    def java(self, *records: ConfigRecord | Tombstone) -> None:
        """Append as Java's plain producer does: no transaction, no manifest."""
        for record in records:
            self._append(NewRecord(*config_topic.encode(record)))

    def raw(self, key: str, value: Any) -> None:
        """Append a key with a value of any JSON, or None for a tombstone, or bytes as they are."""
        encoded = value if value is None or isinstance(value, bytes) else jackson.dumps(value)
        self._append(NewRecord(key.encode(), encoded))

    def write(self, mutation: Mutation, **context: Any) -> WritePlan:
        """Append as our writer does: the records of `plan`, in one transaction. Raises the errors of `plan`."""
        planned = plan(self.state.copy(), mutation, self.context(mutation, **context))
        self.transaction(planned.records)
        return planned

    def context(self, mutation: Mutation, **context: Any) -> WriteContext:
        """The context of a write, with a fresh incarnation and the time of this topic."""
        self.incarnations += 1
        return WriteContext(
            operation=type(mutation).__name__,
            now_ms=self.now_ms,
            new_incarnation=f"incarnation-{self.incarnations}",
            store_id=STORE_ID,
            audit_topic=AUDIT,
            **context,
        )

    def lead(self, leader_id: str = "herder") -> LeaderToken:
        """Grant the next epoch to `leader_id`."""
        self.transaction(plan_epoch(self.state, leader_id, "127.0.0.1:7203"))
        assert self.state.leadership is not None
        return LeaderToken(self.state.leadership.epoch, leader_id)

    def transaction(self, records: Sequence[NewRecord]) -> None:
        """Append records and a marker. Late values get the revision after the last record of the topic itself."""
        after = revision(0)
        for record in records:
            value = record.value if record.late is None else record.late(after)
            self._append(NewRecord(record.key, value, record.topic))
            after = after if record.topic else revision(self.next_offset)
        self.next_offset += 1

    def connector(self, name: str) -> ConnectorState:
        """The folded state of a name."""
        return self.state.connector(name)

    def kinds(self, name: str) -> list[str]:
        """The kinds of all changes of a connector so far, in order."""
        return [
            kind.value
            for change in self.changes
            if isinstance(change, ConnectorChanged) and change.name == name
            for kind in change.kinds
        ]

    def _append(self, record: NewRecord) -> None:
        stored = StoredRecord(record.topic or TOPIC, 0, self.next_offset, record.key, record.value, self.now_ms)
        self.next_offset += 1
        self.records.append(stored)
        changes = self.state.apply(stored)
        if stored.topic == TOPIC:
            self.changes += changes
