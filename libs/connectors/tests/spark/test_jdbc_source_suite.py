"""The standard suite for authors, applied to `SparkJdbcSource` with a real Spark, on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from herdmesh.connectors.spark.jdbc_source.connector import JdbcSource
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld, json_number

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]


class TableWorld(SourceWorld):
    """A table whose rows have consecutive numbers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = folder / "world.db"
        self._table = self.name.replace("-", "_")
        self._run(f"CREATE TABLE {self._table} (seq INTEGER PRIMARY KEY NOT NULL, id INT NOT NULL)")

    def config(self) -> dict[str, str]:
        return {
            "connection.url": f"jdbc:sqlite:{self._file}", "mode": "incrementing", "incrementing.column.name": "seq",
            "table.whitelist": self._table, "topic.prefix": "suite-", "poll.interval.ms": "1",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"connection.url": "jdbc:postgresql://127.0.0.1/db"}, "connection.url"),
            ({"mode": "sideways"}, "mode"),
            ({"mode": "timestamp"}, "timestamp.column.name"),
            ({"incrementing.column.name": None}, "incrementing.column.name"),
            ({"table.whitelist": None}, "table.whitelist"),
            ({"query": "SELECT 1"}, "query"),
        ]

    def write(self, numbers: range) -> None:
        self._run(f"INSERT INTO {self._table} (id) VALUES (?)", *numbers)

    def write_changed(self, numbers: range) -> bool:
        self._run(f"ALTER TABLE {self._table} ADD COLUMN more TEXT DEFAULT 'm'")
        self.write(numbers)
        return True

    def number_of(self, value: bytes) -> int:
        return json_number(value, "id")

    def topics(self) -> list[str]:
        return [f"suite-{self._table}"]

    def _run(self, statement: str, *numbers: int) -> None:
        with closing(sqlite3.connect(self._file)) as database, database:
            if "?" in statement:
                database.executemany(statement, [(number,) for number in numbers])
            else:
                database.execute(statement)


class TestJdbcSource(SourceSuite):
    connector = JdbcSource
    world = TableWorld


@pytest.mark.timed  # three Sparks start at the same time
class TestJdbcSourceRuns(SourceRunSuite):
    connector = JdbcSource
    world = TableWorld
