"""Driver of a PostgreSQL sink's task in a test, like the record loop, on a real server.

Owns no test.
"""

from __future__ import annotations

import select
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import psycopg

from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import Schema
from herdmesh.connect.spi.connector import PartitionId, SinkBatch, TaskContext
from herdmesh.connectors.postgres.sink.task import PostgresSinkTask

PARTITION: PartitionId = ("orders", 0)
CONNECTOR = "orders-db"


def sink_config(dsn: str, **changes: str) -> dict[str, str]:
    """Return a config; names of keys have `_` for dots."""
    return {
        "name": CONNECTOR, "connection.url": dsn, **{key.replace("_", "."): value for key, value in changes.items()},
    }  # fmt: skip


@dataclass
class Reporter:
    """Stores all reported records."""

    #: offset and text of the error.
    reported: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    settled: int = 0

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Future[None]:
        self.reported.append((batch.offsets[index], str(error)))
        return Future()

    def flush_dead_letters(self) -> None:
        self.settled = len(self.reported)


class Driven:
    """One run of the task, which owns one partition."""

    def __init__(self, dsn: str, *, tolerant: bool = True, **config: str) -> None:
        self.dsn = dsn
        self.reporter = Reporter()
        self.task = PostgresSinkTask()
        self.run_id = uuid.uuid4().hex
        reporter = self.reporter if tolerant else None
        context = TaskContext(CONNECTOR, 0, 1, f"connect-{CONNECTOR}", self.run_id, reporter)
        self.task.start(sink_config(dsn, **config), context)

    def __enter__(self) -> Driven:
        self.take()
        return self

    def __exit__(self, *_error: object) -> None:
        self.task.stop()

    def take(self) -> None:
        """Begin like the record loop."""
        self.next = self.task.claim([PARTITION]).get(PARTITION, 0)
        self.task.begin({PARTITION: self.next})

    def batch(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] = (),
        schema: Schema | None = None,
        key_schema: Schema | None = None,
        topic: str = "orders",
    ) -> SinkBatch:
        """Return a batch of the next records."""
        offsets = range(self.next, self.next + len(values))
        self.next += len(values)
        return SinkBatch(
            topic, 0, offsets[0], offsets[-1], values, keys or [None] * len(values), offsets, [None] * len(values),
            key_schema=key_schema, value_schema=schema, original_topic=PARTITION[0],
        )  # fmt: skip

    def put(self, values: Sequence[Any], keys: Sequence[Any] = (), **more: Any) -> SinkBatch:
        """Put the next records to the task."""
        batch = self.batch(values, keys, **more)
        self.task.put(batch)
        return batch

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query in the database."""
        return ask(self.dsn, query)

    def ledger(self) -> int:
        """Return the next offset to write."""
        return self.rows("SELECT next_offset FROM herdmesh_ledger")[0][0]


def ask(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """Execute statements in a session with default settings; return the rows of the last. The session is reused at the
    next call, because a new one takes longer than most statements.
    """
    connection = _session(dsn)
    cursor = connection.execute(query.encode())
    while cursor.nextset():
        pass
    found = cursor.fetchall() if cursor.description else []
    connection.execute("DISCARD ALL")
    return found


class _Kept(threading.local):
    """A thread's session of its last query."""

    dsn: str = ""
    connection: psycopg.Connection[Any] | None = None


_kept = _Kept()


def _session(dsn: str) -> psycopg.Connection[Any]:
    """Return a living session: a server sends to an idle session only when it ends it."""
    kept = _kept.connection
    if kept is not None and (_kept.dsn != dsn or kept.closed or select.select([kept.fileno()], [], [], 0)[0]):
        kept.close()
        kept = None
    if kept is None:
        kept = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    _kept.dsn, _kept.connection = dsn, kept
    return kept


def struct(schema: Schema, values: Sequence[Any]) -> Struct:
    """Return a struct of these values."""
    return Struct(schema, list(values))
