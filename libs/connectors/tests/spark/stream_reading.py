"""Driver of `SparkStreamSource`'s task in a test's own process, one run after the other.

Owns no test. Invariant: offsets are committed batch by batch, so the next run continues after a run that ended early.
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
"""Config with slices of ten rows, one of which is due in a
run; the format comes with Spark, and its rows are known.
"""


class Reader:
    """The only task of a connector."""

    def __init__(self, **config: str) -> None:
        self.config: dict[str, str | None] = {"topic": "t", "poll.interval.ms": "1", **config}
        self.offset: Mapping[str, Any] | None = None
        self.batches: list[SourceBatch] = []
        """Batches of the last run."""

    def run(self, polls_max: int = 1_000) -> list[dict[str, Any]]:
        """Return the rows of one run, until there are no more, or after `polls_max` polls."""
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
    """Return a Struct's fields by name."""
    return {field.name: value for field, value in zip(struct.schema.fields, struct.values, strict=True)}
