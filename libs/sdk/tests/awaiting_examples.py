"""Connectors of coroutines for the tests of the standard suite: a source and two sinks that keep every promise, and a
sink that does not wait for what it left running.

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
    """Keeps every promise."""

    class_name = "test.AwaitedSource"
    task = "AwaitedTask"

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"


class AwaitedTask(AsyncSourceTask):
    """Reads on from the committed line, in a thread that it waits for; gives what it has by turns as records, and as a
    batch."""

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
    """Keeps every promise."""

    class_name = "test.AwaitedSink"
    task = "AwaitedSinkTask"

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"


class Writing:
    """What is written by tasks of the loop's, one after the other, and what is still on its way."""

    def __init__(self, config: Config) -> None:
        self.path = Path(str(config["file"]))
        self.turn = asyncio.Lock()
        self.left: set[asyncio.Task[None]] = set()

    def begin(self, lines: Sequence[bytes]) -> None:
        """Write them some time."""
        self.left.add(asyncio.create_task(self._write(lines)))

    async def all(self) -> None:
        """Wait for all that was begun."""
        left, self.left = self.left, set()
        await asyncio.gather(*left)

    async def _write(self, lines: Sequence[bytes]) -> None:
        async with self.turn:
            await asyncio.to_thread(append, self.path, lines)


class AwaitedSinkTask(AsyncSinkTask):
    """Begins to write each batch, and waits for all of them when it is told to flush."""

    uses_keys = False

    async def start_async(self, config: Config, context: TaskContext) -> None:
        self.writing = Writing(config)

    async def put_async(self, batch: SinkBatch) -> None:
        self.writing.begin([line_of(value) for value in batch.values])

    async def flush_async(self) -> None:
        await self.writing.all()


class DoesNotWait(AwaitedSinkTask):
    """Takes what it began for done."""

    async def start_async(self, config: Config, context: TaskContext) -> None:
        await super().start_async(config, context)
        await self.writing.turn.acquire()  # a disk that is slow

    async def flush_async(self) -> None:
        return


class AwaitedRecordSink(AwaitedSink):
    """Keeps every promise, record by record."""

    class_name = "test.AwaitedRecordSink"
    task = "AwaitedRecordSinkTask"


class AwaitedRecordSinkTask(AsyncRecordSinkTask):
    """As `AwaitedSinkTask`."""

    uses_keys = False

    async def start_async(self, config: Config, context: TaskContext) -> None:
        await super().start_async(config, context)
        self.writing = Writing(config)

    async def put_records_async(self, records: Sequence[ConnectRecord]) -> None:
        self.writing.begin([line_of(one.value) for one in records])

    async def flush_async(self) -> None:
        await self.writing.all()
