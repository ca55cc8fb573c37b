"""The seam between the engine and where the records live.

Owns the protocol `Log` with the types that cross it; `kafka.KafkaLog` and `memory.MemoryLog` are its two sides.
Everything above (folding, group commit, barriers, watches, roles) is one piece of code for both.

A *shard* is a partition as the engine counts them: 0..n-1 are the store's own, n is the audit topic's only
partition if there is one. Invariant: `LogEvents` are called on the event loop, a shard's records in offset order
and each once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from herdmesh.topicstore.contract import NewRecord, StoredRecord

#: Next offset to read, one per shard.
Positions = tuple[int, ...]
#: Where a produced record lies: shard and offset.
Place = tuple[int, int]


class LogError(Exception):
    """Root of what a log raises; never leaves the engine."""


class LogUnavailable(LogError):
    """Did not work now; the same call may work later."""


class CommitNotSent(LogError):
    """The transaction failed before its commit was asked for: none of its records will ever be visible."""


class CommitUncertain(LogError):
    """The commit was asked for and the answer is missing or bad: only the log can tell."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """`store_id` changes when the topic is recreated; `audit_topic` is the topic of shard `partitions`."""

    store_id: str
    topic: str
    partitions: int
    audit_topic: str | None

    def shard_of(self, record: StoredRecord) -> int:
        return record.partition if record.topic == self.topic else self.partitions

    @property
    def shards(self) -> int:
        return self.partitions + (1 if self.audit_topic is not None else 0)


class LogEvents(Protocol):
    """What the engine offers its log."""

    def on_records(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        """`records` are committed and next; after them everything below `positions` was seen (gaps included)."""
        ...

    def on_owner(self, owned: bool) -> None:
        """This replica now owns, or no longer owns, the right to become the writer."""
        ...

    def on_fault(self, reason: str) -> None:
        """The log cannot go on (topic truncated or gone); the store closes."""
        ...


class Log(Protocol):
    """One replica's access to the topic. `take_over`, `commit` and `release` run one after the other, in call order."""

    async def open(self) -> LogIdentity:
        """Create the topics when absent and check them. Raises `StartError`."""
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
        """Fence every earlier writer; their open transaction is ended when this returns. Raises `LogUnavailable`."""
        ...

    async def commit(self, records: Sequence[NewRecord], placed: Callable[[Sequence[Place]], None]) -> None:
        """One transaction. `placed` is called, in order of `records`, before any of them can be visible.

        Raises `CommitNotSent` or `CommitUncertain`; after either, `take_over` comes before the next `commit`.
        """
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
