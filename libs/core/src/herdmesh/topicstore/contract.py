"""The contract of a topic store: one compacted Kafka topic, one elected and fenced writer, many readers.

Owns the types that both engines (`KafkaTopicStore`, `MemoryTopicStore`) and every caller share. Owns no I/O. The state
that a store folds its topic into belongs to the service (`configstore.state`, `statusstore.state`); this module only
says what the engine needs from it.

Invariant: a caller sees a write as done only after this replica's own reader applied it from the topic. It sees a
refusal, a no-op or a linearizable read only after the reader reached an end offset that was fetched after the call
began.
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

#: Key of a record the writer writes to the own topic once a day, so that Kafka never forgets its identity. A state
#: knows it, changes nothing and tells nobody.
KEEP_ALIVE_KEY = b"herdmesh-writer"
#: An object, so that Connect's JSON converter reads it; Connect ignores the key.
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

    A record of the audit topic may be `late`: its value is made from the revision its own write leads to (the next
    offset after the write's last record in the store's own topic), which is known once those records have their
    places. It must be pure and must not raise; it may be called again with another revision, in any thread. `value`
    then is only what a state sees while the write is on its way, so that it can decide the writes behind it; it is
    never written.
    """

    key: bytes
    value: bytes | None
    topic: str | None = None
    late: Callable[[Revision], bytes] | None = None


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as the reader found it, committed, in offset order within its partition. A struct, because a replay
    makes one for every record of the topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class StoreState(Protocol[ChangeT_co]):
    """What a service's pure state offers the engine. Values inside must be immutable, so that a copy can be shallow."""

    def apply(self, record: StoredRecord) -> Sequence[ChangeT_co]:
        """Fold one record in and tell what changed, for watchers. Never raises: bad data goes to `undecodable`.

        Called with records of the audit topic too. Those have no place in a `Revision`, so what is returned for them
        is not given to watchers. Records being decided carry provisional offsets (`writes.PROVISIONAL_OFFSET`): they
        sort after every real one and equal none; compare them, never write one into a record's value.
        """
        ...

    def copy(self) -> Self:
        """An independent shallow copy: the snapshot handed to watchers and the scratch state writes are decided on."""
        ...


@dataclass(frozen=True, slots=True)
class WriteDecision(Generic[ResultT]):
    """What a write decided: `records` in order, all in one transaction; none = a no-op, answered after a read barrier.

    `result` is computed after the records were applied: it is called with the state at that moment and the revision
    (`next_offset` of the write's own last record on its partition; the applied revision for a no-op). That state has
    all records of this write, audit topic included, and nothing decided after it. A write with something `beside` its
    records has a transaction of its own; it fails with `BesideRefused` when Kafka does not take that.
    """

    records: Sequence[NewRecord]
    result: Callable[[Any, Revision], ResultT]
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Where a consumer group goes on in a partition."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a write does outside of the store's topics: it is there exactly when the records of the write are. The store
    never reads it.

    `records` name their topics, which exist; they lie where Java's partitioner puts their keys. `group_offsets` are
    committed for `group`, which has no members.
    """

    records: Sequence[NewRecord] = ()
    group: str = ""
    group_offsets: Sequence[GroupOffset] = ()


class StoreRole(Enum):
    """What this replica may do now.

    Legal moves: REPLAYING -> REPLICA -> TAKING_OVER -> WRITER -> REPLICA; TAKING_OVER -> REPLICA; any -> CLOSED.
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
    """Changes of one applied record, in order. `revision` resumes right after it."""

    changes: Sequence[ChangeT]
    revision: Revision


@dataclass(frozen=True, slots=True)
class WatchProgress:
    """Nothing else happened up to `revision` (sent when the watcher is idle, every few seconds)."""

    revision: Revision


WatchEvent = WatchSnapshot[StateT] | WatchChange[ChangeT] | WatchProgress


class TopicStore(Protocol[StateT, ChangeT]):
    """Both engines. All methods run on one event loop; none blocks it.

    Errors raised (see `topicstore.errors`): `StoreReplaying`, `NotWriter` (writer's address unknown to us: nothing was
    applied, try another replica), `WriterFenced` (not applied, retry), `WriteOutcomeUnknown` (may be applied),
    `BesideRefused` (not applied), `QueueFull`, `RevisionForeign`, `RevisionCompacted` (list again), `RevisionInFuture`,
    `WatchOverflow`, `StoreClosed` (`TopicRecreated`), `NotAuthorized` (of a write: instead of `NotWriter`, when that is
    why; of anything else: the store may not read any more and closed itself); by `start` only: `StartError` with
    `TopicMisconfigured`, `BrokerUnreachable` and `NotAuthorized`.
    """

    @property
    def topic(self) -> str:
        """The store's own topic."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the Kafka cluster that has the topic; empty until `start` has opened it."""
        ...

    @property
    def health(self) -> StoreHealth:
        """What an operator has to look at; there from the beginning, also while `start` fails."""
        ...

    @property
    def role(self) -> StoreRole: ...

    @property
    def state(self) -> StateT:
        """The applied state. Read it, never change it; it moves on at every await."""
        ...

    @property
    def revision(self) -> Revision:
        """Of the applied state."""
        ...

    async def start(self) -> None:
        """Create the topics when absent, check their policy and partitions, replay to the end, join the election.

        After a `StartError` nothing runs, and it may be called again.
        """
        ...

    async def close(self) -> None:
        """Leave the election at once, fail what waits with `StoreClosed`, stop the reader. Bounded in time."""
        ...

    async def write(self, decide: Callable[[StateT], WriteDecision[ResultT]]) -> ResultT:
        """Decide, write and wait until applied.

        `decide` runs synchronously on a scratch state holding everything applied plus every write decided before it in
        the same group commit. It may raise a domain error (a refusal): that is raised to the caller after a read
        barrier, and only if `decide` still refuses on the state then.
        """
        ...

    async def barrier(self) -> Revision:
        """Wait until this replica applied everything committed before the call. Concurrent callers share one fetch."""
        ...

    async def wait_for(self, revision: Revision) -> None:
        """Wait until the applied state includes `revision`."""
        ...

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        """Records of the audit topic at these offsets, read again from the topic, in offset order. What retention has
        deleted, what was never committed and what is not there yet is left out. Waits as long as the log is out of
        reach."""
        ...

    def watch(
        self, resume: Revision | None = None, *, at_least: Revision | None = None
    ) -> AsyncIterator[WatchEvent[StateT, ChangeT]]:
        """Snapshot then changes, or only the changes after `resume`. With `at_least` the replica waits for that
        revision first, so that the snapshot has it. A slow consumer ends with `WatchOverflow`.

        Resumable is what this replica saw since it started, as far as it remembers, and before that what is younger
        than half of the topic's `min.compaction.lag.ms`: no compaction can have removed anything there."""
        ...

    async def role_changes(self) -> AsyncIterator[StoreRole]:
        """The current role, then each new one. Drives read/write health."""
        ...
        yield self.role
