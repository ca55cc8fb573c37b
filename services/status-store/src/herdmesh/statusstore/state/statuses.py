"""The status topic folded into the status of each connector and task, and the active topics.

Owns the read rules of docs/reference/connect/status-topic.md, sections 5 and 10. Owns no write rule: see `writes`.

Differences from Connect, because partitions are read in any order and compaction removes records in between:
- A connector's tombstone removes only the tasks whose records are not younger: the tombstone of an earlier life
  must not hide the tasks of the current one.
- An UNASSIGNED of a worker of ours (it names a `worker_incarnation`) is never stale: our writer checked it against
  everything before it. The writer puts a tombstone before one that Connect would ignore (`writes`), but the cleaner may
  remove that tombstone while a reader is between the RUNNING and it.
So readers see the last write of our writer under a key, as long as no writer's clock is behind its predecessor's.

Invariant: values are immutable and inner maps are replaced, never changed, so that a copy can be shallow; an
undecodable record changes nothing but the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, assert_never

import msgspec

from herdmesh.connect.topics import (
    ConnectorStatus,
    State,
    TaskStatus,
    Tombstone,
    TopicStatus,
    Undecodable,
    Unknown,
    status_topic,
)
from herdmesh.topicstore.contract import KEEP_ALIVE_KEY, StoredRecord
from herdmesh.topicstore.layered import Layered

#: Number of undecodable records kept for `herd doctor`; all are counted.
UNDECODABLE_KEPT: Final = 100

AnyStatus = ConnectorStatus | TaskStatus


class StoredStatus(msgspec.Struct, frozen=True, gc=False):
    """A status and the position of its own record: partition, offset, and time of the write (epoch ms)."""

    status: AnyStatus
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def task(self) -> int | None:
        return self.status.task if isinstance(self.status, TaskStatus) else None


class StatusPut(msgspec.Struct, frozen=True, gc=False):
    """A status was stored over `previous` (None = there was none)."""

    stored: StoredStatus
    previous: StoredStatus | None


class StatusGone(msgspec.Struct, frozen=True, gc=False):
    """`previous` is no longer stored."""

    previous: StoredStatus


class TopicPut(msgspec.Struct, frozen=True, gc=False):
    """A topic was stored as active."""

    status: TopicStatus


class TopicGone(msgspec.Struct, frozen=True, gc=False):
    """`previous` is no longer active."""

    previous: TopicStatus


Change = StatusPut | StatusGone | TopicPut | TopicGone


@dataclass(frozen=True, slots=True)
class UndecodableRecord:
    """A record that could not be decoded: its position, its key as text, and the reason."""

    partition: int
    offset: int
    key: str
    reason: str


class StatusState:
    """The folded status topic. `apply` is the only mutator."""

    def __init__(self) -> None:
        self.connectors: Layered[str, StoredStatus] = Layered()
        self.tasks: Layered[str, Mapping[int, StoredStatus]] = Layered()
        self.topics: Layered[str, Mapping[str, TopicStatus]] = Layered()
        self.undecodable: tuple[UndecodableRecord, ...] = ()
        self.undecodable_count = 0

    @property
    def connector_count(self) -> int:
        """Connectors that have a status."""
        return len(self.connectors)

    def copy(self) -> Self:
        twin = type(self)()
        twin.connectors = self.connectors.copy()
        twin.tasks = self.tasks.copy()
        twin.topics = self.topics.copy()
        twin.undecodable = self.undecodable
        twin.undecodable_count = self.undecodable_count
        return twin

    def get(self, connector: str, task: int | None) -> StoredStatus | None:
        """The status of a connector (`task` None) or of one task."""
        if task is None:
            return self.connectors.get(connector)
        return self.tasks.get(connector, {}).get(task)

    def tasks_of(self, connector: str) -> list[StoredStatus]:
        """Statuses of a connector's tasks, sorted by task number."""
        return [stored for _, stored in sorted(self.tasks.get(connector, {}).items())]

    def topics_of(self, connector: str) -> list[TopicStatus]:
        """Active topics of a connector as Connect lists them: by the values of the records, each once, sorted
        by name.
        """
        named = {_as_value_says(status): None for status in self.topics.get(connector, {}).values()}
        return sorted(named, key=lambda status: status.topic)

    def statuses(self, connectors: Sequence[str] = ()) -> list[StoredStatus]:
        """Statuses of connectors first, then of tasks, each sorted; `connectors` empty = of all."""
        wanted = set(connectors)
        names = sorted(name for name in {*self.connectors, *self.tasks} if not wanted or name in wanted)
        result = [self.connectors[name] for name in names if name in self.connectors]
        for name in names:
            result += self.tasks_of(name)
        return result

    def apply(self, record: StoredRecord) -> Sequence[Change]:
        """Fold one record into the state."""
        decoded = status_topic.decode(record.key, record.value)
        match decoded:
            case ConnectorStatus() | TaskStatus():
                return self._put(StoredStatus(decoded, record.partition, record.offset, record.timestamp_ms))
            case TopicStatus():
                topics = self.topics.get(decoded.connector, {})
                self.topics[decoded.connector] = {**topics, decoded.topic: decoded}
                return [TopicPut(decoded)]
            case Tombstone():
                return self._remove(decoded, record)
            case Undecodable():
                self._count(record, decoded.reason)
            case Unknown():
                if record.key != KEEP_ALIVE_KEY:
                    self._count(record, "unknown kind of key")
            case _:
                assert_never(decoded)
        return ()

    def _put(self, stored: StoredStatus) -> Sequence[Change]:
        status = stored.status
        previous = self.get(status.connector, stored.task)
        if previous is not None and not status.worker_incarnation and stale_in_connect(previous.status, status):
            return ()
        if isinstance(status, TaskStatus):
            self.tasks[status.connector] = {**self.tasks.get(status.connector, {}), status.task: stored}
        else:
            self.connectors[status.connector] = stored
        return [StatusPut(stored, previous)]

    def _remove(self, tombstone: Tombstone, record: StoredRecord) -> Sequence[Change]:
        name = tombstone.connector
        if tombstone.topic is not None:
            topic = self.topics.get(name, {}).get(tombstone.topic)
            if topic is None:
                return []
            self.topics[name] = {key: kept for key, kept in self.topics[name].items() if key != tombstone.topic}
            return [TopicGone(topic)]
        if tombstone.task is not None:
            task = self.tasks.get(name, {}).get(tombstone.task)
            if task is None:
                return []
            self.tasks[name] = {key: kept for key, kept in self.tasks[name].items() if key != tombstone.task}
            return [StatusGone(task)]
        # A connector's tombstone removes its tasks too (docs/reference/connect/status-topic.md, section 5.1): their own
        # tombstones may lie in other partitions and be read later.
        tasks = self.tasks.pop(name, {})
        kept = {task: stored for task, stored in tasks.items() if not dies_with_its_connector(stored, record)}
        if kept:
            self.tasks[name] = kept
        gone: list[Change] = [StatusGone(stored) for task, stored in sorted(tasks.items()) if task not in kept]
        connector = self.connectors.pop(name, None)
        if connector is not None:
            gone.append(StatusGone(connector))
        return gone

    def _count(self, record: StoredRecord, reason: str) -> None:
        key = (record.key or b"").decode("utf-8", "replace")
        found = UndecodableRecord(record.partition, record.offset, key, reason)
        self.undecodable = (*self.undecodable, found)[-UNDECODABLE_KEPT:]
        self.undecodable_count += 1


def dies_with_its_connector(task: StoredStatus, tombstone: StoredRecord) -> bool:
    """True if a task's status is removed by its connector's `tombstone`, which is read after it.

    Within one partition the order of reading is the order of writing; else the times of the records decide. Of two
    records of one millisecond the tombstone counts as the later, unless our writer wrote the status: our writer gives
    every task it deletes a tombstone of its own, in the same transaction.
    """
    if task.partition == tombstone.partition or task.timestamp_ms < tombstone.timestamp_ms:
        return True
    return task.timestamp_ms == tombstone.timestamp_ms and not task.status.worker_incarnation


def stale_in_connect(previous: AnyStatus, status: AnyStatus) -> bool:
    """Reference 5.2: a task's UNASSIGNED does not replace a RUNNING whose generation is not older.

    A worker that lost a task writes UNASSIGNED while the next owner already writes RUNNING; the late one is stale.
    """
    return (
        isinstance(status, TaskStatus)
        and status.state is State.UNASSIGNED
        and previous.state is State.RUNNING
        and previous.generation >= status.generation
    )


def _as_value_says(status: TopicStatus) -> TopicStatus:
    return TopicStatus(
        topic=status.topic if status.named_topic is None else status.named_topic,
        connector=status.connector if status.named_connector is None else status.named_connector,
        task=status.task,
        discover_timestamp_ms=status.discover_timestamp_ms,
    )
