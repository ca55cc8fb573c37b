"""The standard suite for authors, applied to `SparkSink` and
`SparkJdbcSource` with a real Spark, on a real MariaDB.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.connectors.spark.jdbc_source.connector import JdbcSource
from herdmesh.connectors.spark.sink.connector import SparkSink
from herdmesh.sdk.testing import (
    BadConfig,
    SinkRunSuite,
    SinkSuite,
    SinkWorld,
    SourceRunSuite,
    SourceSuite,
    SourceWorld,
    json_number,
)
from libs.connectors.tests.spark.databases import fresh, needs_mariadb, options
from tests.support.mariadb import PASSWORD, USER, MariaDb
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAKING, reason="a database server and its drivers (HERDMESH_SOAK=1)"),
    pytest.mark.usefixtures("spark_for_databases"),
]


class MariaDbTable(SinkWorld):
    """A table."""

    def __init__(self, folder: Path, server: MariaDb) -> None:
        super().__init__(folder)
        self._server = server
        self._table = fresh("sunk")
        self._server.run(f"CREATE TABLE {self._table} (id INT, name TEXT, email TEXT)", "shop")

    def config(self) -> dict[str, str]:
        staging = {"spark.format": "jdbc", "staging.directory": str(self.folder / "staging")}
        return {**staging, **options(self._server, self._table)}

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"spark.option.url": None}, "spark.option.url"),
            ({"spark.option.url": self._server.mariadb_url}, "spark.option.url"),
            ({"spark.option.dbtable": None}, "spark.option.dbtable"),
        ]

    def found(self) -> list[int]:
        return [int(one) for (one,) in self._server.run(f"SELECT id FROM {self._table}", "shop") if one != "NULL"]


class MariaDbRows(SourceWorld):
    """A table whose rows have consecutive numbers, and whose names need quotes."""

    def __init__(self, folder: Path, server: MariaDb) -> None:
        super().__init__(folder)
        self._server = server
        self._table = fresh("Order lines")
        self._run(f"CREATE TABLE `{self._table}` (`key` BIGINT AUTO_INCREMENT PRIMARY KEY, id INT NOT NULL)")

    def config(self) -> dict[str, str]:
        return {
            "connection.url": self._server.url, "connection.user": USER, "connection.password": PASSWORD,
            "mode": "incrementing", "incrementing.column.name": "key", "table.whitelist": f"`{self._table}`",
            "topic.prefix": "suite-", "poll.interval.ms": "1",
            "transforms": "named", "transforms.named.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.named.regex": "suite-Order lines_(.*)", "transforms.named.replacement": f"{self.name}-$1",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"connection.url": self._server.mariadb_url}, "connection.url"),
            ({"mode": "timestamp"}, "timestamp.column.name"),
        ]

    def write(self, numbers: range) -> None:
        for number in numbers:
            self._run(f"INSERT INTO `{self._table}` (id) VALUES ({number})")

    def write_changed(self, numbers: range) -> bool:
        self._run(f"ALTER TABLE `{self._table}` ADD COLUMN IF NOT EXISTS more TEXT DEFAULT 'm'")
        self.write(numbers)
        return True

    def number_of(self, value: bytes) -> int:
        return json_number(value, "id")

    def topics(self) -> list[str]:
        return [f"{self.name}-{self._table.rpartition('_')[2]}"]

    def _run(self, statement: str) -> None:
        self._server.run(statement, "shop")


class OnMariaDb:
    """Base class with the server of the worlds' tables."""

    @pytest.fixture
    def outside(self, server: MariaDb) -> MariaDb:
        return server


@needs_mariadb
class TestMariaDbSink(OnMariaDb, SinkSuite):
    connector = SparkSink
    world = MariaDbTable


@needs_mariadb
@pytest.mark.timed  # several Sparks start at the same time
class TestMariaDbSinkRuns(OnMariaDb, SinkRunSuite):
    connector = SparkSink
    world = MariaDbTable


@needs_mariadb
class TestMariaDbSource(OnMariaDb, SourceSuite):
    connector = JdbcSource
    world = MariaDbRows


@needs_mariadb
@pytest.mark.timed
class TestMariaDbSourceRuns(OnMariaDb, SourceRunSuite):
    connector = JdbcSource
    world = MariaDbRows
