"""The applied state of a store: takes committed records, yields the state and its position, wakes callers that wait for
a position.

Owns the applied state. Knows no log and no asyncio task: it is called on the event loop and never awaits. A transaction
of this replica (`Flight`) is applied as a whole. Its records are buffered until all are read, then applied in the order
in which they were decided. So the result of a write is computed on a state that has this write and no write decided
after it. Invariant: the records of one shard are applied in offset order, each once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto, unique
from typing import Any, Generic

from herdmesh.topicstore.contract import ChangeT, Revision, StateT, StoredRecord
from herdmesh.topicstore.log import LogIdentity, LogPlace, Positions


def fail_future(future: asyncio.Future[Any], error: Exception) -> None:
    """Fail `future` if it is open, and mark the exception as retrieved, because all waiters may have gone."""
    if not future.done():
        future.set_exception(error)
        future.exception()


@unique
class Outcome(Enum):
    """The outcome of a transaction of this replica, as the log shows it."""

    #: The reader has read all its records.
    LANDED = auto()
    #: The reader passed the places of its records and found none.
    ABSENT = auto()
    #: The reader passed the places of some records and found others. The transaction was committed: either a broker
    #: lost a marker (ADR 0006), or retention deleted records before they were read.
    PARTLY = auto()


class Flight:
    """One transaction of this replica on its way through the log.

    `outcome` is what the log shows, whatever the commit call returned. `landing()` is called when all records are read
    and none is applied, `completed(i, revision)` when the last record of write i is applied.
    """

    def __init__(
        self,
        write_sizes: Sequence[int],
        completed: Callable[[int, Revision], None],
        landing: Callable[[], None] = lambda: None,
    ) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._write_sizes = write_sizes
        self._completed = completed
        self._landing = landing
        self._places: Sequence[LogPlace] = ()
        self._found: dict[LogPlace, StoredRecord] = {}

    def place(self, places: Sequence[LogPlace]) -> None:
        """Set the places of the records. No record can be read before this call."""
        assert len(places) == sum(self._write_sizes)
        self._places = places
        self._awaited = set(places)

    @property
    def arriving(self) -> bool:
        return bool(self._found)

    def take(self, place: LogPlace, record: StoredRecord) -> bool:
        """Keep `record` if it belongs to this flight; return whether it does."""
        if not self._places or place not in self._awaited:
            return False
        self._found[place] = record
        return True

    def complete(self) -> bool:
        return bool(self._places) and len(self._found) == len(self._places)

    def passed_by(self, positions: Positions) -> bool:
        """True when the reader is past one of the places without a record there: a transaction is all or nothing."""
        return any(positions[shard] > offset and (shard, offset) not in self._found for shard, offset in self._places)

    def apply(self, apply: Callable[[int, StoredRecord], None], revision: Callable[[], Revision]) -> None:
        """Apply all records in the order of decision; call `completed` of each write right after its last record."""
        self._landing()
        place = iter(self._places)
        for write, size in enumerate(self._write_sizes):
            for _ in range(size):
                shard, offset = next(place)
                apply(shard, self._found[shard, offset])
            self._completed(write, revision())
        self.finish(Outcome.LANDED)

    def abandon(self) -> Mapping[LogPlace, StoredRecord]:
        """End the flight because no more of its records will come. Return the records that came: they are committed
        like any other.
        """
        self.finish(Outcome.PARTLY if self._found else Outcome.ABSENT)
        return self._found

    def finish(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Applied(Generic[StateT, ChangeT]):
    """The state applied so far, and the futures that wait for positions."""

    def __init__(self, state: StateT, publish: Callable[[int, int, Sequence[ChangeT]], None]) -> None:
        """`publish(partition, offset, changes)` is called for each record of the store's own topic, also for a record
        without changes. During the call, `revision` is the revision right after that record.
        """
        self.state = state
        self._publish = publish
        self._identity = LogIdentity("", "", 0, None)
        self._positions: list[int] = []
        self._seen: list[int] = []  # like `_positions`, but includes buffered records
        #: Futures of callers, each with the list it waits on (`_positions` or `_seen`) and the target offset of every
        #: shard.
        self._waiters: dict[asyncio.Future[None], tuple[list[int], Positions]] = {}
        self._flight: Flight | None = None
        self._held: list[deque[StoredRecord]] = []
        self._applied_records = 0
        self._snapshot: tuple[int, StateT] | None = None

    def open(self, identity: LogIdentity) -> None:
        self._identity = identity
        self._positions = [0] * identity.shards
        self._seen = [0] * identity.shards
        self._held = [deque() for _ in range(identity.shards)]

    @property
    def revision(self) -> Revision:
        return Revision(self._identity.store_id, tuple(self._positions[: self._identity.partitions]))

    @property
    def seen(self) -> Positions:
        """The position of the reader."""
        return tuple(self._seen)

    @property
    def applied_records(self) -> int:
        """The number of applied records, including the first replay."""
        return self._applied_records

    def snapshot(self) -> StateT:
        """A copy of the state, shared by all callers until the next record is applied."""
        if self._snapshot is None or self._snapshot[0] != self._applied_records:
            self._snapshot = (self._applied_records, self.state.copy())
        return self._snapshot[1]

    def feed(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        """Apply the records that the reader found. An exception of `state.apply` propagates: the store must close
        then."""
        flight = self._flight
        shard_of = self._identity.shard_of
        for record in records:
            shard = shard_of(record)
            if flight is None:
                self._apply(shard, record)
            elif flight.take((shard, record.offset), record):
                if flight.complete():
                    self._land(flight)
                    flight = None
            elif flight.arriving:
                self._held[shard].append(record)
            else:
                self._apply(shard, record)
        if flight is not None and flight.passed_by(positions):
            self._drop(flight)
            flight = None
        self._see(positions)

    def expect(self, flight: Flight) -> None:
        """Register the next transaction. There is one at a time."""
        assert self._flight is None
        self._flight = flight

    def retract(self, flight: Flight) -> None:
        """Remove `flight`, which was never sent."""
        if self._flight is flight:
            self._drop(flight)

    def settle_at_end(self) -> None:
        """Drop an open flight. The caller has ended every earlier transaction and read the whole log: the flight is not
        in it.
        """
        if self._flight is not None:
            self._drop(self._flight)
            self._see(self._seen)

    def read_to(self, target: Sequence[int]) -> asyncio.Future[None]:
        """Like `wait`, for the position of the reader: its records may still be buffered. If the rest of a transaction
        never comes, nothing of it is applied before `settle_at_end`.
        """
        return self._wait(self._seen, tuple(target))

    def wait(self, target: Sequence[int]) -> asyncio.Future[None]:
        """Return a future that completes when every shard that `target` names has reached its offset."""
        return self._wait(self._positions, tuple(target))

    def _wait(self, positions: list[int], target: Positions) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if _reached(positions, target):
            future.set_result(None)
        else:
            self._waiters[future] = positions, target
            # Also after a cancelled wait: on a topic without traffic nothing else would remove the entry.
            future.add_done_callback(lambda done: self._waiters.pop(done, None))
        return future

    def fail_waiters(self, error: Exception) -> None:
        for future in list(self._waiters):
            fail_future(future, error)

    def _apply(self, shard: int, record: StoredRecord) -> None:
        assert record.offset >= self._positions[shard], "a record was delivered twice"
        changes = self.state.apply(record)
        self._applied_records += 1
        self._positions[shard] = record.offset + 1
        if shard < self._identity.partitions:
            self._publish(shard, record.offset, changes)

    def _land(self, flight: Flight) -> None:
        def apply(shard: int, record: StoredRecord) -> None:
            # Apply other writers' records first where they lie before ours in this shard.
            held = self._held[shard]
            while held and held[0].offset < record.offset:
                self._apply(shard, held.popleft())
            self._apply(shard, record)

        self._flight = None
        flight.apply(apply, lambda: self.revision)
        self._apply_held()

    def _drop(self, flight: Flight) -> None:
        self._flight = None
        for (shard, _), record in flight.abandon().items():
            self._held[shard].append(record)
        for shard, held in enumerate(self._held):
            self._held[shard] = deque(sorted(held, key=lambda record: record.offset))
        self._apply_held()

    def _apply_held(self) -> None:
        for shard, held in enumerate(self._held):
            while held:
                self._apply(shard, held.popleft())

    def _see(self, positions: Sequence[int]) -> None:
        """Advance the reader's position. The applied position follows, unless a flight is partly read."""
        holds = self._flight is not None and self._flight.arriving
        for shard, position in enumerate(positions):
            self._seen[shard] = max(self._seen[shard], position)
            if not holds:
                self._positions[shard] = max(self._positions[shard], position)
        for future, (reached, target) in self._waiters.items():
            if not future.done() and _reached(reached, target):
                future.set_result(None)


def _reached(positions: Sequence[int], target: Positions) -> bool:
    return all(position >= wanted for position, wanted in zip(positions, target, strict=False))
