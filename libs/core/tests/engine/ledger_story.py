"""Random interleavings of owners of one partition, at any point of their transactions, over one real ledger.

Owns no test and no database: a `Target` supplies connections. A story checks the ledger's promise after every step: the
rows of the target are those of the records below the ledger's offset, each once.

A step names a *slot*: a process that may live on after another has taken over, and continues at its next step.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hypothesis import strategies

from herdmesh.connect.spi.connector import PartitionId, SinkBatch
from herdmesh.engine.runtime.errors import TaskFailed
from herdmesh.engine.sink.sql_ledger import SqlLedger

SLOTS = 3
_FREE_S = 30.0
PARTITION: PartitionId = ("orders", 0)
Verb = Literal["take", "open", "commit", "rollback", "lose", "advance"]
Step = tuple[int, Verb, int]
"""Slot, action, maximum of records that are read for it."""

STEPS = strategies.lists(
    strategies.tuples(
        strategies.integers(0, SLOTS - 1),
        strategies.sampled_from(["take", "open", "open", "commit", "commit", "rollback", "lose", "advance"]),
        strategies.integers(1, 4),
    ),
    min_size=5,
    max_size=60,
)
RECORDS = strategies.lists(strategies.tuples(strategies.integers(1, 3), strategies.booleans()), min_size=8, max_size=40)
"""For each record: its distance from the one before (markers lie between), and whether a transformation filters it."""


class Busy(Exception):
    """The statement would wait for another session's transaction."""


class Connection(Protocol):
    """One session."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """Execute a statement. Raises Busy, or the error of a session that has ended."""
        ...

    def close(self) -> None:
        """Close the session; its open transaction is rolled back."""
        ...


class Target(Protocol):
    """A database with the ledger's table and a table `rows` of its own (`name` text, `at` bigint)."""

    ledger: str
    rows: str
    marker: str

    @property
    def gone(self) -> tuple[type[Exception], ...]:
        """Errors that an ended session raises."""
        ...

    def connect(self) -> Connection:
        """A session that commits each statement by itself unless it has begun a transaction."""
        ...


@dataclass
class Slot:
    """A run, as far as its process knows."""

    connection: Connection
    ledger: SqlLedger
    position: int
    """The offset to read from."""
    batch: SinkBatch | None = None
    """Records put to the task whose write is not confirmed."""
    is_open: bool = False


@dataclass
class Story:
    """Executes steps against a target."""

    target: Target
    records: list[tuple[int, bool]]
    """Offsets, and whether the record is filtered."""
    make: Callable[..., SqlLedger] = SqlLedger
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    slots: dict[int, Slot] = field(default_factory=dict[int, Slot])
    done: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, target: Target, records: Sequence[tuple[int, bool]], **more: Any) -> Story:
        """A story over records as `RECORDS` draws them."""
        offset, found = -1, list[tuple[int, bool]]()
        for gap, left_out in records:
            offset += gap
            found.append((offset, left_out))
        return cls(target, found, **more)

    def tell(self, steps: Sequence[Step]) -> None:
        """Execute the steps, check after each, and let one owner finish undisturbed."""
        self.observer = self.target.connect()
        try:
            for number, verb, count in steps:
                self._step(number, verb, count)
                self._check()
            self._step(0, "take", 0)
            while self.slots[0].position <= self.records[-1][0]:
                self._step(0, "open", 5)
                self._step(0, "commit", 0)
                self._check()
            self._step(0, "advance", 0)
            assert self._written() == [offset for offset, left_out in self.records if not left_out]
        finally:
            for slot in self.slots.values():
                slot.connection.close()
            self.observer.close()

    def _step(self, number: int, verb: Verb, count: int) -> None:
        if verb == "take":
            return self._take(number)
        slot = self.slots.get(number)
        if slot is None:
            return None
        try:
            match verb:
                case "open" if not slot.is_open:
                    self._open(slot, count)
                case "commit" | "lose" if slot.is_open:
                    slot.connection.execute("COMMIT")
                    slot.is_open = False
                    if verb == "commit":
                        self._put(slot)
                case "rollback" if slot.is_open:
                    slot.connection.execute("ROLLBACK")
                    slot.is_open = False
                case "advance" if not slot.is_open and slot.batch is None:
                    self._in_one(slot.connection, lambda: slot.ledger.advance({PARTITION: slot.position}))
                case _:
                    pass
        except (TaskFailed, *self.target.gone) as error:
            self.done.append(type(error).__name__)
            self.slots.pop(number).connection.close()
        except Busy:
            slot.connection.execute("ROLLBACK")
            slot.is_open = False
        return None

    def _take(self, number: int) -> None:
        """Start a new run, as the loop does: a session that keeps the row locked is ended."""
        before = self.slots.pop(number, None)
        if before is not None:
            before.connection.close()
        connection = self.target.connect()
        target = self.target
        ledger = self.make(connection.execute, target.ledger, self.name, uuid.uuid4().hex, marker=target.marker)
        claimed: dict[PartitionId, int] = {}
        try:
            claimed = self._in_one(connection, lambda: ledger.claim([PARTITION]))
        except Busy:
            connection.execute("ROLLBACK")
            for slot in self.slots.values():
                if slot.is_open:
                    slot.connection.close()
            claimed = self._once_free(connection, lambda: ledger.claim([PARTITION]))
        start = claimed.get(PARTITION, 0)
        self._in_one(connection, lambda: ledger.begin({PARTITION: start}))
        self.slots[number] = Slot(connection, ledger, start)

    def _open(self, slot: Slot, count: int) -> None:
        """Write a batch up to its commit; the previous batch again, where its write is not confirmed."""
        if slot.batch is None:
            slot.batch = self._read(slot, count)
        batch = slot.batch
        if batch is None:
            return
        slot.connection.execute("BEGIN")
        slot.is_open = True
        if slot.ledger.move(batch):
            for offset in batch.offsets:
                text = f"INSERT INTO {self.target.rows} (name, at) VALUES ({self.target.marker}, {self.target.marker})"
                slot.connection.execute(text, (self.name, offset))
        else:
            self.done.append("was written")

    def _read(self, slot: Slot, count: int) -> SinkBatch | None:
        begin = bisect_left(self.records, (slot.position, False))
        found = self.records[begin : begin + count]
        if not found:
            return None
        kept = [offset for offset, left_out in found if not left_out]
        if not kept:  # no record is put
            slot.position = found[-1][0] + 1
            return None
        return SinkBatch(
            PARTITION[0], PARTITION[1], found[0][0], found[-1][0], kept, kept, kept, kept, original_topic=PARTITION[0]
        )

    def _put(self, slot: Slot) -> None:
        """Handle the return of `put`."""
        assert slot.batch is not None
        slot.position, slot.batch = slot.batch.last_offset + 1, None

    def _in_one(self, connection: Connection, call: Callable[[], Any]) -> Any:
        connection.execute("BEGIN")
        found = call()
        connection.execute("COMMIT")
        return found

    def _once_free(self, connection: Connection, call: Callable[[], Any]) -> Any:
        """Retry the call while the row is locked: a database takes time to end a closed session and unlock its row; on
        a busy machine longer than its lock timeout.
        """
        deadline_s = time.monotonic() + _FREE_S
        while True:
            try:
                return self._in_one(connection, call)
            except Busy:
                assert time.monotonic() < deadline_s, "whose session was closed keeps the row"
                connection.execute("ROLLBACK")

    def _written(self) -> list[int]:
        text = f"SELECT at FROM {self.target.rows} WHERE name = {self.target.marker} ORDER BY at"
        return [row[0] for row in self.observer.execute(text, (self.name,)).fetchall()]

    def _check(self) -> None:
        text = f"SELECT next_offset FROM {self.target.ledger} WHERE connector = {self.target.marker}"
        rows = self.observer.execute(text, (self.name,)).fetchall()
        upto = rows[0][0] if rows else 0
        assert self._written() == [offset for offset, left_out in self.records if not left_out and offset < upto]
