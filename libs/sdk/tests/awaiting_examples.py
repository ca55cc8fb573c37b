"""Coroutine connectors for the tests of the standard suite: a source and two sinks that are correct, and a sink that
does not wait for its writes in progress.

Owns no test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from herdmesh.sdk import (
    AsyncRecordSinkTask,
    AsyncSinkTask,
    AsyncSourceTask,
    Config,
    ConnectRecord,
    SinkBatch,
    SourceBatch,
    SourceOffset,
    SourceRecord,
    SourceTaskContext,
    TaskContext,
)
from libs.sdk.tests.examples import LinesSink, LinesSource, append, line_of


class AwaitedSource(LinesSource):
    """A correct source."""

    class_name = "test.AwaitedSource"
    task = "AwaitedTask"

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"


class AwaitedTask(AsyncSourceTask):
    """Reads from the committed line on, in a thread that it awaits; returns records and batches in turn."""

    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        self.path, self.topic = Path(str(config["file"])), str(config["topic"])
        self.context = context
        self.partition = {"file": str(self.path)}
        self.line: int = (context.committed_offset(self.partition) or {"line": 0})["line"]
        self.as_records = False

    async def poll_async(self) -> Sequence[SourceRecord | SourceOffset] | SourceBatch | None:
        lines = (await asyncio.to_thread(self.path.read_text)).splitlines()
        rows = [json.loads(line) for line in lines[self.line :][: self.context.poll_records_max()]]
        begin, self.line = self.line, self.line + len(rows)
        self.as_records = not self.as_records
        if not self.as_records:
            return SourceBatch(self.topic, rows, self.partition, {"line": self.line})
        found = [self.record(row, line) for line, row in enumerate(rows, begin + 1)]
        return [*found, SourceOffset(self.partition, {"line": self.line})] if found else None

    def record(self, row: Any, line: int) -> SourceRecord:
        return SourceRecord(self.topic, row, self.partition, {"line": line})


class AwaitedSink(LinesSink):
    """A correct sink."""

    class_name = "test.AwaitedSink"
    task = "AwaitedSinkTask"

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"


class Writing:
    """Writes by tasks on the event loop, one after the other, and the writes still in progress."""

    def __init__(self, config: Config) -> None:
        self.path = Path(str(config["file"]))
        self.turn = asyncio.Lock()
        self.left: set[asyncio.Task[None]] = set()

    def begin(self, lines: Sequence[bytes]) -> None:
        """Start writing the lines, without waiting."""
        self.left.add(asyncio.create_task(self._write(lines)))

    async def all(self) -> None:
        """Wait for all writes that were started."""
        left, self.left = self.left, set()
        await asyncio.gather(*left)

    async def _write(self, lines: Sequence[bytes]) -> None:
        async with self.turn:
            await asyncio.to_thread(append, self.path, lines)


class AwaitedSinkTask(AsyncSinkTask):
    """Starts to write each batch, and waits for all writes in `flush`."""

    uses_keys = False

    async def start_async(self, config: Config, context: TaskContext) -> None:
        self.writing = Writing(config)

    async def put_async(self, batch: SinkBatch) -> None:
        self.writing.begin([line_of(value) for value in batch.values])

    async def flush_async(self) -> None:
        await self.writing.all()


class DoesNotWait(AwaitedSinkTask):
    """A broken task: treats started writes as finished."""

    async def start_async(self, config: Config, context: TaskContext) -> None:
        await super().start_async(config, context)
        await self.writing.turn.acquire()  # simulates a slow disk

    async def flush_async(self) -> None:
        return


class AwaitedRecordSink(AwaitedSink):
    """A correct sink of single records."""

    class_name = "test.AwaitedRecordSink"
    task = "AwaitedRecordSinkTask"


class AwaitedRecordSinkTask(AsyncRecordSinkTask):
    """Like `AwaitedSinkTask`, for single records."""

    uses_keys = False

    async def start_async(self, config: Config, context: TaskContext) -> None:
        await super().start_async(config, context)
        self.writing = Writing(config)

    async def put_records_async(self, records: Sequence[ConnectRecord]) -> None:
        self.writing.begin([line_of(one.value) for one in records])

    async def flush_async(self) -> None:
        await self.writing.all()
