"""Ledger in a table of the target, for any database with SQL and transactions.

Owns the table, its statements, and the meaning of an unexpected row. Begins and ends no transaction: that is
its caller's task, who puts the records' own statements into the same one.

    connector  kafka_topic  kafka_partition | next_offset  owner
    orders-db  orders       0               | 41           6f1c...

`move` is `UPDATE ... SET next_offset = last + 1 WHERE owner = me AND next_offset = where I moved it before`: one row,
or nothing may be written. The owner is a run, set once by `claim`; so a transaction of an earlier owner, stopped at any
point, finds a row of another owner, even if offsets went back to the same number since. As the first statement of its
transaction, `move` also keeps any other owner waiting until it is over. (An earlier owner that was stopped before its
own `claim` takes the row from a later one, and writes nothing: the loop commits under the fence after `claim` and
before `put`. The later one's run ends, and its next run claims the row again.)

Why not `next_offset = first_offset`: records that a transformation filtered and transaction markers lie between, and no
batch has those. Why two values are right after a failure: see `move`.

Invariant: only its owner moves a row, and only from the offset that this owner knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import PartitionId, SinkBatch
from herdmesh.engine.runtime import LedgerTaken, TaskFailed

NOBODY = ""
"""The owner of a row that was changed from outside: no run's transaction matches it."""
NOWHERE = -1
"""The offset of a row whose owner has not begun yet."""


class Cursor(Protocol):
    """The part of a DB-API cursor that is used."""

    @property
    def rowcount(self) -> int:
        """Rows the statement changed."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows it found."""
        ...


Execute = Callable[[str, Sequence[Any]], Any]
"""Executes one statement with its parameters and returns its `Cursor`; most connections have such a method."""


class SqlLedger:
    """The rows of one connector, for one owner. Not for several threads.

    A connection that was lost may be replaced under `execute`: nothing here depends on the session.
    """

    def __init__(self, execute: Execute, table: str, connector: str, owner: str, *, marker: str = "%s") -> None:
        """`table`: as written in SQL, quoted if necessary. `owner`: `TaskContext.run_id`. `marker`: the placeholder of
        a parameter (`%s` or `?`).
        """
        self._execute = execute
        self._table = table
        self._connector = connector
        self._owner = owner
        self._marker = marker
        #: offset of the row, as committed.
        self._next: dict[PartitionId, int] = {}
        #: offset set by the last transaction, which may have failed.
        self._tried: dict[PartitionId, int] = {}

    @property
    def definition(self) -> str:
        """The statement that creates the table, unless it exists."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (connector text NOT NULL, kafka_topic text NOT NULL, "
            "kafka_partition integer NOT NULL, next_offset bigint NOT NULL, owner text NOT NULL, "
            "PRIMARY KEY (connector, kafka_topic, kafka_partition))"
        )

    def owners(self, partitions: Iterable[PartitionId]) -> set[str]:
        """The other owners in the rows: runs that are over, or do not know it yet."""
        found = {row[1] for partition in partitions if (row := self._row(partition)) is not None}
        return found - {self._owner, NOBODY}

    def claim(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Make this owner the owner of the rows. Returns their offsets; omits a partition without a row, which gets one
        that only this owner can begin.
        """
        claimed: dict[PartitionId, int] = {}
        for partition in sorted(partitions):
            owned = self._run("UPDATE {table} SET owner = {} WHERE {row}", self._owner, *self._key(partition))
            if owned.rowcount == 0:
                self._insert(partition, NOWHERE, self._owner)
            found = self._row(partition)
            assert found is not None
            self._set(partition, found[0])
            if found[0] != NOWHERE:
                claimed[partition] = found[0]
        return claimed

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        """Set rows that this owner has claimed. Raises as `move`."""
        for partition, offset in sorted(starts.items()):
            known = self._next[partition]
            if known == offset and partition not in self._tried:
                continue
            begun = self._run(
                "UPDATE {table} SET next_offset = {} WHERE {row} AND owner = {}",
                offset, *self._key(partition), self._owner,
            )  # fmt: skip
            if begun.rowcount == 0:
                raise self._unexpected(partition, known, self._row(partition))
            self._set(partition, offset)

    def move(self, batch: SinkBatch) -> bool:
        """Move the row past the batch; the caller writes the records in the same transaction. False = the row is past
        it already: a transaction with unknown outcome did commit, and nothing has to be written.

        A caller that gets the batch again cannot tell, but the row can: it has either its old offset, or the one set by
        that transaction. If the lost session commits only now, this statement waits for it.

        Raises:
            LedgerTaken: the row belongs to another owner.
            TaskFailed: RETRIABLE: the row has another offset, because the target was set back, or somebody changed it.
        """
        return self._move((batch.original_topic, batch.partition), batch.first_offset, batch.last_offset + 1)

    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        """See `LedgerSinkTask.advance`. Raises as `move`."""
        for partition in self.behind(positions):
            self._move(partition, positions[partition], positions[partition])

    def behind(self, positions: Mapping[PartitionId, int]) -> list[PartitionId]:
        """The partitions whose rows are before these positions."""
        return sorted(
            partition
            for partition, position in positions.items()
            if position > max(self._next[partition], self._tried.get(partition, -1))
        )

    def forget(self, partitions: Iterable[PartitionId]) -> None:
        """Delete rows of this owner."""
        for partition in sorted(partitions):
            self._run("DELETE FROM {table} WHERE {row} AND owner = {}", *self._key(partition), self._owner)
            self._next.pop(partition, None)
            self._tried.pop(partition, None)

    def alter(self, offsets: Mapping[PartitionId, int | None]) -> None:
        """Set rows from outside, None = delete; they have no owner then. If all are None, as in a reset, all rows of
        the connector are deleted, also those of partitions without an offset in the group.
        """
        if all(offset is None for offset in offsets.values()):
            self._run("DELETE FROM {table} WHERE connector = {}", self._connector)
        for partition, offset in sorted(offsets.items()):
            self._run("DELETE FROM {table} WHERE {row}", *self._key(partition))
            if offset is not None:
                self._insert(partition, offset, NOBODY)

    def all_owners(self) -> set[str]:
        """All runs that rows of the connector name."""
        rows = self._run("SELECT owner FROM {table} WHERE connector = {}", self._connector).fetchall()
        return {row[0] for row in rows} - {NOBODY}

    def _move(self, partition: PartitionId, begin: int, upto: int) -> bool:
        tried = self._tried.get(partition)
        if tried is not None and begin >= tried:
            self._next[partition] = tried  # the loop has continued past it: that transaction did commit
        known = self._next[partition]
        moved = self._run(
            "UPDATE {table} SET next_offset = {} WHERE {row} AND owner = {} AND next_offset = {}",
            upto, *self._key(partition), self._owner, known,
        )  # fmt: skip
        if moved.rowcount == 1:
            self._tried[partition] = upto
            return True
        found = self._row(partition)
        if found == (upto, self._owner) and tried == upto:
            return False
        raise self._unexpected(partition, known, found)

    def _unexpected(self, partition: PartitionId, known: int, found: tuple[int, str] | None) -> TaskFailed:
        topic, number = partition
        if found is not None and found[1] != self._owner:
            return LedgerTaken(
                f"the row of {topic}-{number} in {self._table} was taken over by {found[1] or 'a change of offsets'}: "
                "another run owns the task, or another mesh has a connector of this name and the same ledger"
            )
        stands = "is gone" if found is None else f"stands at {found[0]}"
        return TaskFailed(
            f"the row of {topic}-{number} in {self._table} {stands}, where this run had left it at {known}: the target "
            "was set back (a backup, a replica that lagged), or somebody changed the row; the next run starts from it",
            ErrorClass.RETRIABLE,
        )

    def _set(self, partition: PartitionId, offset: int) -> None:
        self._next[partition] = offset
        self._tried.pop(partition, None)

    def _insert(self, partition: PartitionId, offset: int, owner: str) -> None:
        self._run(
            "INSERT INTO {table} (next_offset, owner, connector, kafka_topic, kafka_partition) "
            "VALUES ({}, {}, {}, {}, {})",
            offset, owner, *self._key(partition),
        )  # fmt: skip

    def _row(self, partition: PartitionId) -> tuple[int, str] | None:
        """Offset and owner of the row, or None."""
        rows = self._run("SELECT next_offset, owner FROM {table} WHERE {row}", *self._key(partition)).fetchall()
        return (int(rows[0][0]), str(rows[0][1])) if rows else None

    def _key(self, partition: PartitionId) -> tuple[str, str, int]:
        return self._connector, *partition

    def _run(self, statement: str, *parameters: Any) -> Cursor:
        row = "connector = {} AND kafka_topic = {} AND kafka_partition = {}"
        text = statement.replace("{row}", row).replace("{}", self._marker).replace("{table}", self._table)
        return self._execute(text, parameters)
