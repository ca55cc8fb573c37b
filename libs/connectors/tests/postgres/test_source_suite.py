"""The standard suite for authors, applied to the PostgreSQL source, on a real server."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld, json_number


class TableWorld(SourceWorld):
    """A table whose rows have consecutive numbers."""

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder)
        self._dsn = dsn
        self._table = self.name.replace("-", "_")
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._run(f"CREATE TABLE {self._table} (seq bigserial PRIMARY KEY, id int NOT NULL)")

    def config(self) -> dict[str, str]:
        return {
            "connection.url": self._dsn, "mode": "incrementing", "incrementing.column.name": "seq",
            "table.whitelist": self._table, "topic.prefix": "suite-", "poll.interval.ms": "1",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"connection.url": "jdbc:mysql://127.0.0.1/db"}, "connection.url"),
            ({"mode": "sideways"}, "mode"),
            ({"mode": "timestamp"}, "timestamp.column.name"),
        ]

    def write(self, numbers: range) -> None:
        self._run(f"INSERT INTO {self._table} (id) SELECT unnest(%s::int[])", list(numbers))

    def write_changed(self, numbers: range) -> bool:
        self._run(f"ALTER TABLE {self._table} ADD COLUMN more text DEFAULT 'm'")
        self.write(numbers)
        return True

    def number_of(self, value: bytes) -> int:
        return json_number(value, "id")

    def topics(self) -> list[str]:
        return [f"suite-{self._table}"]

    def close(self) -> None:
        self._connection.close()

    def _run(self, statement: str, *parameters: object) -> None:
        self._connection.execute(statement.encode(), parameters)


class OnTheServer:
    """Base class with the test's own database."""

    @pytest.fixture
    def outside(self, tmp_database: str) -> str:
        return tmp_database


class TestPostgresSource(OnTheServer, SourceSuite):
    connector = PostgresSourceConnector
    world = TableWorld


class TestPostgresSourceRuns(OnTheServer, SourceRunSuite):
    connector = PostgresSourceConnector
    world = TableWorld
