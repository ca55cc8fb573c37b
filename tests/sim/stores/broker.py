"""A simulated broker, as close to a real one as a store can see: open transactions, last stable offset, fencing,
groups, compaction.

Owns topics, transactions, epochs, election groups and the archive of everything that ever became visible, in order. The
memory engine's broker appends whole transactions in one step; here a writer can be killed or frozen between send
and commit, so its records are in the topic unseen and hold every reader back until the transaction is ended.

Kafka's rules, as far as they are modelled: an epoch is raised by initialising the id, which aborts the open transaction
and waits for one that is being committed; a commit is answered before its markers are written; a transaction left open
is aborted after its timeout and its producer fenced; readers see committed records below the first open one.
Invariant: offsets only grow, and the archive is in the order in which records became visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from herdmesh.topicstore.contract import StoredRecord
from herdmesh.topicstore.partitioner import partition_of
from tests.support.config_register import Archived

#: Two hops to the coordinator and back: the time in which a commit is decided and its markers are not written yet.
MARKERS_S = 0.004
TRANSACTION_TIMEOUT_S = 10.0
SESSION_TIMEOUT_S = 6.0
#: No record younger than this is cleaned (`min.compaction.lag.ms`).
COMPACTION_LAG_S = 20.0


class Fenced(Exception):
    """A newer owner of the transactional id, or the broker's timeout, ended this producer."""


class Member(Protocol):
    """A member of an election group."""

    name: str

    def tell_owner(self, owned: bool) -> None: ...


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    number: int
    transactional_id: str
    epoch: int
    writer: str
    records: list[StoredRecord] = field(default_factory=lambda: list[StoredRecord]())
    state: str = "open"  # open, committing, committed, aborted


@dataclass(slots=True)
class Partition:
    """Records in offset order, those of open transactions included."""

    topic: str
    number: int
    records: list[StoredRecord] = field(default_factory=lambda: list[StoredRecord]())
    next_offset: int = 0
    unstable: dict[Transaction, int] = field(default_factory=lambda: dict[Transaction, int]())

    @property
    def stable_offset(self) -> int:
        """The offset up to which a read_committed reader can read."""
        return min(self.unstable.values(), default=self.next_offset)

    def since(self, offset: int, limit: int) -> list[StoredRecord]:
        stable = self.stable_offset
        return [record for record in self.records if offset <= record.offset < stable][:limit]


class SimBroker:
    """State shared by the replicas of one simulated store. `now_s` is the story's clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.archive: list[Archived] = []
        self.available = True
        self._now_s = now_s
        self._topics: dict[str, list[Partition]] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._groups: dict[str, list[Member]] = {}
        self._numbers = 0
        self._owner = ""
        self._readers: dict[Callable[[], None], Callable[[], Sequence[int]]] = {}

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self._now_s() * 1000)

    # Topics.

    def topic(self, name: str, partitions: int) -> list[Partition]:
        """The partitions of a topic, created when missing."""
        if name not in self._topics:
            self._topics[name] = [Partition(name, number) for number in range(partitions)]
        return self._topics[name]

    def produce(self, topic: str, key: bytes, value: bytes | None) -> int:
        """One record of a producer outside every fence; returns its offset."""
        partition = self._topics[topic][partition_of(key, len(self._topics[topic]))]
        record = self._append(partition, key, value)
        self.archive.append(Archived("", self._owner, (record,)))
        self._notify()
        return record.offset

    def compact(self, topic: str, chance: Callable[[float], bool]) -> int:
        """Do a log cleaner's pass: of the records older than the lag keep the last of each key, drop or keep old
        tombstones at random. Returns how many were removed. No record is removed that a running reader has not read: it
        would be further behind than the lag, and no promise covers that reader's watchers for records it never saw.
        """
        gone = 0
        for partition in self._topics.get(topic, []):
            clean_ms = self.now_ms() - COMPACTION_LAG_S * 1000
            end = min([partition.stable_offset, *(read()[partition.number] for read in self._readers.values())])
            last = {record.key: record.offset for record in partition.records if record.offset < end}
            kept = [
                record
                for record in partition.records
                if record.timestamp_ms > clean_ms
                or record.offset >= end
                or (last[record.key] == record.offset and not (record.value is None and chance(0.5)))
            ]
            gone += len(partition.records) - len(kept)
            partition.records = kept
        return gone

    def attach(self, wake: Callable[[], None], positions: Callable[[], Sequence[int]]) -> None:
        """Call `wake` when a reader may find more."""
        self._readers[wake] = positions

    def detach(self, wake: Callable[[], None]) -> None:
        self._readers.pop(wake, None)

    def _append(self, partition: Partition, key: bytes, value: bytes | None) -> StoredRecord:
        record = StoredRecord(partition.topic, partition.number, partition.next_offset, key, value, self.now_ms())
        partition.next_offset += 1
        partition.records.append(record)
        return record

    def _notify(self) -> None:
        for wake in self._readers:
            wake()

    # Transactions.

    def is_committing(self, transactional_id: str) -> bool:
        """A take-over has to wait for this one."""
        found = self._open.get(transactional_id)
        return found is not None and found.state == "committing"

    def fence(self, transactional_id: str, owner: str) -> int:
        """Initialise an id: the open transaction is aborted and its producer can do nothing more."""
        assert not self.is_committing(transactional_id)
        if transactional_id in self._open:
            self._abort(self._open[transactional_id])
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        self._owner = owner
        return self._epochs[transactional_id]

    def begin(self, transactional_id: str, epoch: int, writer: str) -> Transaction:
        """Begin a transaction; the broker learns of it with the first record."""
        self._numbers += 1
        return Transaction(self._numbers, transactional_id, epoch, writer)

    def send(self, transaction: Transaction, partition: Partition, key: bytes, value: bytes | None) -> int:
        """Append one record, unseen until the commit; returns its offset. Raises `Fenced`."""
        self._require_current(transaction)
        if not transaction.records:
            self._open[transaction.transactional_id] = transaction
            asyncio.get_running_loop().call_later(TRANSACTION_TIMEOUT_S, self._expire, transaction)
        record = self._append(partition, key, value)
        partition.unstable.setdefault(transaction, record.offset)
        transaction.records.append(record)
        return record.offset

    def commit(self, transaction: Transaction) -> None:
        """Decide the transaction; its markers follow. Raises `Fenced`."""
        self._require_current(transaction)
        if transaction.state != "open":
            raise Fenced(f"the transaction is {transaction.state}")
        transaction.state = "committing"
        asyncio.get_running_loop().call_later(MARKERS_S, self._complete, transaction)

    def _require_current(self, transaction: Transaction) -> None:
        if self._epochs.get(transaction.transactional_id, 0) != transaction.epoch:
            raise Fenced("a newer producer holds this transactional id")

    def _complete(self, transaction: Transaction) -> None:
        transaction.state = "committed"
        self.archive.append(Archived(transaction.writer, self._owner, tuple(transaction.records)))
        self._mark(transaction)

    def _abort(self, transaction: Transaction) -> None:
        transaction.state = "aborted"
        mine = set(transaction.records)
        for partition in self._touched(transaction):
            partition.records = [record for record in partition.records if record not in mine]
        self._mark(transaction)

    def _expire(self, transaction: Transaction) -> None:
        if transaction.state == "open":
            self._epochs[transaction.transactional_id] += 1
            self._abort(transaction)

    def _mark(self, transaction: Transaction) -> None:
        for partition in self._touched(transaction):
            partition.next_offset += 1  # the marker
            del partition.unstable[transaction]
        if self._open.get(transaction.transactional_id) is transaction:
            del self._open[transaction.transactional_id]
        self._notify()

    def _touched(self, transaction: Transaction) -> Iterator[Partition]:
        for topic in self._topics.values():
            for partition in topic:
                if transaction in partition.unstable:
                    yield partition

    # Election groups: the longest-standing member owns partition 0.

    def join(self, group: str, member: Member) -> None:
        self._groups.setdefault(group, []).append(member)
        self._tell_owner(group)

    def leave(self, group: str, member: Member) -> None:
        """Remove a member that left or whose session timed out. It is not notified: it left, or is unreachable."""
        members = self._groups.get(group, [])
        if member in members:
            members.remove(member)
            self._tell_owner(group)

    def is_member(self, group: str, member: Member) -> bool:
        return member in self._groups.get(group, [])

    def owner(self, group: str) -> Member | None:
        members = self._groups.get(group, [])
        return members[0] if members else None

    def move(self, group: str) -> Member | None:
        """Give partition 0 to another member. Returns the previous owner, which is not notified: its heartbeat is
        late.
        """
        members = self._groups.get(group, [])
        if len(members) < 2:
            return None
        members.append(members.pop(0))
        self._tell_owner(group)
        return members[-1]

    def _tell_owner(self, group: str) -> None:
        owner = self.owner(group)
        if owner is not None:
            owner.tell_owner(True)
