"""The standard suite for authors, applied to change data capture, on
a real server: changes in the log, and rows that existed before.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from herdmesh.connectors.postgres.cdc.connector import PostgresCdcSource
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld
from libs.connectors.tests.postgres.cdc_driving import Database


class RowsWorld(SourceWorld):
    """A table, a slot and a publication. Rows that exist when the first run begins come from the snapshot."""

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder)
        self._table = self.name.replace("-", "_")
        self._database = Database(dsn)
        self._database.slot = self._table
        self._database.run(f"CREATE TABLE {self._table} (id int PRIMARY KEY)")

    def config(self) -> dict[str, str]:
        config = self._database.config(
            topic_prefix=self.name, publication_name=f"{self._table}_publication",
            table_include_list=f"public.{self._table}",
        )  # fmt: skip
        return {key: value for key, value in config.items() if value is not None}

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"slot.name": "A slot"}, "slot.name"),
            ({"snapshot.mode": "sometimes"}, "snapshot.mode"),
            ({"plugin.name": "wal2json"}, "plugin.name"),
            ({"table.exclude.list": "public.other"}, "table.exclude.list"),
        ]

    def write(self, numbers: range) -> None:
        for number in numbers:
            self._database.run(f"INSERT INTO {self._table} (id) VALUES ({number})")

    def write_changed(self, numbers: range) -> bool:
        self._database.run(f"ALTER TABLE {self._table} ADD COLUMN more text DEFAULT 'm'")
        self.write(numbers)
        return True

    def number_of(self, value: bytes) -> int:
        return int(json.loads(value)["after"]["id"])

    def topics(self) -> list[str]:
        return [f"{self.name}.public.{self._table}"]

    def close(self) -> None:
        self._database.close()


class ChangesWorld(RowsWorld):
    """The slot exists before the first row, so all rows come
    from the log: two transactions, of several chunks.
    """

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder, dsn)
        self._database.run(
            f"CREATE PUBLICATION {self._table}_publication FOR TABLE {self._table}",
            f"SELECT pg_create_logical_replication_slot('{self._table}', 'pgoutput')",
        )

    def config(self) -> dict[str, str]:
        return {**super().config(), "snapshot.mode": "no_data"}

    def write(self, numbers: range) -> None:
        middle = numbers[: len(numbers) // 2]
        for some in (middle, numbers[len(middle) :]):
            if some:
                rows = ", ".join(f"({number})" for number in some)
                self._database.run(f"INSERT INTO {self._table} (id) VALUES {rows}")


class OnTheServer:
    """Base class with the test's own database."""

    @pytest.fixture
    def outside(self, tmp_database: str) -> str:
        return tmp_database


class TestSnapshot(OnTheServer, SourceSuite):
    connector = PostgresCdcSource
    world = RowsWorld


class TestChanges(OnTheServer, SourceSuite):
    connector = PostgresCdcSource
    world = ChangesWorld


class TestChangesRuns(OnTheServer, SourceRunSuite):
    connector = PostgresCdcSource
    world = ChangesWorld
