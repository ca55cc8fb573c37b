"""Runs of `SparkStreamSource`'s task in a test's own process, one after the other.

Owns no test. Invariant: offsets are committed batch by batch, so a run that is ended early is gone on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from herdmesh.connect.spi.connector import SourceBatch, SourceTaskContext
from herdmesh.connectors.spark.stream_source.connector import SparkStreamSource
from herdmesh.connectors.spark.stream_source.task import SparkStreamTask

RATE = {
    "spark.format": "rate-micro-batch", "spark.option.rowsPerBatch": "10", "spark.option.startTimestamp": "1000",
    "spark.option.advanceMillisPerBatch": "500", "batch.max.rows": "4", "poll.interval.ms": "3600000",
}  # fmt: skip
"""Ten rows at each look, of which one is due in a run; they come with Spark, and are known."""


class Reader:
    """A connector's only task."""

    def __init__(self, **config: str) -> None:
        self.config: dict[str, str | None] = {"topic": "t", "poll.interval.ms": "1", **config}
        self.offset: Mapping[str, Any] | None = None
        self.batches: list[SourceBatch] = []
        """Of the last run."""

    def run(self, polls_max: int = 1_000) -> list[dict[str, Any]]:
        """What one run brings, until there is nothing more, or after so many polls."""
        self.batches = []
        connector = SparkStreamSource()
        connector.start(self.config)
        (config,) = connector.task_configs(9)
        task = SparkStreamTask()
        try:
            task.start(config, SourceTaskContext("c", 0, 1, "run", lambda _partition: self.offset))
            for _ in range(polls_max):
                batch = task.poll()
                if batch is None:
                    break
                self.offset = batch.source_offset
                self.batches.append(batch)
        finally:
            task.stop()
        return [as_dict(value) for batch in self.batches for value in batch.values]


def as_dict(struct: Any) -> dict[str, Any]:
    """A Struct's fields by name."""
    return {field.name: value for field, value in zip(struct.schema.fields, struct.values, strict=True)}
