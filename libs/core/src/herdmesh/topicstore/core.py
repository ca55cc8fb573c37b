"""The engine-independent part of a topic store: start, roles, take-over, close, and the public methods.

Owns the role and the order of events. The fold is `applied`, writes are `writes`, reads are `barrier` and `watch`, and
a `Log` hides where the records are. It knows no Kafka client.

A take-over, step by step: (1) the log reports that this replica is the owner; (2) `may_write` allows it; (3) the
coordinator confirms the ownership, because a process that was stopped and continued may still remember an ownership
that it has lost; (4) `take_over` fences every earlier writer and ends its transaction; (5) the reader reads everything
up to the end, and the buffered records of an incomplete transaction are applied; (6) writes are admitted. Invariant:
between two successful take-overs of one store, only the later replica's records become visible.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Generic

from herdmesh.topicstore.applied import Applied
from herdmesh.topicstore.barrier import Barrier
from herdmesh.topicstore.contract import (
    KEEP_ALIVE_KEY,
    KEEP_ALIVE_VALUE,
    ChangeT,
    NewRecord,
    ResultT,
    Revision,
    StateT,
    StoredRecord,
    StoreRole,
    WatchEvent,
    WatchSnapshot,
    WriteDecision,
)
from herdmesh.topicstore.errors import (
    ForeignWriter,
    NotApplied,
    NotAuthorized,
    NotWriter,
    RevisionForeign,
    RevisionInFuture,
    StartError,
    StoreClosed,
    StoreReplaying,
    TopicStoreError,
    WriterFenced,
)
from herdmesh.topicstore.guard import Guard
from herdmesh.topicstore.health import HealthBook, Part, StoreHealth
from herdmesh.topicstore.log import Log, LogBlocked, LogIdentity, LogUnavailable, Positions
from herdmesh.topicstore.metrics import StoreFigures, StoreMetrics
from herdmesh.topicstore.settings import StoreTuning
from herdmesh.topicstore.stages import OnStage
from herdmesh.topicstore.watch import WatchHub
from herdmesh.topicstore.writes import GroupCommit

_logger = logging.getLogger(__name__)

_RETRY_S = 0.1

_KEEP_ALIVE = NewRecord(KEEP_ALIVE_KEY, KEEP_ALIVE_VALUE)

#: After this many take-overs in a row without progress of the reader, the reader counts as stuck for good.
_READS_IN_VAIN_MAX = 3

#: Called before each take-over; False = not now. To give the operator the reason, it raises `ForeignWriter` (for the
#: config store: members in Connect's own group) or `NotAuthorized`.
MayWrite = Callable[[], Awaitable[bool]]


async def always() -> bool:
    """A `may_write` that always allows."""
    return True


class TopicStoreCore(Generic[StateT, ChangeT]):
    """`TopicStore` over any `Log`. Create and use it on one event loop."""

    def __init__(self, log: Log, initial: StateT, may_write: MayWrite, tuning: StoreTuning, on_stage: OnStage) -> None:
        self._log = log
        self._may_write = may_write
        self._tuning = tuning
        self._applied: Applied[StateT, ChangeT] = Applied(initial, self._publish)
        self._hub: WatchHub[ChangeT] = WatchHub(tuning, lambda: self._applied.revision, lambda: self._writes.busy)
        self._barrier = Barrier(self._find_end, self._applied.wait)
        self._health = HealthBook(log.now_ms)
        self._guard = Guard(log, self._health, tuning, self.on_fault, self._on_refused)
        self._writes: GroupCommit[StateT] = GroupCommit(
            log, self._applied, self._barrier, tuning, self._cut_off, on_stage, self._hub.crowded
        )
        self._identity: LogIdentity | None = None
        self._end_seen: Positions = ()  # end of the log at the last fetch by a read
        self.metrics = StoreMetrics(log.settings.topic, self._figures)
        self._role = StoreRole.REPLAYING
        self._replay_begun_s: float | None = None
        self._replay_ended_s: float | None = None
        self._role_watchers: set[_RoleWatcher] = set()
        self._young_from_ms = 0
        self._term = 0  # increases with every change of ownership
        self._reads_in_vain = 0  # take-overs in a row in which the reader made no progress
        self._owner = asyncio.Event()
        self._deposed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._closed_by: NotApplied = StoreClosed()
        self._explained = (
            asyncio.Event()
        )  # cleared while the cause of a fault is looked up; writes wait for it and fail with that cause
        self._explained.set()
        self._stopped = False  # no record is applied any more; set after CLOSED, so that writes in flight can complete

    @property
    def role(self) -> StoreRole:
        return self._role

    @property
    def topic(self) -> str:
        return self._log.settings.topic

    @property
    def cluster_id(self) -> str:
        return "" if self._identity is None else self._identity.cluster_id

    @property
    def health(self) -> StoreHealth:
        return self._health.health

    @property
    def state(self) -> StateT:
        return self._applied.state

    @property
    def revision(self) -> Revision:
        return self._applied.revision

    async def start(self) -> None:
        if self._closing is not None:
            raise self._closed_by
        try:
            self._identity = await self._log.open()
        except StartError as error:  # nothing runs yet: after a fix this store may be started again
            self._health.note(Part.START, error)
            raise
        except BaseException:
            await self.close()
            raise
        self._health.note(Part.START, None)
        self._replay_begun_s = time.monotonic()
        self.metrics.show()
        try:
            self._applied.open(self._identity)
            # Half of the lag, because clocks differ and the replay takes time.
            self._young_from_ms = self._log.now_ms() - self._identity.min_compaction_lag_ms // 2
            self._log.read(self)
            self._spawn(self._guard.run())
            self._spawn(self._barrier.run())
            await self._barrier.pass_through()
        except BaseException:
            await self.close()
            raise
        self._replay_ended_s = time.monotonic()
        self._hub.begin(self.revision.next_offsets)
        self._move(StoreRole.REPLICA)
        self._spawn(self._writes.run())
        self._spawn(self._lead())
        self._spawn(self._keep_alive())
        self._log.join_election()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def write(self, decide: Callable[[StateT], WriteDecision[ResultT]]) -> ResultT:
        return await self.metrics.timed(self._write(decide))

    async def _write(self, decide: Callable[[StateT], WriteDecision[ResultT]]) -> ResultT:
        await self._explained.wait()
        self._require_replayed()
        if self._role is not StoreRole.WRITER:
            raise self._refused() or NotWriter(self._role)
        return await self._writes.write(decide)

    async def barrier(self) -> Revision:
        self._require_replayed()
        await self._barrier.pass_through()
        return self._applied.revision

    async def wait_for(self, revision: Revision) -> None:
        self._require_replayed()
        self._require_own(revision)
        await self._applied.wait(revision.next_offsets)

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        self._require_replayed()
        assert self._identity is not None
        if self._identity.audit_topic is None or not offsets:
            return []
        while True:
            try:
                return await self._log.read_audit(offsets)
            except LogUnavailable as unavailable:
                _logger.warning("cannot read the audit topic, trying again: %s", unavailable)
                await asyncio.sleep(_RETRY_S)
                self._require_replayed()

    async def watch(
        self, resume: Revision | None = None, *, at_least: Revision | None = None
    ) -> AsyncIterator[WatchEvent[StateT, ChangeT]]:
        self._require_replayed()
        if at_least is not None:
            await self.wait_for(at_least)
        if resume is None:
            snapshot = WatchSnapshot(self._applied.snapshot(), self._applied.revision)
            events = self._hub.follow()  # no await since the snapshot: no change is between the two
            yield snapshot
        else:
            self._require_own(resume)
            if not self.revision.includes(resume):
                # A replica that is ahead of this one may have given this revision, or no replica of this store. The end
                # of the log shows which.
                await self._barrier.pass_through()
            if not self.revision.includes(resume):
                raise RevisionInFuture(resume, self.revision)
            events = self._hub.resume(resume)
        async with aclosing(events):  # an abandoned watch must not count as a lagging one
            async for event in events:
                yield event

    async def role_changes(self) -> AsyncIterator[StoreRole]:
        watcher = _RoleWatcher(self._role)
        self._role_watchers.add(watcher)
        try:
            while True:
                role = await watcher.next()
                yield role
                if role is StoreRole.CLOSED:
                    return
        finally:
            self._role_watchers.discard(watcher)

    # Callbacks of the log.

    def on_records(self, records: Sequence[StoredRecord], positions: Positions) -> None:
        if self._stopped:
            return
        if self._role is StoreRole.REPLAYING:
            self._remember_young(records)
        try:
            self._applied.feed(records, positions)
        except Exception:
            # `apply` never raises by contract. If the store continued, its state would silently lack a record.
            _logger.critical("the state failed to apply a record; this store closes", exc_info=True)
            self.on_fault(StoreClosed("the state failed to apply a record"))
            return
        self._hub.wake()

    def on_owner(self, owned: bool) -> None:
        if self._role is StoreRole.CLOSED:
            return
        self._term += 1
        if owned:
            self._owner.set()
        else:
            self._owner.clear()
            self._health.note(Part.WRITING, None)  # writing problems are the new owner's from here on
            self._step_down()

    def on_election_refused(self, error: NotAuthorized | None) -> None:
        self._health.note(Part.ELECTION, error)

    def on_fault(self, error: StoreClosed | NotAuthorized) -> None:
        if self._closing is None:
            self._stopped = True
            self._closed_by = error
            self._explained.clear()
            self._writes.pause()
            self._closing = asyncio.get_running_loop().create_task(self._close_because(error))

    # Roles.

    async def _lead(self) -> None:
        backoff_ms = self._tuning.take_over_backoff_ms
        loop = asyncio.get_running_loop()
        while True:
            await self._owner.wait()
            self._move(StoreRole.TAKING_OVER)
            self._deposed.clear()
            begun_s = loop.time()
            if await self._take_over():
                await self._deposed.wait()
                await self._log.release()
            if loop.time() - begun_s > self._tuning.take_over_backoff_ms_max / 1000:
                backoff_ms = self._tuning.take_over_backoff_ms
            if self._owner.is_set():
                # This replica was cut off while it owns the partition: by a writer outside the election (a Java leader)
                # or by the broker.
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, self._tuning.take_over_backoff_ms_max)

    async def _take_over(self) -> bool:
        """Become the writer and return True; return False when ownership was lost on the way or the log failed."""
        assert self._identity is not None
        term = self._term
        while not await self._allowed():
            await asyncio.sleep(self._tuning.may_write_interval_ms / 1000)
            if term != self._term:
                return False
        try:
            if not await self._log.prove_ownership() or term != self._term or not await self._guard.allows_take_over():
                return False
            await self._log.take_over()
            await self._read_to_end()
        except LogUnavailable as unavailable:
            _logger.warning("taking over failed, trying again: %s", unavailable)
            self._not_writing(self._guard.trouble_of(unavailable))
            return False
        except NotAuthorized as refusal:
            self._not_writing(refusal)
            return False
        self._applied.settle_at_end()
        if term != self._term:
            await self._log.release()
            return False
        self._health.note(Part.WRITING, None)
        self._writes.open(self._identity)
        self._move(StoreRole.WRITER)
        return True

    async def _read_to_end(self) -> None:
        """Wait until the reader has reached the end of the log.

        Raises `LogBlocked` when that takes so long that the end may not exist any more, as after a broker lost a
        marker, and `LogUnavailable` when the broker does not answer, which proves nothing about the reader.
        """
        end = await self._log.end()
        before = self._applied.seen
        try:
            async with asyncio.timeout(self._tuning.read_back_ms / 1000):
                await self._applied.read_to(end)
        except TimeoutError:
            self._reads_in_vain = self._reads_in_vain + 1 if self._applied.seen == before else 0
            if self._reads_in_vain == _READS_IN_VAIN_MAX:
                # The log returned its end, so the broker is reachable: only another replica, or a restarted one, can
                # write.
                self.on_fault(StoreClosed("the reader makes no progress although the broker answers"))
            raise LogBlocked(
                f"its own reader, which did not reach the end of {self.topic!r} in {self._tuning.read_back_ms} ms",
                "check the load of this machine and of the broker; a reader that does not move ends this store at its"
                f" attempt {_READS_IN_VAIN_MAX}; after a restart, or on another replica, it reads on",
            ) from None
        self._reads_in_vain = 0

    async def _allowed(self) -> bool:
        try:
            return await self._may_write()
        except (ForeignWriter, NotAuthorized) as why:
            self._not_writing(why)
            return False
        except Exception:  # the hook's own I/O failed: without certainty the answer is no
            _logger.warning(
                "the check whether this replica may write failed; it does not become the writer", exc_info=True
            )
            return False

    def _cut_off(self, error: NotApplied) -> None:
        _logger.warning("stepping down: %s", error.reason if isinstance(error, WriterFenced) else error)
        self._not_writing(error)
        self._step_down()

    def _not_writing(self, error: TopicStoreError) -> None:
        """Note `error` as the reason why this replica does not write, if it still owns the partition. A replica that
        lost the election during its attempt notes nothing: writing is the new owner's task.
        """
        if self._owner.is_set():
            self._health.note(Part.WRITING, error)

    def _step_down(self) -> None:
        if self._role in (StoreRole.WRITER, StoreRole.TAKING_OVER):
            self._writes.shut(NotWriter(StoreRole.REPLICA))
            self._move(StoreRole.REPLICA)
        self._deposed.set()

    def _move(self, role: StoreRole) -> None:
        if role is self._role or self._role is StoreRole.CLOSED:
            return
        _logger.info("role %s -> %s", self._role.value, role.value)
        self._role = role
        for watcher in self._role_watchers:
            watcher.tell(role)

    # Health.

    def _on_refused(self, error: NotAuthorized) -> None:
        if (
            self._role is StoreRole.WRITER
        ):  # a replica that is not the writer needs no permission now; its take-over checks again
            self._health.note(Part.WRITING, error)
            self._step_down()

    def _refused(self) -> NotAuthorized | None:
        """The permission that the broker denies this replica, if that is the reason why it does not write."""
        for part in (Part.ELECTION, Part.WRITING):
            if isinstance(error := self._health.trouble(part), NotAuthorized):
                return error
        return None

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._tuning.keep_alive_ms / 1000)
            if self._role is StoreRole.WRITER:
                try:
                    await self._writes.write(lambda _: WriteDecision([_KEEP_ALIVE], lambda _state, _revision: None))
                except TopicStoreError as failure:
                    _logger.info(
                        "the writer's keep-alive could not be written; its next write replaces it: %s", failure
                    )

    # Closing.

    async def _close_because(self, error: StoreClosed | NotAuthorized) -> None:
        try:
            self._closed_by = await self._guard.explain(error)
        finally:
            self._explained.set()
        await self._close()

    async def _close(self) -> None:
        self.metrics.hide()
        error = self._closed_by
        self._writes.shut(error)
        self._move(StoreRole.CLOSED)
        if not self._stopped:
            await self._bounded(self._writes.finish())
            self._stopped = True
        self._let_go(error)
        await self._bounded(self._log.leave_election())
        await self._fall(error)

    def _end(self, reason: str) -> None:
        """Close without waiting for anything."""
        self.metrics.hide()
        error = StoreClosed(reason)
        self._writes.shut(error)
        self._move(StoreRole.CLOSED)
        self._stopped = True
        self._let_go(error)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._fall(error))

    def _let_go(self, error: NotApplied) -> None:
        """Fail callers that wait for a read, a position or a watch event."""
        self._barrier.fail(error)
        self._applied.fail_waiters(error)
        self._hub.close(error)

    async def _fall(self, error: NotApplied) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writes.abandon(error)
        await self._bounded(self._log.close())

    async def _bounded(self, stage: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._tuning.close_stage_ms / 1000):
                await stage
        except TimeoutError:
            _logger.warning("closing: a step took more than %d ms and was abandoned", self._tuning.close_stage_ms)

    # Helpers.

    async def _find_end(self) -> Positions:
        self._end_seen = await self._log.end()
        return self._end_seen

    def _figures(self) -> StoreFigures:
        """Return the counters. Called by the thread that serves /metrics."""
        return StoreFigures(
            role=self._role,
            condition=self._health.health.condition,
            next_offsets=() if self._identity is None else self._applied.revision.next_offsets,
            replay_s=self._replay_s(),
            transactions=self._writes.transactions,
            transactions_failed=self._writes.transactions_failed,
            records_applied=self._applied.applied_records,
            reader_lag_offsets=sum(
                max(0, end - seen) for end, seen in zip(self._end_seen, self._applied.seen, strict=False)
            ),
            watchers=self._hub.watcher_count,
            watchers_cut_off=self._hub.cut_off,
            state=self._applied.state,
        )

    def _replay_s(self) -> float | None:
        if self._replay_begun_s is None:
            return None
        return (self._replay_ended_s or time.monotonic()) - self._replay_begun_s

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if (
            error is not None and error is not self._closed_by
        ):  # calls that wait while the store closes fail with `_closed_by`
            _logger.critical("a task of the store failed", exc_info=error)
            self.on_fault(StoreClosed(f"internal error: {error!r}"))

    def _remember_young(self, records: Sequence[StoredRecord]) -> None:
        """Let watches from before a restart resume at young records. No record this young was compacted, nor any after
        it.
        """
        assert self._identity is not None
        if self._identity.min_compaction_lag_ms <= 0:
            return
        for record in records:
            if record.timestamp_ms >= self._young_from_ms and record.topic == self._identity.topic:
                self._hub.remember_from(record.partition, record.offset)

    def _publish(self, partition: int, offset: int, changes: Sequence[ChangeT]) -> None:
        self._hub.publish(partition, offset, changes)

    def _require_replayed(self) -> None:
        if self._role is StoreRole.REPLAYING:
            raise StoreReplaying()
        if self._role is StoreRole.CLOSED or self._closing is not None:
            raise self._closed_by

    def _require_own(self, revision: Revision) -> None:
        mine = self._applied.revision
        if revision.store_id != mine.store_id or len(revision.next_offsets) != len(mine.next_offsets):
            raise RevisionForeign(revision, mine.store_id)


class _RoleWatcher:
    """Roles that one caller of `role_changes` has not received yet. Bounded: the newest 64 are kept."""

    def __init__(self, current: StoreRole) -> None:
        self._unseen = deque([current], maxlen=64)
        self._told = asyncio.Event()
        self._told.set()

    def tell(self, role: StoreRole) -> None:
        self._unseen.append(role)
        self._told.set()

    async def next(self) -> StoreRole:
        while not self._unseen:
            self._told.clear()
            await self._told.wait()
        return self._unseen.popleft()
