"""The standard suite that authors are given, applied to the connectors that are shipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Producer

from herdmesh.sdk.testing import (
    BadConfig,
    Form,
    SinkRunSuite,
    SinkSuite,
    SinkWorld,
    SourceRunSuite,
    SourceSuite,
    SourceWorld,
    json_number,
)
from herdmesh.worker.connectors.file_stream import FileStreamSink, FileStreamSource
from herdmesh.worker.connectors.mirror import MirrorSourceConnector
from herdmesh.worker.connectors.parquet import ParquetSink
from libs.core.tests.engine.harness import Kafka

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
    """A text file to which lines are appended; the number is in each, whatever else is."""

    forms = (Form.MAP, Form.STRUCT, Form.TEXT)

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


class TopicWorld(SourceWorld):
    """A topic of one partition, which is the mirror's source; the broker is its target too."""

    patience_s = 10.0

    def __init__(self, folder: Path, broker: Kafka) -> None:
        super().__init__(folder)
        self._broker = broker
        broker.create_topic(self.name, 1)

    def config(self) -> dict[str, str]:
        return {
            "source.cluster.alias": "a",
            "target.cluster.alias": "b",
            "source.cluster.bootstrap.servers": self._broker.bootstrap,
            "topics": self.name,
            "replication.factor": "1",
            "refresh.topics.enabled": "false",
        }

    def write(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0})
        for number in numbers:
            producer.produce(self.name, b"%d" % number)
        assert not producer.flush(20)

    def number_of(self, value: bytes) -> int:
        return int(value)

    def topics(self) -> list[str]:
        return [f"a.{self.name}"]


class TestMirror(SourceSuite):
    """As far as it is cheap: each run takes clients of its own, and patience to see that there is nothing. Runs
    that are killed are in `test_mirror`."""

    connector = MirrorSourceConnector
    test_lifecycle = None  # pyright: ignore[reportAssignmentType]
    test_all_records_come_once_and_in_order = None  # pyright: ignore[reportAssignmentType]
    test_resume_after_a_kill_at_every_point = None  # pyright: ignore[reportAssignmentType]

    @pytest.fixture
    def new_world(self, tmp_path: Path, kafka_bootstrap: str) -> Callable[[], TopicWorld]:  # pyright: ignore[reportIncompatibleMethodOverride]
        numbers, broker = count(), Kafka(kafka_bootstrap)

        def make() -> TopicWorld:
            folder = tmp_path / f"world-{next(numbers)}"
            folder.mkdir()
            return TopicWorld(folder, broker)

        return make
