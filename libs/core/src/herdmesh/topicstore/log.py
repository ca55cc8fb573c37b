"""The interface between the engine and the place where its records are.

Owns the protocol `Log` with the types that cross it; `kafka.KafkaLog` and `memory.MemoryLog` implement it. Everything
above (folding, group commit, barriers, watches, roles) is one piece of code for both.

A *shard* is a partition as the engine counts them: 0..n-1 are the store's own, n is the only partition of the audit
topic if there is one. Invariant: `LogEvents` are called on the event loop, the records of a shard in offset order and
each once.
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
#: Place of a produced record: shard and offset.
LogPlace = tuple[int, int]


#: Part of a topic's `max.message.bytes` that is not for key and value: the broker's framing, and room for a late value
#: that is longer than its provisional one.
FRAMING_BYTES = 1024


class LogError(Exception):
    """Root of the errors of a log; never leaves the engine."""


class LogUnavailable(LogError):
    """The call failed now; the same call may succeed later."""


class LogBlocked(LogUnavailable):
    """The broker answers, but this replica cannot take over before `for_what` happens; `fix` is the action for an
    operator when that takes long.
    """

    def __init__(self, for_what: str, fix: str) -> None:
        super().__init__(f"waiting for {for_what}")
        self.for_what = for_what
        self.fix = fix


class CommitNotSent(LogError):
    """The transaction failed before its commit request: none of its records will ever be visible."""


class CommitRefused(CommitNotSent):
    """A `CommitNotSent` whose `cause` an operator has to fix."""

    def __init__(self, cause: NotAuthorized | TopicRecreated) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CommitBesideRefused(CommitNotSent):
    """A `CommitNotSent` whose `cause` the caller of the write has to fix; the store itself is healthy."""

    def __init__(self, cause: BesideRefused) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CommitOutcomeUnknown(LogError):
    """The commit was requested and the reply is missing or an error: only the log has the outcome."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """`store_id` changes when the topic is recreated; `audit_topic` is the topic of shard `partitions`.

    The log removes no record of the own topic that is younger than `min_compaction_lag_ms`, nor any later record. It
    accepts records of up to `record_bytes_max`, key and value. `cluster_id` is that of Kafka; empty when the broker
    does not return it.
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
        """The shard of `record`. Raises ValueError for a topic that is not this store's."""
        if record.topic in (None, self.topic):
            return partition_of(record.key, self.partitions)
        if record.topic != self.audit_topic:
            raise ValueError(f"a store of {self.topic!r} cannot write to topic {record.topic!r}")
        return self.partitions


class Transaction:
    """The records of the writes of one group commit, in the order of decision, and how they are sent.

    Side writes (`beside`) belong to the only write of their transaction; they are sent when all its records are
    acknowledged. When the value of a record is `late`, the records of the own topic are sent first, and those of the
    audit topic when the places of the first are known; both parts keep the order. Else everything is sent at once. A
    log that can predict the places (`expected_places`) may also send everything at once and verify the places
    afterwards.
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
        #: Indexes into `records` of those that wait for the places of the rest; empty when no value is late.
        self.behind: list[int] = []
        if any(record.late for record in self.records):
            self.behind = [index for index in everything if self.shards[index] == identity.partitions]
        waiting = set(self.behind)
        #: Indexes of the records that can be sent at once.
        self.first = [index for index in everything if index not in waiting]

    def expected_places(self, ends: Sequence[int]) -> list[LogPlace | None]:
        """The places that the records of `first` get, at their indexes, if there is no other writer to the own topic.
        `ends` are the next offsets of its partitions as far as the caller knows; the applied revision may have later
        ones.
        """
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
        # The function must not raise. But the records sent so far can stay uncommitted, and the store can continue.
        _logger.exception("the late value of an audit record could not be made")
        raise CommitNotSent(f"the late value of an audit record could not be made: {bug}") from bug


class LogEvents(Protocol):
    """Callbacks of the engine for its log."""

    def on_records(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        """Take the next committed `records`; after them everything below `positions` was read (gaps included)."""
        ...

    def on_owner(self, owned: bool) -> None:
        """This replica now owns, or no longer owns, the right to become the writer."""
        ...

    def on_election_refused(self, error: NotAuthorized | None) -> None:
        """The broker denies this replica the membership that an election needs; None = it allows it (again)."""
        ...

    def on_fault(self, error: StoreClosed | NotAuthorized) -> None:
        """The log cannot continue (topic truncated, deleted or unreadable); the store closes."""
        ...


class Log(Protocol):
    """One replica's access to the topic. `take_over`, `commit` and `release` run one after the other, in call order."""

    @property
    def settings(self) -> TopicSettings: ...

    async def open(self) -> LogIdentity:
        """Create the topics when absent and check them. Raises `StartError`; may then be called again."""
        ...

    async def check(self) -> NotAuthorized | None:
        """Check the topics again. Return the reason why this replica may not write to them, None = it may.

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
        """Let another owner be elected at once. Bounded in time; may be called without `join_election`."""
        ...

    async def end(self) -> Positions:
        """The end of the readable records in each shard, at some moment after the call. Raises `LogUnavailable`."""
        ...

    async def prove_ownership(self) -> bool:
        """Query the group's coordinator, not memory, for the ownership of this replica. `LogUnavailable`: unknown."""
        ...

    async def take_over(self) -> None:
        """Fence every earlier writer. When this returns, their open transactions have ended, with the recorded decision
        if there was one.

        Raises `LogUnavailable`, `NotAuthorized`.
        """
        ...

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        """Write `transaction`. `placed` is called with the places of its records, in order, before any of them can be
        visible.

        Raises `CommitNotSent` (also as `CommitBesideRefused`) or `CommitOutcomeUnknown`; after either, `take_over`
        comes before the next `commit`.
        """
        ...

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        """See `TopicStore.read_audit`. Raises `LogUnavailable`."""
        ...

    def now_ms(self) -> int:
        """The clock that stamps records, for the timestamps of provisional records."""
        ...

    async def release(self) -> None:
        """Release the writer's identity without touching its transaction (an abort could fence the rightful owner)."""
        ...

    async def close(self) -> None:
        """Stop everything. Bounded in time."""
        ...
