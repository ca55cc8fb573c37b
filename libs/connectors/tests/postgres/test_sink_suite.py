"""The standard suite for authors, applied to the PostgreSQL sink, on a real server: rows inserted into a table that the
sink creates, and rows by key in an existing table.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.engine.runtime.failpoints import LEDGER_NAMES
from herdmesh.sdk.testing import BadConfig, RecordForm, SinkRunSuite, SinkSuite, SinkWorld


class InsertedRows(SinkWorld):
    """A table that the sink creates, and extends."""

    forms = (RecordForm.STRUCT,)
    takes_tombstones = False

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder)
        self._dsn = dsn
        self.table = self.name.replace("-", "_")
        self.connection = psycopg.connect(dsn, autocommit=True)

    def config(self) -> dict[str, str]:
        return {
            "connection.url": self._dsn, "table.name.format": self.table, "auto.create": "true", "auto.evolve": "true",
            "herdmesh.ledger.table": f"{self.table}_ledger",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"insert.mode": "append"}, "insert.mode"),
            ({"insert.mode": "upsert", "pk.mode": "none"}, "pk.mode"),
            ({"delete.enabled": "true", "pk.mode": "none"}, "delete.enabled"),
            ({"herdmesh.ledger.table": "a.b.c"}, "herdmesh.ledger.table"),
            ({"connection.url": "jdbc:mysql://127.0.0.1/db"}, "connection.url"),
        ]

    def found(self) -> list[int]:
        made = self.connection.execute("SELECT to_regclass(%s)", (self.table,)).fetchone()
        if made == (None,):
            return []
        return [number for (number,) in self.connection.execute(f"SELECT id FROM {self.table}".encode())]

    def close(self) -> None:
        self.connection.close()


class RowsByKey(InsertedRows):
    """An existing table; the records' keys are its keys."""

    forms = (RecordForm.STRUCT, RecordForm.MAP)
    takes_tombstones = True

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder, dsn)
        made = f"CREATE TABLE {self.table} (key text PRIMARY KEY, id bigint NOT NULL, name text, email text)"
        self.connection.execute(made.encode())

    def config(self) -> dict[str, str]:
        return {
            **super().config(), "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "key",
            "delete.enabled": "true", "auto.create": "false", "auto.evolve": "false",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return []


class OnTheServer:
    """Base class with the test's own database."""

    @pytest.fixture
    def outside(self, tmp_database: str) -> str:
        return tmp_database


class TestInsertedRows(OnTheServer, SinkSuite):
    connector = PostgresSink
    world = InsertedRows


class TestRowsByKey(OnTheServer, SinkSuite):
    """`TestInsertedRows` has the kills: only the result of a batch differs here."""

    test_resume_after_a_kill_at_every_point = None  # pyright: ignore[reportAssignmentType]
    connector = PostgresSink
    world = RowsByKey


class TestInsertedRowsRuns(OnTheServer, SinkRunSuite):
    connector = PostgresSink
    world = InsertedRows
    own_points = LEDGER_NAMES
