"""Coroutine tasks: one event loop per task, which runs background work between two calls and ends with the task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from herdmesh.sdk import (
    AsyncSinkTask,
    AsyncSourceTask,
    Config,
    PartitionId,
    SinkBatch,
    SourceBatch,
    SourceRecord,
    SourceTaskContext,
    TaskContext,
)

WAIT_S = 20.0


class PrefetchingSource(AsyncSourceTask):
    """A background task prefetches into a queue with room for two."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.committed: list[Any] = []
        self.fetched = threading.Semaphore(0)

    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        if "broken" in config:
            raise OSError("no way in")
        self.queue: asyncio.Queue[int] = asyncio.Queue(2)
        self.fetching = asyncio.create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            for number in range(100):
                await self.queue.put(number)
                self.fetched.release()
        except asyncio.CancelledError:
            self.calls.append("cancelled")
            raise

    async def poll_async(self) -> Sequence[SourceRecord] | SourceBatch | None:
        if self.queue.empty():
            return None
        number = self.queue.get_nowait()
        if number % 2:
            return SourceBatch("t", [number], {}, {"n": number})
        return [SourceRecord("t", number, {}, {"n": number}), SourceRecord("u", number, {}, {"n": number})]

    async def commit_async(self, records: Sequence[SourceRecord]) -> None:
        self.committed += [(record.topic, record.value) for record in records]

    async def stop_async(self) -> None:
        self.calls.append("stop")


def context() -> SourceTaskContext:
    return SourceTaskContext("lines", 3, 4, "run", lambda _partition: None)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_background_work_continues_between_calls_and_ends_with_the_task() -> None:
    task = PrefetchingSource()
    task.start({}, context())
    assert "lines-3" in threads()
    for _ in range(2):
        assert task.fetched.acquire(timeout=WAIT_S), "nothing runs while the record loop does something else"
    first, second = task.poll(), task.poll()
    assert first is not None
    assert second is not None
    assert [(one.topic, list(one.values)) for one in (first, second)] == [("t", [0]), ("u", [0])]
    task.commit()
    assert task.committed == [("t", 0), ("u", 0)]
    batch = task.poll()
    assert batch is not None
    assert (batch.topic, list(batch.values)) == ("t", [1])
    task.stop()
    task.stop()
    assert task.calls == ["stop", "cancelled"]
    assert "lines-3" not in threads()


def test_task_that_failed_to_start_or_never_started_can_be_stopped() -> None:
    PrefetchingSource().stop()
    task = PrefetchingSource()
    with pytest.raises(OSError, match="no way in"):
        task.start({"broken": "yes"}, context())
    task.stop()
    assert task.calls == ["stop"]
    assert "lines-3" not in threads()


class WritingSink(AsyncSinkTask):
    """Writes each batch in a background task; `flush` waits for all of them."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.opened: list[PartitionId] = []

    async def start_async(self, config: Config, context: TaskContext) -> None:
        self.writing: set[asyncio.Task[None]] = set()

    async def open_async(self, partitions: Sequence[PartitionId]) -> None:
        self.opened += partitions

    async def put_async(self, batch: SinkBatch) -> None:
        self.writing.add(asyncio.create_task(self._write(list(batch.values))))

    async def _write(self, values: list[Any]) -> None:
        await asyncio.sleep(0)
        if "bad" in values:
            raise OSError("disk full")
        self.written += values

    async def flush_async(self) -> None:
        writing, self.writing = self.writing, set()
        await asyncio.gather(*writing)


def test_flush_waits_for_writes_begun_by_put_and_raises_their_errors() -> None:
    task = WritingSink()
    task.start({}, TaskContext("lines", 0, 1, "connect-lines", "run"))
    task.open([("t", 0)])
    for values in (["a", "b"], ["c"]):
        task.put(SinkBatch("t", 0, 0, 1, values, [], [0, 1], [None, None]))
    task.flush()
    assert (sorted(task.written), task.opened) == (["a", "b", "c"], [("t", 0)])
    task.put(SinkBatch("t", 0, 2, 2, ["bad"], [], [2], [None]))
    with pytest.raises(OSError, match="disk full"):
        task.flush()
    task.stop()
    assert "lines-0" not in threads()


class LaterSink(WritingSink):
    """Waits for nothing: offsets of records not yet written may not be committed."""

    async def pre_commit_async(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        return offsets if all(one.done() for one in self.writing) else {}

    async def close_async(self, partitions: Sequence[PartitionId]) -> None:
        await self.flush_async()
        self.opened = [one for one in self.opened if one not in partitions]


def test_offsets_of_writes_in_progress_are_not_committed_and_close_waits_for_them() -> None:
    given = {("t", 0): 2}
    plain, task = WritingSink(), LaterSink()
    for one in (plain, task):
        one.start({}, TaskContext("lines", 0, 1, "connect-lines", "run"))
        one.open(list(given))
        one.put(SinkBatch("t", 0, 0, 1, ["a", "b"], [], [0, 1], [None, None]))
    assert (plain.pre_commit(given), plain.written) == (given, ["a", "b"]), "it was flushed"
    while not task.pre_commit(given):
        assert "lines-0" in threads()
    assert task.written == ["a", "b"]
    task.put(SinkBatch("t", 0, 2, 2, ["c"], [], [2], [None]))
    task.close(list(given))
    assert (task.written, task.opened) == (["a", "b", "c"], [])
    for one in (plain, task):
        one.stop()
