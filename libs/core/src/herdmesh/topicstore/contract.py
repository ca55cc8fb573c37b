"""The contract of a topic store: one compacted Kafka topic, one elected and fenced writer, many readers.

Owns the types that both engines (`KafkaTopicStore`, `MemoryTopicStore`) and every caller share. Owns no I/O. The state
that a store folds its topic into belongs to the service (`configstore.state`, `statusstore.state`); this module defines
only what the engine needs from it.

Invariant: a write returns only after this replica's own reader has applied it from the topic. A refusal, a no-op or a
linearizable read returns only after the reader has reached an end offset that was fetched after the call began.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from herdmesh.topicstore.health import StoreHealth

StateT = TypeVar("StateT", bound="StoreState[Any]")
ChangeT = TypeVar("ChangeT")
ChangeT_co = TypeVar("ChangeT_co", covariant=True)
ResultT = TypeVar("ResultT")

#: Key of the keep-alive record, which the writer writes to its own topic once a day so that Kafka does not expire its
#: transactional id. A state accepts this key, changes nothing and reports no change.
KEEP_ALIVE_KEY = b"herdmesh-writer"
#: A JSON object, so that Connect's JSON converter reads it; Connect ignores the key.
KEEP_ALIVE_VALUE = b'{"version":1}'


@dataclass(frozen=True, slots=True)
class Revision:
    """A point in a store's history: the next offset of each partition of the topic named by `store_id`.

    Opaque to callers. Offsets have gaps (transaction markers, compaction), so revisions are compared per partition and
    never subtracted. A revision of another store id is refused (`RevisionForeign`).
    """

    store_id: str
    next_offsets: tuple[int, ...]

    def includes(self, other: Revision) -> bool:
        """True when everything visible at `other` is visible at this revision."""
        return self.store_id == other.store_id and all(
            mine >= theirs for mine, theirs in zip(self.next_offsets, other.next_offsets, strict=True)
        )


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write. `value=None` is a tombstone. `topic=None` is the store's own topic, else its audit topic.

    A record of the audit topic may be `late`: a function computes its value from the revision that its own write leads
    to (the next offset after the write's last record in the store's own topic). That revision is known once those
    records have their places. The function must be pure and must not raise; it may be called again with another
    revision, in any thread. `value` is then a provisional value: a state sees it while the write is in flight, to
    decide the next writes. It is never written.
    """

    key: bytes
    value: bytes | None
    topic: str | None = None
    late: Callable[[Revision], bytes] | None = None


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A committed record as the reader delivers it, in offset order within its partition. A struct, because a replay
    creates one for every record of the topic.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class StoreState(Protocol[ChangeT_co]):
    """Interface of a service's pure state for the engine. Values inside must be immutable, so that a copy can be
    shallow.
    """

    def apply(self, record: StoredRecord) -> Sequence[ChangeT_co]:
        """Fold one record in and return the changes for watchers. Never raises: unreadable data goes to `undecodable`.

        Called with records of the audit topic too. A `Revision` has no place for those, so their changes do not reach
        watchers. Records under decision carry provisional offsets (`writes.PROVISIONAL_OFFSET`): they sort after every
        real offset and equal none. Compare them; never write one into a record's value.
        """
        ...

    def copy(self) -> Self:
        """An independent shallow copy, for a watcher's snapshot and for the scratch state on which writes are
        decided."""
        ...


@dataclass(frozen=True, slots=True)
class WriteDecision(Generic[ResultT]):
    """The decision of a write: `records` in order, all in one transaction; none = a no-op, answered after a read
    barrier.

    `result` is called after the records are applied, with the state at that moment and the revision (`next_offset` of
    the write's own last record on its partition; the applied revision for a no-op). That state has all records of this
    write, audit topic included, and no later decision. A write with side writes (`beside`) has a transaction of its
    own; it fails with `BesideRefused` when Kafka rejects them.
    """

    records: Sequence[NewRecord]
    result: Callable[[Any, Revision], ResultT]
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a consumer group: where the group continues in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Side writes of a write: records and offsets outside the store's topics, visible exactly when the records of the
    write are. The store never reads them.

    `records` name their topics, which must exist; Java's partitioner chooses the partition from the key.
    `group_offsets` are committed for `group`, which must have no members.
    """

    records: Sequence[NewRecord] = ()
    group: str = ""
    group_offsets: Sequence[GroupOffset] = ()


class StoreRole(Enum):
    """What this replica may do at present.

    Legal transitions: REPLAYING -> REPLICA -> TAKING_OVER -> WRITER -> REPLICA; TAKING_OVER -> REPLICA; any -> CLOSED.
    """

    REPLAYING = "replaying"
    REPLICA = "replica"
    TAKING_OVER = "taking_over"
    WRITER = "writer"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class WatchSnapshot(Generic[StateT]):
    """First event of a watch that does not resume: a copy of the whole state."""

    state: StateT
    revision: Revision


@dataclass(frozen=True, slots=True)
class WatchChange(Generic[ChangeT]):
    """Changes of one applied record, in order. A watch that resumes at `revision` continues right after it."""

    changes: Sequence[ChangeT]
    revision: Revision


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """Nothing else happened up to `revision` (sent every few seconds while the watcher is idle)."""

    revision: Revision


WatchEvent = WatchSnapshot[StateT] | WatchChange[ChangeT] | WatchProgress


class TopicStore(Protocol[StateT, ChangeT]):
    """Interface of both engines. All methods run on one event loop; none blocks it.

    Errors raised (see `topicstore.errors`): `StoreReplaying`, `NotWriter` (nothing was applied, the writer's address is
    unknown: try another replica), `WriterFenced` (not applied, retry), `WriteOutcomeUnknown` (may be applied),
    `BesideRefused` (not applied), `QueueFull`, `RevisionForeign`, `RevisionCompacted` (list again), `RevisionInFuture`,
    `WatchOverflow`, `StoreClosed` (`TopicRecreated`), `NotAuthorized` (of a write: instead of `NotWriter`, when missing
    permission is the reason; of any other call: the store lost read permission and closed itself). `start` alone raises
    `StartError` with `TopicMisconfigured`, `BrokerUnreachable` and `NotAuthorized`.
    """

    @property
    def topic(self) -> str:
        """The store's own topic."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster that has the topic; empty until `start` has opened the topic."""
        ...

    @property
    def health(self) -> StoreHealth:
        """The condition for the operator; available from the beginning, also while `start` fails."""
        ...

    @property
    def role(self) -> StoreRole: ...

    @property
    def state(self) -> StateT:
        """The applied state. Read it, never change it; it advances at every await."""
        ...

    @property
    def revision(self) -> Revision:
        """The revision of the applied state."""
        ...

    async def start(self) -> None:
        """Create the topics when absent, check their policy and partitions, replay to the end, join the election.

        After a `StartError` nothing runs, and `start` may be called again.
        """
        ...

    async def close(self) -> None:
        """Leave the election at once, fail waiting calls with `StoreClosed`, stop the reader. Bounded in time."""
        ...

    async def write(self, decide: Callable[[StateT], WriteDecision[ResultT]]) -> ResultT:
        """Decide, write and wait until applied.

        `decide` runs synchronously on a scratch state that has everything applied plus every write decided before it in
        the same group commit. It may raise a domain error (a refusal). After a read barrier `decide` runs again; the
        error is raised to the caller only if it is raised again.
        """
        ...

    async def barrier(self) -> Revision:
        """Wait until this replica has applied every write committed before the call. Concurrent callers share one
        fetch.
        """
        ...

    async def wait_for(self, revision: Revision) -> None:
        """Wait until the applied state includes `revision`."""
        ...

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        """Records of the audit topic at these offsets, read from the topic again, in offset order. Leaves out records
        that retention has deleted, that were not committed or that do not exist yet. Waits for as long as the log is
        unreachable.
        """
        ...

    def watch(
        self, resume: Revision | None = None, *, at_least: Revision | None = None
    ) -> AsyncIterator[WatchEvent[StateT, ChangeT]]:
        """Yield a snapshot and then changes, or only the changes after `resume`. With `at_least` the replica waits for
        that revision first, so that the snapshot has it. The watch of a slow consumer ends with `WatchOverflow`.

        A watch can resume at any change that this replica remembers since its start. It can also resume at a change
        from before the start that is younger than half of the topic's `min.compaction.lag.ms`: no compaction can have
        removed anything there.
        """
        ...

    async def role_changes(self) -> AsyncIterator[StoreRole]:
        """Yield the current role, then each new one. Read and write health follow it."""
        ...
        yield self.role
