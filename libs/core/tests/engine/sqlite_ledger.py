"""SQLite as a target with a ledger: a `Target` of stories, and a sink task for the loop's tests.

Owns no test. SQLite locks the whole database for a writing transaction; a session that would wait gets an error at
once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi.connector import Config, PartitionId, SinkBatch, TaskContext
from herdmesh.engine.runtime import failpoints
from herdmesh.engine.sink.ledger import LedgerSinkTask
from herdmesh.engine.sink.sql_ledger import SqlLedger
from libs.core.tests.engine.ledger_story import Busy

PATH = __name__


class _Session:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")  # safe: the test does not crash the machine

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        if statement == "ROLLBACK" and not self._connection.in_transaction:
            return None
        try:
            return self._connection.execute(statement, parameters)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise Busy from error
            raise

    def close(self) -> None:
        self._connection.close()


class SqliteTarget:
    """A SQLite database in a file."""

    ledger, rows, marker = "ledger", "written", "?"
    gone = (sqlite3.ProgrammingError,)

    def __init__(self, path: Path) -> None:
        self._path = path
        session = self.connect()
        session.execute(SqlLedger(session.execute, self.ledger, "", "", marker=self.marker).definition)
        session.execute(f"CREATE TABLE {self.rows} (name text, at bigint)")
        session.close()

    def connect(self) -> _Session:
        return _Session(self._path)


class SqliteSink(LedgerSinkTask):
    """Writes the field `id` of each value into a table `ids`, in the database that `file` names.

    Records whose `id` is negative are reported.
    """

    calls: ClassVar[list[str]] = []

    def start(self, config: Config, context: TaskContext) -> None:
        SqliteSink.calls.clear()
        self._reporter = context.reporter
        self.connection = sqlite3.connect(str(config["file"]), timeout=5, isolation_level=None)
        self.ledger = self.make_ledger(context)
        self.connection.execute(self.ledger.definition)
        self.connection.execute("CREATE TABLE IF NOT EXISTS ids (id bigint)")

    def make_ledger(self, context: TaskContext) -> SqlLedger:
        """The ledger rows of this run."""
        return SqlLedger(self.connection.execute, "ledger", context.connector, context.run_id, marker="?")

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        SqliteSink.calls.append(f"claim {len(partitions)}")
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            return self.ledger.claim(partitions)

    def begin(self, starts: Mapping[PartitionId, int]) -> None:
        SqliteSink.calls.append(f"begin {sorted(starts.values())}")
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            self.ledger.begin(starts)

    def put(self, batch: SinkBatch) -> None:
        with self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            if self.ledger.move(batch):
                self._write(batch)
            failpoints.hit("before-target-commit")
        failpoints.hit("after-target-commit")

    def _write(self, batch: SinkBatch) -> None:
        for at, value in enumerate(batch.values):
            if value["id"] < 0:
                assert self._reporter is not None
                self._reporter.report(batch, at, ValueError("no negative id"))
            else:
                self.connection.execute("INSERT INTO ids VALUES (?)", (value["id"],))
        if self._reporter is not None:
            self._reporter.flush_dead_letters()

    def advance(self, positions: Mapping[PartitionId, int]) -> None:
        behind = self.ledger.behind(positions)
        if behind:
            SqliteSink.calls.append(f"advance {len(behind)}")
            with self.connection:
                self.connection.execute("BEGIN IMMEDIATE")
                self.ledger.advance(positions)

    def forget(self, partitions: Sequence[PartitionId]) -> None:
        SqliteSink.calls.append(f"forget {len(partitions)}")
        with self.connection:
            self.ledger.forget(partitions)

    def stop(self) -> None:
        self.connection.close()


class UnsureSink(SqliteSink):
    """Its first transaction commits, and the confirmation is lost."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._is_sure = False

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        if not self._is_sure:
            self._is_sure = True
            raise RetriableError("the connection broke amid the commit")


class WithoutLedger(SqliteSink):
    """The same without the ledger's answers: it has only the group's offsets."""

    def claim(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        super().claim(partitions)
        return {}
