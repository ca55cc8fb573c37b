"""The standard suite for authors, applied to `SparkSink` with a real Spark: files of JSON. `test_spark_sink` tests the
properties of a database.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from herdmesh.connectors.spark.sink.connector import SparkSink
from herdmesh.sdk.testing import BadConfig, SinkRunSuite, SinkSuite, SinkWorld
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]


class JsonFiles(SinkWorld):
    """A folder of files that Spark writes."""

    def config(self) -> dict[str, str]:
        return {
            "spark.format": "json", "spark.option.path": str(self.folder / "out"),
            "staging.directory": str(self.folder / "staging"),
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        (self.folder / "file").touch()
        return [
            ({"staging.directory": str(self.folder / "file")}, "staging.directory"),
            ({"spark.option.path": None}, "spark.option.path"),
            ({"spark.mode": "overwrite"}, "spark.mode"),
            ({"spark.memory": "lots"}, "spark.memory"),
        ]

    def found(self) -> list[int]:
        files = (self.folder / "out").glob("*.json")
        rows: list[Any] = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [int(row["id"]) for row in rows if row.get("id") is not None]


class TestSparkSink(SinkSuite):
    connector = SparkSink
    world = JsonFiles
    periods = (1, 3) if SOAKING else (6,)


class TestSparkSinkRuns(SinkRunSuite):
    connector = SparkSink
    world = JsonFiles
