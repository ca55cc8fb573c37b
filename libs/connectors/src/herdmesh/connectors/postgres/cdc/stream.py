"""Assembly of the stream's messages to chunks of changes by table.

Owns the position in the stream, and which changes of a transaction are still to be sent. Pure: messages are passed in,
and a function describes tables. `events` makes the records.

A chunk holds the changes of many transactions sorted by table, so that a batch has many records of one table however
much the tables are mixed. It ends before any message that would break the order within a table, or of a key:

1. a table that is described anew: its records may have another schema, and its older rows nulls where newer ones have
   none;
2. a change of a key whose tombstone is in the chunk: tombstones go after all records of their table;
3. a truncation of a table with changes in the chunk: its record has no key.

Invariant: changes of a table stay in their order; the tombstone of
a key stays after its deletion and before the key's next record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from herdmesh.connectors.postgres.cdc import pgoutput
from herdmesh.connectors.postgres.cdc.pgoutput import (
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    UPDATE,
    Cell,
    Change,
    Relation,
    Row,
    Toast,
)
from herdmesh.connectors.postgres.cdc.position import START, LastChange, Position, TableAhead
from herdmesh.connectors.postgres.cdc.settings import CdcSettings
from herdmesh.connectors.postgres.cdc.tables import Table
from herdmesh.sdk import DataError

_OPERATIONS = {INSERT: "c", UPDATE: "u", DELETE: "d"}
_ALL = (1 << 63) - 1
CHUNK_BYTES_MAX = 16 * 1_048_576
"""Bytes at which a chunk is full: rows can be large."""

TableOf = Callable[[Relation], Table | None]
"""Function from a relation to the form of its events; None = it is not captured."""


class Transaction(NamedTuple):
    """The fields of a transaction that its records need."""

    final_lsn: int
    commit_us: int
    xid: int
    previous_lsn: int
    """The end of the transaction before it."""


class Entry(NamedTuple):
    """A change from which a record is made."""

    change: Change
    old_key: tuple[Cell, ...] | None
    """Old key of an update that changed the key, which becomes a deletion and a creation."""
    lsn: int
    transaction: Transaction


@dataclass(slots=True)
class TableChanges:
    """The changes of one table in a chunk."""

    table: Table
    entries: list[Entry] = field(default_factory=list[Entry])
    truncated: tuple[int, Transaction] | None = None
    """Place of a truncation, which is then the only change."""
    tombstones: dict[tuple[Cell, ...], None] = field(default_factory=dict[tuple[Cell, ...], None])
    """The keys, in order."""


class Chunk(NamedTuple):
    """The changes from one position to another."""

    start: Position
    end: Position
    tables: list[TableChanges]
    last: LastChange | None
    ahead: Mapping[str, TableAhead]
    """Progress of tables beyond the start before the chunk was assembled."""


class Assembler:
    """Assembler of messages to chunks. After a restart of the stream it continues at its position."""

    def __init__(
        self, position: Position, ahead: Mapping[str, TableAhead], table_of: TableOf, settings: CdcSettings
    ) -> None:
        """`ahead`: progress of tables beyond the position."""
        self._reached = position
        self.changes_max = settings.batch_changes
        """Number of changes at which a chunk is full."""
        self._ahead = dict(ahead)
        self._table_of = table_of
        self._settings = settings
        self._relations: dict[int, Table | None] = {}
        self._transaction: Transaction | None = None
        #: changes of the transaction received, and those done before the stream began.
        self._event = self._done = 0
        self._begin_chunk()

    def restart(self) -> None:
        """Prepare for a restart of the stream at or before the position; the unfinished chunk is kept."""
        self._reached = self.position
        self._transaction = None
        self._relations.clear()

    @property
    def position(self) -> Position:
        """Position after all accepted messages."""
        if self._transaction is None:
            return self._reached
        return max(self._reached, Position(self._transaction.final_lsn, self._event))

    @property
    def is_full(self) -> bool:
        """True when the chunk should be fetched."""
        return self._is_ended or self._count >= self.changes_max or self._bytes >= CHUNK_BYTES_MAX

    @property
    def count(self) -> int:
        """Number of changes in the chunk."""
        return self._count

    @property
    def ahead(self) -> Mapping[str, TableAhead]:
        """Progress of tables beyond the chunk's start."""
        return self._ahead

    @property
    def in_transaction(self) -> bool:
        """True if more changes of the same transaction may follow."""
        return self._transaction is not None

    def xid_before(self, lsn: int) -> int | None:
        """Return the id of the stream's present transaction, if it committed before a log position."""
        transaction = self._transaction
        return transaction.xid if transaction is not None and transaction.final_lsn < lsn else None

    def take(self, lsn: int, data: bytes) -> bool:
        """Add the message at a log position. False = not added: it belongs to the next chunk.

        Raises DataError for a malformed message.
        """
        kind = data[0]
        if kind in _OPERATIONS:
            return self._take_change(lsn, data)
        if kind == TRUNCATE:
            return self._take_truncate(lsn, data)
        if kind == RELATION:
            return self._take_relation(data)
        decoded = pgoutput.decode(data)
        if isinstance(decoded, pgoutput.Begin):
            self._begin(decoded)
        elif isinstance(decoded, pgoutput.Commit):
            self._transaction = None
            self._advance(Position(decoded.end_lsn))
        return True

    def on_keepalive(self, lsn: int) -> None:
        """Note that the server has sent everything before a log position."""
        if self._transaction is None:
            self._advance(Position(lsn))

    def chunk(self) -> Chunk:
        """Return the chunk, and begin another."""
        last = None
        if self._last is not None:
            lsn, transaction = self._last
            last = LastChange(lsn, transaction.xid, transaction.commit_us)
        chunk = Chunk(self._start, self.position, list(self._tables.values()), last, self._ahead)
        self._begin_chunk()
        return chunk

    def _begin_chunk(self) -> None:
        self._start = self.position
        self._tables: dict[str, TableChanges] = {}
        self._last: tuple[int, Transaction] | None = None
        self._count = self._bytes = 0
        self._is_ended = False
        self._ahead = {
            table: done for table, done in self._ahead.items() if max(done.records, done.tombstones) > self.position
        }

    def _advance(self, position: Position) -> None:
        self._reached = max(self._reached, position)

    def _begin(self, begin: pgoutput.Begin) -> None:
        reached = self.position
        if begin.final_lsn < reached.lsn:
            self._done = _ALL
        else:
            self._done = reached.events if begin.final_lsn == reached.lsn else 0
        self._event = 0
        self._transaction = Transaction(begin.final_lsn, begin.commit_us, begin.xid, reached.lsn)

    def _take_relation(self, data: bytes) -> bool:
        relation = pgoutput.decode(data)
        assert isinstance(relation, Relation)
        table = self._table_of(relation)
        if table is not None and table.full_name in self._tables:
            return False
        self._relations[relation.oid] = table
        return True

    def _next(self) -> tuple[Transaction, int]:
        if self._transaction is None:
            raise DataError("pgoutput: a change outside of a transaction")
        return self._transaction, self._event + 1

    def _take_change(self, lsn: int, data: bytes) -> bool:
        transaction, event = self._next()
        if event <= self._done:
            self._event = event
            return True
        change = pgoutput.decode(data)
        assert isinstance(change, Change)
        try:
            table = self._relations[change.relation]
        except KeyError:
            raise DataError(f"pgoutput: a change of the table {change.relation}, which was not described") from None
        if table is not None and not self._put(table, change, lsn, transaction, event):
            return False
        self._event = event
        if table is not None:
            self._bytes += len(data)
        return True

    def _put(self, table: Table, change: Change, lsn: int, transaction: Transaction, event: int) -> bool:
        change = _completed(change)
        name = table.full_name
        there = self._tables.get(name)
        if there is not None and (there.truncated or (there.tombstones and _is_of(there.tombstones, table, change))):
            return False
        if _OPERATIONS[change.kind] in self._settings.skipped:
            return True
        wants_record = wants_tombstone = True
        if self._ahead and (done := self._ahead.get(name)) is not None:
            wants_record = not done.records.covers(transaction.final_lsn, event)
            wants_tombstone = not done.tombstones.covers(transaction.final_lsn, event)
        old_key = _replaced_key(table, change)
        dead = table.key_of(change.old) if change.kind == DELETE and change.old is not None else old_key
        if there is None:
            there = self._tables[name] = TableChanges(table)
        if wants_record:
            there.entries.append(Entry(change, old_key, lsn, transaction))
        if wants_tombstone and dead and None not in dead and self._settings.tombstones:
            there.tombstones[dead] = None
        self._count += 1
        self._last = lsn, transaction
        return True

    def _take_truncate(self, lsn: int, data: bytes) -> bool:
        transaction, event = self._next()
        if event <= self._done:
            self._event = event
            return True
        truncate = pgoutput.decode(data)
        assert isinstance(truncate, pgoutput.Truncate)
        tables = [table for oid in truncate.relations if (table := self._relations.get(oid)) is not None]
        if tables and "t" not in self._settings.skipped:
            if self._tables:
                self._is_ended = True
                return False
            for table in tables:
                done = self._ahead.get(table.full_name, TableAhead(START, START))
                if not done.records.covers(transaction.final_lsn, event):
                    self._tables[table.full_name] = TableChanges(table, truncated=(lsn, transaction))
            self._last = lsn, transaction
            self._count += len(self._tables)
            self._is_ended = True
        self._event = event
        return True


def _completed(change: Change) -> Change:
    """Copy unchanged large values, which the new row lacks, from the old row."""
    old, new = change.old, change.new
    if old is None or new is None or Toast.UNCHANGED not in new:
        return change
    row: Row = [
        before if cell is Toast.UNCHANGED and before is not None else cell
        for before, cell in zip(old, new, strict=True)
    ]  # fmt: skip
    return change._replace(new=row)


def _replaced_key(table: Table, change: Change) -> tuple[Cell, ...] | None:
    """Return the key before an update that changed it. An unknown
    key did not change, or the server would have sent it.
    """
    if change.kind != UPDATE or change.old is None or change.new is None or not table.key_columns:
        return None
    old = table.key_of(change.old)
    return old if None not in old and old != table.key_of(change.new) else None


def _is_of(keys: Container[tuple[Cell, ...]], table: Table, change: Change) -> bool:
    """Return whether the change has one of these keys, before it or after."""
    return any(row is not None and table.key_of(row) in keys for row in (change.old, change.new))
