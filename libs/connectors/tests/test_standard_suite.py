"""The standard suite for authors, applied to connectors that need no server. Every shipped connector has such tests
(`test_shipped_suites`).
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet

from herdmesh.connectors.file_stream.sink.connector import FileStreamSink
from herdmesh.connectors.file_stream.source.connector import FileStreamSource
from herdmesh.connectors.parquet.connector import ParquetSink
from herdmesh.sdk.testing import (
    BadConfig,
    RecordForm,
    SinkRunSuite,
    SinkSuite,
    SinkWorld,
    SourceRunSuite,
    SourceSuite,
    SourceWorld,
    json_number,
)

pq: Any = pyarrow.parquet


class LinesWorld(SourceWorld):
    """A text file."""

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "in.txt"), "topic": self.name}

    def bad_configs(self) -> list[BadConfig]:
        return [({"file": None}, "file"), ({"topic": ""}, "topic")]

    def write(self, numbers: range) -> None:
        with (self.folder / "in.txt").open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    def number_of(self, value: bytes) -> int:
        return json_number(value)


class TestFileStreamSource(SourceSuite):
    connector = FileStreamSource
    world = LinesWorld


class TestFileStreamSourceRuns(SourceRunSuite):
    connector = FileStreamSource
    world = LinesWorld


class AppendedWorld(SinkWorld):
    """A text file to which lines are appended; each has its number, beside other text."""

    forms = (RecordForm.MAP, RecordForm.STRUCT, RecordForm.TEXT)

    def config(self) -> dict[str, str]:
        return {"file": str(self.folder / "out.txt")}

    def bad_configs(self) -> list[BadConfig]:
        return [({"file": None}, "file"), ({"file": str(self.folder)}, "file")]

    def found(self) -> list[int]:
        path = self.folder / "out.txt"
        values = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        numbers: list[Any] = [value["id"] if isinstance(value, dict) else value for value in values]
        return [int(number) for number in numbers if number is not None]


class TestFileStreamSink(SinkSuite):
    connector = FileStreamSink
    world = AppendedWorld


class TestFileStreamSinkRuns(SinkRunSuite):
    connector = FileStreamSink
    world = AppendedWorld


class ParquetWorld(SinkWorld):
    """A folder of Parquet files."""

    def config(self) -> dict[str, str]:
        return {"directory": str(self.folder / "out"), "flush.records": "100"}

    def bad_configs(self) -> list[BadConfig]:
        (self.folder / "file").touch()
        return [
            ({"directory": str(self.folder / "file")}, "directory"),
            ({"flush.records": "0"}, "flush.records"),
            ({"compression": "rar"}, "compression"),
        ]

    def found(self) -> list[int]:
        files = [path for path in (self.folder / "out").glob("*.parquet") if not path.name.startswith(".")]
        rows = [row for path in files for row in pq.read_table(path).to_pylist()]
        return [int(row["id"]) for row in rows if row.get("id") is not None]


class TestParquetSink(SinkSuite):
    connector = ParquetSink
    world = ParquetWorld


class TestParquetSinkRuns(SinkRunSuite):
    connector = ParquetSink
    world = ParquetWorld
