"""Tasks whose author writes coroutines.

Owns the private event loop of a task, in a thread of its own, so that what the author leaves running (a connection, a
prefetch) goes on while the record loop does something else. The record loop waits for each coroutine it asks for.

Invariant: all coroutines of a task run in one loop, one call of the record loop at a time; after `stop` nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, final

from herdmesh.connect.connector import (
    Config,
    PartitionId,
    SinkBatch,
    SinkTask,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TaskContext,
)
from herdmesh.sdk.records import RecordQueue, SourceRecord

T = TypeVar("T")
STOP_S: Final = 10.0
"""How long what was left running may take to be cancelled."""

_log = logging.getLogger(__name__)


class _Loop:
    """An event loop in a thread."""

    def __init__(self, name: str) -> None:
        serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=_serve, args=(serving,), name=name, daemon=True)
        self._thread.start()
        self._loop, self._ended = serving.result()

    def run(self, wanted: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives, or raises."""
        return asyncio.run_coroutine_threadsafe(wanted, self._loop).result()

    def close(self) -> None:
        """Cancel what still runs."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            _log.warning("%s: coroutines do not heed that they are cancelled; they end with the process", self._thread)


def _serve(serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def until_ended() -> None:
        ended = asyncio.Event()
        serving.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    asyncio.run(until_ended())


class AsyncSourceTask(SourceTask):
    """Reads records outside, in coroutines."""

    _loop: _Loop | None = None

    @abstractmethod
    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        """As `SourceTask.start`."""

    @abstractmethod
    async def poll_async(self) -> Sequence[SourceRecord] | SourceBatch | None:
        """As `SourceTask.poll`; records or a batch, None or no records when there is nothing. What it waits for, the
        record loop waits for too: no longer than a moment."""

    async def commit_async(self, records: Sequence[SourceRecord]) -> None:
        """Everything handed over so far is in Kafka, with its offsets. `records`: those since the last call that were
        handed over as records."""
        return

    async def stop_async(self) -> None:
        """Release everything; called once, also after an error. What still runs is cancelled next."""
        return

    @final
    def start(self, config: Config, context: SourceTaskContext) -> None:
        """Told on to `start_async`."""
        self._queue = RecordQueue(remembers=type(self).commit_async is not AsyncSourceTask.commit_async)
        self._loop = _Loop(f"{context.connector}-{context.task}")
        self._loop.run(self.start_async(config, context))

    @final
    def poll(self) -> SourceBatch | None:
        """The next batch of what `poll_async` gives."""
        assert self._loop is not None, "polled before it was started"
        batch = self._queue.next()
        if batch is not None:
            return batch
        found = self._loop.run(self.poll_async())
        if found is None or isinstance(found, SourceBatch):
            return found
        self._queue.add(found)
        return self._queue.next()

    @final
    def commit(self) -> None:
        """Told on to `commit_async`, unless nothing would hear it."""
        if self._loop is not None and type(self).commit_async is not AsyncSourceTask.commit_async:
            self._loop.run(self.commit_async(self._queue.committed()))

    @final
    def stop(self) -> None:
        """Told on to `stop_async` where `start_async` was called."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self.stop_async())
            finally:
                loop.close()


class AsyncSinkTask(SinkTask):
    """Writes records outside, at least once, in coroutines."""

    _loop: _Loop | None = None

    @abstractmethod
    async def start_async(self, config: Config, context: TaskContext) -> None:
        """As `SinkTask.start`."""

    async def open_async(self, partitions: Sequence[PartitionId]) -> None:
        """As `SinkTask.open`."""
        return

    @abstractmethod
    async def put_async(self, batch: SinkBatch) -> None:
        """As `SinkTask.put`; it may leave writing to tasks of its own that `flush_async` waits for."""

    @abstractmethod
    async def flush_async(self) -> None:
        """As `SinkTask.flush`."""

    async def pre_commit_async(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """As `SinkTask.pre_commit`: `flush_async` is called from here only."""
        await self.flush_async()
        return offsets

    async def close_async(self, partitions: Sequence[PartitionId]) -> None:
        """As `SinkTask.close`."""
        return

    async def stop_async(self) -> None:
        """Release everything; called once, also after an error. What still runs is cancelled next."""
        return

    @final
    def start(self, config: Config, context: TaskContext) -> None:
        """Told on to `start_async`."""
        self._loop = _Loop(f"{context.connector}-{context.task}")
        self._loop.run(self.start_async(config, context))

    @final
    def open(self, partitions: Sequence[PartitionId]) -> None:
        """Told on to `open_async`."""
        self._run(self.open_async(partitions))

    @final
    def put(self, batch: SinkBatch) -> None:
        """Told on to `put_async`."""
        self._run(self.put_async(batch))

    @final
    def flush(self) -> None:
        """Told on to `flush_async`."""
        self._run(self.flush_async())

    @final
    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """Told on to `pre_commit_async`."""
        return self._run(self.pre_commit_async(offsets))

    @final
    def close(self, partitions: Sequence[PartitionId]) -> None:
        """Told on to `close_async`."""
        self._run(self.close_async(partitions))

    @final
    def stop(self) -> None:
        """Told on to `stop_async` where `start_async` was called."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self.stop_async())
            finally:
                loop.close()

    def _run(self, wanted: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "called before it was started"
        return self._loop.run(wanted)
