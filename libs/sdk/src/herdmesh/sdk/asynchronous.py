"""Tasks whose author writes coroutines.

Owns the private event loop of a task, in a thread of its own, so that the author's background work (a connection, a
prefetch) continues while the record loop does something else. The record loop waits for each coroutine that it calls.

Invariant: all coroutines of a task run in one loop, one call of the record loop at a time; after `stop` nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, final

from herdmesh.connect.model import ConnectRecord
from herdmesh.connect.spi import (
    Config,
    PartitionId,
    RecordMetadata,
    SinkBatch,
    SinkTask,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TaskContext,
)
from herdmesh.sdk.record_transactions import RecordTransactions
from herdmesh.sdk.records import RecordQueue, SourceOffset, SourceRecord, records_of, report

T = TypeVar("T")
STOP_S: Final = 10.0
"""Time limit for the cancellation of coroutines that still run."""

_log = logging.getLogger(__name__)


class _Loop:
    """An event loop in a thread."""

    def __init__(self, name: str) -> None:
        serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=_serve, args=(serving,), name=name, daemon=True)
        self._thread.start()
        self._loop, self._ended = serving.result()

    def run(self, wanted: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine; return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(wanted, self._loop).result()

    def close(self) -> None:
        """Cancel the coroutines that still run."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            _log.warning(
                "%s: coroutines ignore their cancellation and run until the process ends; let CancelledError through",
                self._thread,
            )


def _serve(serving: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def until_ended() -> None:
        ended = asyncio.Event()
        serving.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    asyncio.run(until_ended())


class AsyncSourceTask(SourceTask):
    """Base class of source tasks written in coroutines."""

    transactions: RecordTransactions | None = None
    """Like `RecordSourceTask.transactions`, for the records that `poll_async` returns; set from `start_async` on.
    `context.transactions` is for positions in a batch that the task creates itself.
    """
    _loop: _Loop | None = None

    @abstractmethod
    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        """Like `SourceTask.start`."""

    @abstractmethod
    async def poll_async(self) -> Sequence[SourceRecord | SourceOffset] | SourceBatch | None:
        """Like `SourceTask.poll`; returns records or a batch, None or no records when there is nothing. A
        `SourceOffset` among records advances the offset without a record. The record loop waits for this coroutine, so
        wait only for a moment.
        """

    async def commit_async(self, records: Sequence[SourceRecord]) -> None:
        """Called when everything returned so far is in Kafka, with its offsets. `records`: those since the last call
        that were returned as records.
        """
        return

    async def commit_record_async(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Like `RecordSourceTask.commit_record`, for data that was returned as records. Called for one after the other,
        before `commit_async`. An exception is logged and has no other effect.
        """
        return

    async def commit_batch_async(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        """Like `SourceTask.commit_batch`, for data that was returned as a batch."""
        return

    async def stop_async(self) -> None:
        """Release everything; called once, also after an error. Coroutines that still run are cancelled next."""
        return

    @final
    def wants_metadata(self) -> bool:
        """True for a task that overrides `commit_record_async` or `commit_batch_async`."""
        own = type(self)
        return (
            own.commit_record_async is not AsyncSourceTask.commit_record_async
            or own.commit_batch_async is not AsyncSourceTask.commit_batch_async
        )

    @final
    def start(self, config: Config, context: SourceTaskContext) -> None:
        """Call `start_async`."""
        if context.transactions is not None:
            self.transactions = RecordTransactions(context.transactions)
        places = self.wants_metadata()
        remembers = type(self).commit_async is not AsyncSourceTask.commit_async
        self._queue = RecordQueue(remembers=remembers, places=places, transactions=self.transactions)
        #: For each batch passed to the loop and not reported as committed: the number of records, and whether the task
        #: returned records.
        self._unplaced: deque[tuple[int, bool]] | None = deque() if places else None
        self._loop = _Loop(f"{context.connector}-{context.task}")
        self._loop.run(self.start_async(config, context))

    @final
    def poll(self) -> SourceBatch | None:
        """The next batch of the data from `poll_async`."""
        assert self._loop is not None, "polled before it was started"
        batch = self._queue.next()
        if batch is None:
            found = self._loop.run(self.poll_async())
            if isinstance(found, SourceBatch):
                if self.transactions is not None:
                    self.transactions.handed_batch()
                return self._handed(found, as_records=False)
            given = found or ()
            if self.transactions is not None:
                self.transactions.given(given[-1] if given else None)
            self._queue.add(list(given))  # copied, because the author may reuse the list
            batch = self._queue.next()
        return None if batch is None else self._handed(batch, as_records=True)

    @final
    def has_rest(self) -> bool:
        """True while records of a call of `poll_async` remain."""
        return bool(self._queue)

    def _handed(self, batch: SourceBatch, *, as_records: bool) -> SourceBatch:
        if self._unplaced is not None and len(batch):
            self._unplaced.append((len(batch), as_records))
        return batch

    @final
    def commit_batch(self, batch: SourceBatch, metadata: Sequence[RecordMetadata | None]) -> None:
        """Call `commit_record_async` or `commit_batch_async`. `batch` may be a part of a batch passed to the loop."""
        assert self._unplaced is not None
        count, as_records = self._unplaced.popleft()
        if count > len(metadata):
            self._unplaced.appendleft((count - len(metadata), as_records))
        if self._loop is not None:
            told = self._tell_each(metadata) if as_records else self.commit_batch_async(batch, metadata)
            self._loop.run(told)

    async def _tell_each(self, metadata: Sequence[RecordMetadata | None]) -> None:
        for record, place in zip(self._queue.placed(len(metadata)), metadata, strict=True):
            try:
                await self.commit_record_async(record, place)
            except Exception:  # noqa: BLE001 - an author's code may raise anything, and the commit is done
                _log.exception("the task failed in commit_record_async; the record is committed all the same")

    @final
    def commit(self) -> None:
        """Call `commit_async`, if the task overrides it."""
        if self._loop is not None and type(self).commit_async is not AsyncSourceTask.commit_async:
            self._loop.run(self.commit_async(self._queue.committed()))

    @final
    def stop(self) -> None:
        """Call `stop_async` if `start_async` was called."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self.stop_async())
            finally:
                loop.close()


class AsyncSinkTask(SinkTask):
    """Base class of sink tasks written in coroutines; delivery at least once."""

    _loop: _Loop | None = None

    @abstractmethod
    async def start_async(self, config: Config, context: TaskContext) -> None:
        """Like `SinkTask.start`."""

    async def open_async(self, partitions: Sequence[PartitionId]) -> None:
        """Like `SinkTask.open`."""
        return

    @abstractmethod
    async def put_async(self, batch: SinkBatch) -> None:
        """Like `SinkTask.put`; the write may continue in asyncio tasks for which `flush_async` waits."""

    @abstractmethod
    async def flush_async(self) -> None:
        """Like `SinkTask.flush`."""

    async def pre_commit_async(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """Like `SinkTask.pre_commit`: `flush_async` is called from here only."""
        await self.flush_async()
        return offsets

    async def close_async(self, partitions: Sequence[PartitionId]) -> None:
        """Like `SinkTask.close`."""
        return

    async def stop_async(self) -> None:
        """Release everything; called once, also after an error. Coroutines that still run are cancelled next."""
        return

    @final
    def start(self, config: Config, context: TaskContext) -> None:
        """Call `start_async`."""
        self._loop = _Loop(f"{context.connector}-{context.task}")
        self._loop.run(self.start_async(config, context))

    @final
    def open(self, partitions: Sequence[PartitionId]) -> None:
        """Call `open_async`."""
        self._run(self.open_async(partitions))

    @final
    def put(self, batch: SinkBatch) -> None:
        """Call `put_async`."""
        self._run(self.put_async(batch))

    @final
    def flush(self) -> None:
        """Call `flush_async`."""
        self._run(self.flush_async())

    @final
    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        """Call `pre_commit_async`."""
        return self._run(self.pre_commit_async(offsets))

    @final
    def close(self, partitions: Sequence[PartitionId]) -> None:
        """Call `close_async`."""
        self._run(self.close_async(partitions))

    @final
    def stop(self) -> None:
        """Call `stop_async` if `start_async` was called."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self.stop_async())
            finally:
                loop.close()

    def _run(self, wanted: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "called before it was started"
        return self._loop.run(wanted)


class AsyncRecordSinkTask(AsyncSinkTask):
    """Base class of sink tasks in coroutines that get single records; delivery at least once.

    `start_async` keeps the context: extend it with `await super().start_async(config, context)`.
    """

    context: TaskContext

    async def start_async(self, config: Config, context: TaskContext) -> None:
        """Like `SinkTask.start`."""
        self.context = context

    @abstractmethod
    async def put_records_async(self, records: Sequence[ConnectRecord]) -> None:
        """Like `RecordSinkTask.put_records`; the write may continue in asyncio tasks for which `flush_async` waits."""

    @final
    async def put_async(self, batch: SinkBatch) -> None:
        """Call `put_records_async`."""
        if len(batch):
            await self.put_records_async(records_of(batch, self.context))

    def report(self, record: ConnectRecord, error: BaseException) -> Future[None]:
        """Like `RecordSinkTask.report`; wait for the returned future by `result()`, do not await it. Call it from
        within `put_records_async` or `flush_async`, or from coroutines for which these wait, not from work between two
        calls.
        """
        return report(self.context, record, error)
