"""The interface between the engine and the place where its records are.

Owns the protocol `Log` with the types that cross it; `kafka.KafkaLog` and `memory.MemoryLog` implement it. Everything
above (folding, group commit, barriers, watches, roles) is one piece of code for both.

A *shard* is a partition as the engine counts them: 0..n-1 are the store's own, n is the only partition of the audit
topic if there is one. Invariant: `LogEvents` are called on the event loop, a shard's records in offset order and each
once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from herdmesh.topicstore.contract import Beside, NewRecord, Revision, StoredRecord
from herdmesh.topicstore.errors import BesideRefused, NotAuthorized, StoreClosed, TopicRecreated
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.topicstore.settings import TopicSettings

_logger = logging.getLogger(__name__)

#: Next offset to read, one per shard.
Positions = tuple[int, ...]
#: Where a produced record lies: shard and offset.
LogPlace = tuple[int, int]


#: Of a topic's `max.message.bytes`, what is not for key and value: the broker's framing, and room for a late value to
#: be longer than its provisional one.
FRAMING_BYTES = 1024


class LogError(Exception):
    """Root of what a log raises; never leaves the engine."""


class LogUnavailable(LogError):
    """Did not work now; the same call may work later."""


class LogBlocked(LogUnavailable):
    """The broker answers, and yet this replica cannot take over before what it waits `for_what` has come about; `fix`
    is what an operator can do when that takes long."""

    def __init__(self, for_what: str, fix: str) -> None:
        super().__init__(f"waiting for {for_what}")
        self.for_what = for_what
        self.fix = fix


class CommitNotSent(LogError):
    """The transaction failed before its commit was asked for: none of its records will ever be visible."""


class CommitRefused(CommitNotSent):
    """`CommitNotSent`, and `cause` is what the operator has to look at."""

    def __init__(self, cause: NotAuthorized | TopicRecreated) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CommitBesideRefused(CommitNotSent):
    """`CommitNotSent`, and `cause` is what the caller of the write has to look at; the store itself is well."""

    def __init__(self, cause: BesideRefused) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CommitOutcomeUnknown(LogError):
    """The commit was asked for and the answer is missing or bad: only the log can tell."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """`store_id` changes when the topic is recreated; `audit_topic` is the topic of shard `partitions`.

    The log removes no record of the own topic that is younger than `min_compaction_lag_ms`, nor any that came after
    such a one. It takes records of up to `record_bytes_max`, key and value. `cluster_id` is that of
    Kafka; empty when the broker does not tell it.
    """

    store_id: str
    topic: str
    partitions: int
    audit_topic: str | None
    min_compaction_lag_ms: int = 0
    record_bytes_max: int = 1 << 62
    cluster_id: str = ""

    def shard_of(self, record: StoredRecord) -> int:
        return record.partition if record.topic == self.topic else self.partitions

    @property
    def shards(self) -> int:
        return self.partitions + (1 if self.audit_topic is not None else 0)

    def shard_for(self, record: NewRecord) -> int:
        """Where `record` will lie. Raises ValueError for a topic that is not this store's."""
        if record.topic in (None, self.topic):
            return partition_of(record.key, self.partitions)
        if record.topic != self.audit_topic:
            raise ValueError(f"a store of {self.topic!r} cannot write to topic {record.topic!r}")
        return self.partitions


class Transaction:
    """The records of the writes of one group commit, in the order they were decided, and how they are sent.

    What is `beside` the records of a write, which is the only one then, is sent when all of them are acknowledged.
    When the value of a record is `late`, the records of the own topic are sent first and those of the audit topic when
    the places of the first are known; both parts keep the order. Else everything is sent at once. Who can tell where
    the records will lie (`expected_places`) may send all at once too, and look afterwards whether it was so.
    """

    def __init__(
        self,
        writes: Sequence[Sequence[NewRecord]],
        identity: LogIdentity,
        applied: Revision,
        beside: Beside | None = None,
    ) -> None:
        """`applied` is the revision the first write was decided on."""
        self._writes = writes
        self.beside = beside
        self._applied = applied
        self.records = [record for write in writes for record in write]
        self.shards = [identity.shard_for(record) for record in self.records]
        everything = range(len(self.records))
        #: Indexes into `records` of what waits for the places of the rest; empty when no value is late.
        self.behind: list[int] = []
        if any(record.late for record in self.records):
            self.behind = [index for index in everything if self.shards[index] == identity.partitions]
        waiting = set(self.behind)
        #: Indexes of what can be sent at once.
        self.first = [index for index in everything if index not in waiting]

    def expected_places(self, ends: Sequence[int]) -> list[LogPlace | None]:
        """Where the records of `first` will lie, at their indexes, if nobody else writes to the own topic. `ends` are
        the next offsets of its partitions as far as the caller knows; what was applied may know of later ones."""
        next_offsets = list(map(max, ends, self._applied.next_offsets))
        places: list[LogPlace | None] = [None] * len(self.records)
        for index in self.first:
            shard = self.shards[index]
            places[index] = (shard, next_offsets[shard])
            next_offsets[shard] += 1
        return places

    def values_behind(self, places: Sequence[LogPlace | None]) -> list[bytes | None]:
        """The values of the records of `behind`; `places` has those of `first`, at their indexes. Raises
        `CommitNotSent`."""
        next_offsets = list(self._applied.next_offsets)
        values: list[bytes | None] = []
        index = 0
        for write in self._writes:
            for place in places[index : index + len(write)]:
                if place is not None and place[0] < len(next_offsets):
                    next_offsets[place[0]] = max(next_offsets[place[0]], place[1] + 1)
            revision = Revision(self._applied.store_id, tuple(next_offsets))
            for record in write:
                if self.behind and self.shards[index] == len(next_offsets):
                    values.append(_late_value(record, revision))
                index += 1
        return values


def _late_value(record: NewRecord, revision: Revision) -> bytes | None:
    if record.late is None:
        return record.value
    try:
        return record.late(revision)
    except Exception as bug:
        # It must not raise; but what was sent already can be left uncommitted, and the store can live on.
        _logger.exception("the late value of an audit record could not be made")
        raise CommitNotSent(f"the late value of an audit record could not be made: {bug}") from bug


class LogEvents(Protocol):
    """What the engine offers its log."""

    def on_records(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        """`records` are committed and next; after them everything below `positions` was seen (gaps included)."""
        ...

    def on_owner(self, owned: bool) -> None:
        """This replica now owns, or no longer owns, the right to become the writer."""
        ...

    def on_election_refused(self, error: NotAuthorized | None) -> None:
        """The broker does not let this replica stand for election; None = it does (again)."""
        ...

    def on_fault(self, error: StoreClosed | NotAuthorized) -> None:
        """The log cannot go on (topic truncated or gone, not to be read any more); the store closes."""
        ...


class Log(Protocol):
    """One replica's access to the topic. `take_over`, `commit` and `release` run one after the other, in call order."""

    @property
    def settings(self) -> TopicSettings: ...

    async def open(self) -> LogIdentity:
        """Create the topics when absent and check them. Raises `StartError`; may then be called again."""
        ...

    async def check(self) -> NotAuthorized | None:
        """Look at the topics again: why this replica may not write to them, None = it may.

        Raises `TopicRecreated`, `TopicMisconfigured`, `NotAuthorized` (it may not even read), `LogUnavailable`.
        """
        ...

    def read(self, events: LogEvents) -> None:
        """Begin to deliver records from the beginning of the topic. Called once, after `open`."""
        ...

    def join_election(self) -> None:
        """Begin to deliver `on_owner`. Called once, after the first replay."""
        ...

    async def leave_election(self) -> None:
        """Make room for another owner at once. Bounded in time; may be called without `join_election`."""
        ...

    async def end(self) -> Positions:
        """The end of what is readable in each shard, as of some moment after the call. Raises `LogUnavailable`."""
        ...

    async def prove_ownership(self) -> bool:
        """Ask the group's coordinator, not memory, whether this replica is the owner. `LogUnavailable`: unknown."""
        ...

    async def take_over(self) -> None:
        """Fence every earlier writer; their open transaction is ended when this returns, as it was decided if it was.

        Raises `LogUnavailable`, `NotAuthorized`.
        """
        ...

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        """Write `transaction`. `placed` is called, in order of its records, before any of them can be visible.

        Raises `CommitNotSent` (also as `CommitBesideRefused`) or `CommitOutcomeUnknown`; after either, `take_over`
        comes
        before the next `commit`.
        """
        ...

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        """See `TopicStore.read_audit`. Raises `LogUnavailable`."""
        ...

    def now_ms(self) -> int:
        """The clock that stamps records, for records not in the log yet."""
        ...

    async def release(self) -> None:
        """Give the writer's identity up without touching its transaction (an abort could fence its rightful owner)."""
        ...

    async def close(self) -> None:
        """Stop everything. Bounded in time."""
        ...
