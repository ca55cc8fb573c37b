"""Driver of a PostgreSQL source's task without a run: its
config, offsets that a test stores, and its batches.

Owns no test. Invariant: an offset counts as committed when its batch was taken, as in a run that commits each batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTaskContext
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.connectors.postgres.source.task import PostgresSourceTask

WAIT_S = 60.0


def config_of(dsn: str, **more: str) -> dict[str, str]:
    """Return a config; keys with dots are passed with double underscores: `table__whitelist`."""
    given = {name.replace("__", "."): value for name, value in more.items()}
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "name": "source",
        "connection.url": dsn,
        "topic.prefix": "db-",
        "poll.interval.ms": "1",
        **given,
    }


def task_configs(config: Mapping[str, str], tasks_max: int = 1) -> list[Config]:
    """Return the task configs of the connector."""
    connector = PostgresSourceConnector()
    assert not connector.validate(config)
    connector.start(config)
    try:
        return list(connector.task_configs(tasks_max))
    finally:
        connector.stop()


class Reader:
    """Takes batches of one task after another, each from the offsets of the one before."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """The tables are those that exist at this time."""
        self.config = config
        (self._task_config,) = task_configs(config)
        self.offsets: dict[str, Mapping[str, Any] | None] = {}
        self.batches: list[SourceBatch] = []

    @contextmanager
    def task(self, records_max: int = 10_000) -> Generator[PostgresSourceTask]:
        """Yield a task with all tables."""
        made = PostgresSourceTask()
        context = SourceTaskContext(
            "source", 0, 1, "run", lambda one: self.offsets.get(json.dumps(one)), lambda: records_max
        )
        made.start(self._task_config, context)
        try:
            yield made
        finally:
            made.stop()

    def take(self, task: PostgresSourceTask) -> SourceBatch | None:
        """Return the next batch, and commit it; None = there is none now."""
        batch = task.poll()
        if batch is not None:
            self.offsets[json.dumps(batch.source_partition)] = batch.source_offset
            self.batches.append(batch)
        return batch

    def rows(self, batches_max: int = 1_000, records_max: int = 10_000) -> list[dict[str, Any]]:
        """Return the rows of a new task until there are no more, or `batches_max` batches were taken."""
        begun = len(self.batches)
        with self.task(records_max) as task:
            while len(self.batches) - begun < batches_max and self.take(task) is not None:
                pass
        return [row for batch in self.batches[begun:] for row in rows_of(batch)]

    def until(self, task: PostgresSourceTask, count: int) -> list[dict[str, Any]]:
        """Return `count` rows, with retries."""
        found: list[dict[str, Any]] = []
        deadline_s = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} rows of {count}"
            try:
                batch = self.take(task)
            except RetriableError:
                continue
            found += rows_of(batch) if batch is not None else []
        return found


def rows_of(batch: SourceBatch) -> list[dict[str, Any]]:
    """Return the records of a batch, by column."""
    if batch.value_schema is None:
        return []
    names = [field.name for field in batch.value_schema.fields]
    return [dict(zip(names, struct.values, strict=True)) for struct in batch.values]
