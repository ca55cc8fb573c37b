"""The write rules of the status topic: docs/reference/connect/status-topic.md, section 4, made strict where Connect is
best-effort.

Owns PUT, PUT_SAFE, compare-and-set, and the records of a deletion. Owns no bytes
(`herdmesh.connect.topics.status_topic`) and no waiting (`herdmesh.topicstore`).

Invariant: a put is reported APPLIED only if all readers, Java's too, will show it (or show nothing after a DESTROYED).
A write that Connect's readers would ignore is refused. The UNASSIGNED of the process whose RUNNING is stored is not
stale, whatever its generation, so a tombstone is written before it, in the same transaction.
docs/reference/differences.md has the cases that Java's reader nevertheless shows differently, because of the form of
its topic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from herdmesh.connect.topics import State, TaskStatus, Tombstone, TopicStatus, status_topic
from herdmesh.rpc.errors import RequestInvalid
from herdmesh.statusstore.state.sequences import Key
from herdmesh.statusstore.state.statuses import AnyStatus, StatusState, StoredStatus, stale_in_connect
from herdmesh.topicstore.contract import NewRecord

#: The broker would refuse a larger record (1 MiB by default), and every write of its transaction would fail with it.
RECORD_BYTES_MAX: Final = 768 * 1024


class PutMode(Enum):
    """The rule that a put follows."""

    PUT = "put"
    PUT_SAFE = "put_safe"


class PutResult(Enum):
    """The outcome of a put."""

    APPLIED = "applied"
    STATUS_NEWER = "status_newer"
    STALE_GENERATION = "stale_generation"
    REVISION_MISMATCH = "revision_mismatch"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Position of a record: its partition and the offset after it. Partition -1 = no record is expected to exist."""

    partition: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Put:
    """One status to write; `expected` None = unconditional."""

    status: AnyStatus
    mode: PutMode
    expected: RecordPosition | None = None

    @property
    def key(self) -> Key:
        return self.status.connector, self.status.task if isinstance(self.status, TaskStatus) else None


@dataclass(frozen=True, slots=True)
class PutsDecision:
    """One result per put, in order, and the records of the applied puts."""

    results: tuple[PutResult, ...]
    records: tuple[NewRecord, ...]


def decide_puts(state: StatusState, puts: Sequence[Put], late: Collection[Key] = ()) -> PutsDecision:
    """Decide a batch in order, each put on top of those before it; `late` are superseded (see `sequences`).

    Deciding a batch again on the state it made changes nothing, or refuses puts for which something newer is stored, so
    a retry after an unknown outcome does no harm. Raises `RequestInvalid` for a record that is too large.
    """
    results: list[PutResult] = []
    records: list[NewRecord] = []
    written: dict[Key, AnyStatus | None] = {}
    for put in puts:
        stored = state.get(*put.key)
        if put.key in written:
            # Its revision is unknown before it is written, so no caller can expect it.
            pending = written[put.key]
            stored = None if pending is None else StoredStatus(pending, partition=-2, offset=-1, timestamp_ms=0)
        result = PutResult.SUPERSEDED if put.key in late else _refusal(put, stored)
        if result is None:
            result = PutResult.APPLIED
            key, value = status_topic.encode(put.status)
            records += [_tombstone(Tombstone("status-task", *taken)) for taken in _taken_along(state, written, put)]
            if _could_be_read_as_stale(put.status, stored):
                records.append(NewRecord(key, None))
            if value is not None or stored is not None:
                records.append(NewRecord(key, _bounded(put, value)))
        results.append(result)
    return PutsDecision(tuple(results), tuple(records))


def _refusal(put: Put, stored: StoredStatus | None) -> PutResult | None:
    if stored is None and put.status.state is State.DESTROYED:
        return None  # already as requested, whatever was expected: a retry whose first response was lost
    if put.expected is not None and put.expected != _position(stored):
        as_asked = stored is not None and stored.status == put.status  # the same here
        return PutResult.APPLIED if as_asked else PutResult.REVISION_MISMATCH
    if stored is None:
        return None
    old, new = stored.status, put.status
    older = old.generation > new.generation
    other_process = bool(old.worker_incarnation) and old.worker_incarnation != new.worker_incarnation
    if put.mode is PutMode.PUT:
        # Connect writes here over any stored status (docs/reference/connect/status-topic.md, section 8,
        # putConnectorStateShouldOverride). Where the stored status is ours, a newer generation of another process means
        # that the writer was replaced.
        if older and other_process:
            return PutResult.STALE_GENERATION
    elif (
        older
        and not _of_java(old, new)
        and (old.worker_id != new.worker_id or (other_process and new.worker_incarnation))
    ):
        return PutResult.STATUS_NEWER
    same_process = bool(new.worker_incarnation) and not other_process
    return PutResult.STATUS_NEWER if stale_in_connect(old, new) and not same_process else None


def _could_be_read_as_stale(new: AnyStatus, stored: StoredStatus | None) -> bool:
    """True for an UNASSIGNED of a process of ours that Java may read right after a RUNNING that makes it stale.

    That RUNNING is stored, or a tombstone of its connector removed it; that tombstone is in another partition, so other
    readers may read it later.
    """
    if not isinstance(new, TaskStatus) or new.state is not State.UNASSIGNED or not new.worker_incarnation:
        return False
    return stored is None or stale_in_connect(stored.status, new)


def _of_java(old: AnyStatus, new: AnyStatus) -> bool:
    """True where a worker of ours writes over a status of Java. Its generations are those of another group: by
    Connect's rule a FAILED of ours would be ignored until our own generations are higher.
    """
    return bool(new.worker_incarnation) and not old.worker_incarnation


def _position(stored: StoredStatus | None) -> RecordPosition:
    return RecordPosition(-1, 0) if stored is None else RecordPosition(stored.partition, stored.offset + 1)


def _taken_along(state: StatusState, written: dict[Key, AnyStatus | None], put: Put) -> list[tuple[str, int]]:
    """Add the result of `put` to `written`; return the tasks whose statuses are removed with their connector's,
    including those of this batch.

    They get tombstones of their own: the connector's tombstone would remove them
    (docs/reference/connect/status-topic.md, section 5.1), but it may lie in another partition, and partitions are read
    in any order.
    """
    gone = put.status.state is State.DESTROYED
    written[put.key] = None if gone else put.status
    name, task = put.key
    if not gone or task is not None:
        return []
    numbers = {
        *state.tasks.get(name, {}),
        *(number for other, number in written if other == name and number is not None),
    }
    taken = [number for number in sorted(numbers) if written.get((name, number), state.get(name, number)) is not None]
    written.update({(name, number): None for number in taken})
    return [(name, number) for number in taken]


def _bounded(put: Put, value: bytes | None) -> bytes | None:
    if value is not None and len(value) > RECORD_BYTES_MAX:
        raise RequestInvalid(f"the status of {put.status.connector!r} is {len(value)} bytes as JSON", "status")
    return value


def decide_topics(state: StatusState, topics: Sequence[TopicStatus]) -> list[NewRecord]:
    """Records of active topics, without those already stored unchanged (docs/reference/connect/status-topic.md, section
    6.1).
    """
    return [
        NewRecord(*status_topic.encode(topic))
        for topic in topics
        if state.topics.get(topic.connector, {}).get(topic.topic) != topic
    ]


def decide_topic_deletion(
    state: StatusState, connector: str, topics: Sequence[str], by_ms: int | None = None
) -> list[NewRecord]:
    """Tombstones of a connector's topics; `topics` empty = all of them. Topics discovered after `by_ms` are kept: a
    possible retry must not remove topics recorded since the first request.
    """
    stored = state.topics.get(connector, {})
    known = {name for name, topic in stored.items() if by_ms is None or topic.discover_timestamp_ms <= by_ms}
    wanted = [topic for topic in (topics or sorted(known)) if topic in known]
    return [_tombstone(Tombstone("status-topic", connector, topic=topic)) for topic in wanted]


def decide_connector_deletion(
    state: StatusState, connector: str, tasks_from: int | None, include_topics: bool, generation_below: int = 0
) -> list[NewRecord]:
    """Tombstones of a connector's tasks from a number on, or (None) of all its tasks, then of the connector
    (docs/reference/connect/status-topic.md, section 6).

    Statuses that a worker of ours wrote under a generation from `generation_below` on are kept (0 = none is kept): a
    late removal must not remove the status of the connector's next life. If a task's status is kept, the connector's is
    kept too: its tombstone would remove the task (docs/reference/connect/status-topic.md, section 5.1). The next life's
    own status replaces it.
    """

    def goes(stored: StoredStatus) -> bool:
        status = stored.status
        return not generation_below or not status.worker_incarnation or status.generation < generation_below

    known = state.tasks.get(connector, {})
    tasks = [task for task in sorted(known) if (tasks_from is None or task >= tasks_from) and goes(known[task])]
    records = [_tombstone(Tombstone("status-task", connector, task)) for task in tasks]
    all_go = tasks_from is None and len(tasks) == len(known)
    if all_go and connector in state.connectors and goes(state.connectors[connector]):
        records.append(_tombstone(Tombstone("status-connector", connector)))
    if include_topics:
        records += decide_topic_deletion(state, connector, ())
    return records


def _tombstone(tombstone: Tombstone) -> NewRecord:
    key, _ = status_topic.encode(tombstone)
    return NewRecord(key, None)
