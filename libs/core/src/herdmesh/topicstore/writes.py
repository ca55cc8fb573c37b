"""The write path: decide on scratch state, commit in groups, answer when applied, re-check refusals.

Owns the queue of writes and the one transaction in flight. Whether this replica may write is the core's affair: it
opens and shuts the queue. Invariants:
- a write is decided on everything applied plus everything decided before it in the same transaction, and if that
  transaction fails, all of them fail: nothing is built on a record that may not exist;
- a write with side writes is alone in its transaction: when Kafka rejects them, no other write fails;
- a refusal or a no-op is answered only when the write is decided again after a read barrier with the same outcome.
  A writer that was deposed without noticing (stopped and continued, cut off from the network) detects it at the
  barrier; an empty transaction would not show it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, cast

from herdmesh.topicstore.applied import Applied, Flight, Outcome, fail_future
from herdmesh.topicstore.barrier import Barrier
from herdmesh.topicstore.contract import Beside, ResultT, Revision, StateT, StoredRecord, WriteDecision
from herdmesh.topicstore.errors import (
    NotApplied,
    QueueFull,
    RecordTooLarge,
    StoreClosed,
    WriteOutcomeUnknown,
    WriterFenced,
)
from herdmesh.topicstore.log import (
    CommitBesideRefused,
    CommitNotSent,
    CommitOutcomeUnknown,
    CommitRefused,
    Log,
    LogIdentity,
    Transaction,
)
from herdmesh.topicstore.settings import StoreTuning
from herdmesh.topicstore.stages import OnStage, WriteStage

_logger = logging.getLogger(__name__)

_CROWDED_POLL_S = 0.01
_BURST_S = 0.005

#: First offset of records in flight in the scratch state. It is above every real offset, so they sort last, and equal
#: to none, so no expected revision of a caller can match one. A state compares offsets; it must not write an offset
#: that it finds in a record into another record's value.
PROVISIONAL_OFFSET = 1 << 62


@dataclass(slots=True, eq=False)
class _Pending:
    decide: Callable[[Any], WriteDecision[Any]]
    answer: asyncio.Future[Any]
    queued_s: float
    decision: WriteDecision[Any] | None = None

    def fulfil(self, decision: WriteDecision[Any], state: object, revision: Revision) -> None:
        if self.answer.done():
            return
        try:
            self.answer.set_result(decision.result(state, revision))
        except Exception as bug:  # noqa: BLE001  # the caller's code failed: that is its answer, written or not
            fail_future(self.answer, bug)


class GroupCommit(Generic[StateT]):
    """The writes of one store. Calls `cut_off(error)` when the writer's identity is lost; delays groups while
    `crowded()` reports that the watchers cannot follow.
    """

    def __init__(
        self,
        log: Log,
        applied: Applied[StateT, Any],
        barrier: Barrier,
        tuning: StoreTuning,
        cut_off: Callable[[NotApplied], None],
        on_stage: OnStage,
        crowded: Callable[[], bool],
    ) -> None:
        self._log = log
        self._applied = applied
        self._barrier = barrier
        self._tuning = tuning
        self._cut_off = cut_off
        self._on_stage = on_stage
        self._crowded = crowded
        self._busy_until_s = 0.0
        self._making_room = False
        self._together = 0  # number of writes in the group before this one
        self._identity: LogIdentity | None = None
        self._queue: deque[_Pending] = deque()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._confirmations: dict[asyncio.Task[None], _Pending] = {}
        self._shut: NotApplied | None = StoreClosed("not started")
        self._paused = False
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.transactions = 0
        self.transactions_failed = 0

    @property
    def busy(self) -> bool:
        """True while a caller waits for the answer to a write, and shortly after, because callers often send the next
        write. False while writes are delayed for the watchers.
        """
        if self._making_room:
            return False
        return bool(self._unanswered) or asyncio.get_running_loop().time() < self._busy_until_s

    def open(self, identity: LogIdentity) -> None:
        """Accept writes: this replica is the writer now."""
        self._identity = identity
        self._shut = None
        self._work.set()

    def shut(self, reason: NotApplied) -> None:
        """Fail waiting and new writes with `reason`: this replica is not the writer. The transaction in flight
        continues.
        """
        self._shut = reason
        queue, self._queue = self._queue, deque()
        for pending in queue:
            fail_future(pending.answer, reason)

    def pause(self) -> None:
        """Begin no other transaction: `shut` follows when its reason is known."""
        self._paused = True

    async def write(self, decide: Callable[[StateT], WriteDecision[ResultT]]) -> ResultT:
        """See `TopicStore.write`."""
        if self._shut is not None:
            raise self._shut
        limit = self._tuning.pending_writes_max
        if len(self._unanswered) >= limit:
            raise QueueFull(limit)
        if len(self._queue) >= limit:  # while nothing is committed, callers may give up and others come
            self._queue = deque(pending for pending in self._queue if not pending.answer.done())
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        self._enqueue(_Pending(decide, answer, loop.time()))
        try:
            return cast(ResultT, await answer)
        finally:
            self._busy_until_s = loop.time() + _BURST_S

    async def run(self) -> None:
        """Commit groups until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            if not self._queue or self._paused:
                self._work.clear()
                continue
            wait_s = self._queue[0].queued_s + self._tuning.group_commit_ms / 1000 - loop.time()
            # If the last group had one write, do not wait for more.
            if wait_s > 0 and self._together > 1 and len(self._queue) < self._tuning.group_commit_records:
                await asyncio.sleep(wait_s)
            await self._make_room()
            if self._paused:
                continue
            self._idle.clear()
            try:
                await self._commit_group()
            finally:
                self._idle.set()

    async def _make_room(self) -> None:
        """Delay the next group until the watchers catch up. Bounded: a write is delayed for them, never refused."""
        if not self._crowded():
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._tuning.crowded_wait_ms / 1000
        self._making_room = True
        try:
            while self._crowded() and self._shut is None and not self._paused and loop.time() < until_s:  # noqa: ASYNC110  # worked out
                await asyncio.sleep(_CROWDED_POLL_S)
        finally:
            self._making_room = False

    async def finish(self) -> None:
        """Wait until no transaction is in flight. The caller bounds the time."""
        await self._idle.wait()

    def abandon(self, closed: NotApplied) -> None:
        """Fail the remaining writes because the store closes: unsent ones with `closed`; those in flight may or may not
        be applied.
        """
        for task, pending in list(self._confirmations.items()):
            task.cancel()
            fail_future(pending.answer, closed)
        for answer in list(self._unanswered):
            fail_future(answer, WriteOutcomeUnknown(str(closed)))

    def _enqueue(self, pending: _Pending) -> None:
        if self._shut is not None:
            fail_future(pending.answer, self._shut)
            return
        self._queue.append(pending)
        self._work.set()

    async def _commit_group(self) -> None:
        group, refused = self._decide_group()
        self._together = len(group) + len(refused)
        try:
            if group:
                await self._fly(group)
        finally:
            # Only now: before the group landed, the re-check would run on a state without it.
            for pending in refused:
                if pending.answer.done():
                    continue
                task = asyncio.create_task(self._confirm(pending))
                self._confirmations[task] = pending
                task.add_done_callback(self._confirmations.pop)
                # Cancel the re-check with its caller: while no broker is reachable, nothing else would end it.
                pending.answer.add_done_callback(lambda _, task=task: task.cancel())

    def _decide_group(self) -> tuple[list[_Pending], list[_Pending]]:
        """Take writes off the queue; return those to commit together and those to confirm, in order."""
        group: list[_Pending] = []
        refused: list[_Pending] = []
        scratch = _Scratch(self._applied.state, self._identity, self._log.now_ms())
        records = 0
        while self._queue and records < self._tuning.group_commit_records:
            pending = self._queue.popleft()
            if pending.answer.done():  # the caller went away
                continue
            try:
                decision = pending.decide(scratch.state)
            except Exception:  # noqa: BLE001  # a refusal, whatever its type; the caller gets it if it holds after the barrier
                refused.append(pending)
                continue
            if not decision.records and decision.beside is None:
                refused.append(pending)
                continue
            if decision.beside is not None and group:
                self._queue.appendleft(
                    pending
                )  # it is next in turn, and is decided again on the state after this group
                break
            try:
                scratch.add(decision)
            except RecordTooLarge as too_large:
                fail_future(pending.answer, too_large)
                continue
            except Exception as bug:
                # The state cannot apply this record. Once written, it would stop every replica at every replay: refuse
                # it.
                _logger.exception("a write was refused because the state cannot apply its records")
                fail_future(pending.answer, bug)
                scratch = _Scratch(self._applied.state, self._identity, self._log.now_ms())
                for accepted in group:
                    scratch.add(_decided(accepted))
                continue
            pending.decision = decision
            group.append(pending)
            records += len(decision.records)
            if decision.beside is not None:
                break
        return group, refused

    async def _fly(self, group: Sequence[_Pending]) -> None:
        assert self._identity is not None
        decisions = [_decided(pending) for pending in group]
        writes = [decision.records for decision in decisions]

        def landing() -> None:
            self._on_stage(WriteStage.BEFORE_READ_BACK)

        def completed(write: int, revision: Revision) -> None:
            if write == 0:
                self._on_stage(WriteStage.BEFORE_ANSWER)
            group[write].fulfil(decisions[write], self._applied.state, revision)

        flight = Flight([len(records) for records in writes], completed, landing)
        self._applied.expect(flight)
        self.transactions += 1
        try:
            transaction = Transaction(writes, self._identity, self._applied.revision, decisions[0].beside)
            await self._log.commit(transaction, flight.place)
        except CommitNotSent as failure:
            self.transactions_failed += 1
            self._applied.retract(flight)
            error = failure.cause if isinstance(failure, CommitRefused) else WriterFenced(str(failure))
            self._cut_off(error)
            _fail(group, failure.cause if isinstance(failure, CommitBesideRefused) else error)
        except CommitOutcomeUnknown as failure:
            self.transactions_failed += 1
            _logger.warning("a commit was not confirmed, looking for its records: %s", failure)
            self._cut_off(WriterFenced(str(failure)))
            await self._look_for(flight, group, str(failure), absent=WriterFenced(str(failure)))
        else:
            await self._read_back(flight, group)

    async def _read_back(self, flight: Flight, group: Sequence[_Pending]) -> None:
        """Wait until a confirmed commit is read back."""
        wait_s = self._tuning.read_back_ms / 1000
        try:
            async with asyncio.timeout(wait_s):
                outcome = await asyncio.shield(flight.outcome)
        except TimeoutError:
            self.transactions_failed += 1
            # No broker is reachable, or one lost the marker: only a new take-over makes the transaction readable.
            reason = f"a confirmed transaction was not read back within {wait_s:g} s"
            self._cut_off(WriterFenced(reason))
            await self._look_for(flight, group, reason, absent=WriteOutcomeUnknown(reason))
            return
        if outcome is not Outcome.LANDED:
            self.transactions_failed += 1
            # Confirmed, but the reader passed its places: the log lost committed records.
            reason = "a confirmed transaction is not in the log"
            if outcome is Outcome.PARTLY:
                reason = "only a part of a confirmed transaction is in the log"
            _logger.error("%s", reason)
            self._cut_off(WriterFenced(reason))
            _fail(group, WriteOutcomeUnknown(reason))

    async def _look_for(self, flight: Flight, group: Sequence[_Pending], reason: str, *, absent: Exception) -> None:
        """Wait until the reader found the records or passed their places. A take-over (by this replica or another
        writer) ends the open transaction, so that the reader can pass; otherwise the broker aborts it after its
        timeout.
        """
        try:
            async with asyncio.timeout(self._tuning.outcome_timeout_ms / 1000):
                outcome = await asyncio.shield(flight.outcome)
        except TimeoutError:
            _fail(group, WriteOutcomeUnknown(reason))
            return
        if outcome is Outcome.ABSENT:
            _fail(group, absent)
        elif outcome is Outcome.PARTLY:
            _fail(group, WriteOutcomeUnknown(f"{reason}, and only a part of it is in the log"))

    async def _confirm(self, pending: _Pending) -> None:
        """Decide again after a barrier; if the refusal or no-op is repeated, it is the answer, else the write is
        queued.
        """
        try:
            await self._barrier.pass_through()
        except NotApplied as closed:
            fail_future(pending.answer, closed)
            return
        if pending.answer.done():
            return
        try:
            decision = pending.decide(self._applied.state.copy())
        except Exception as refusal:  # noqa: BLE001  # the domain's own error type; see `TopicStore.write`
            fail_future(pending.answer, refusal)
            return
        if decision.records or decision.beside is not None:
            self._enqueue(pending)
        else:
            pending.fulfil(decision, self._applied.state, self._applied.revision)


class _Scratch(Generic[StateT]):
    """A copy of the applied state plus the records decided so far in this group."""

    def __init__(self, applied: StateT, identity: LogIdentity | None, now_ms: int) -> None:
        assert identity is not None
        self._now_ms = now_ms
        self.state: StateT = applied.copy()
        self._identity = identity
        self._next_offset = PROVISIONAL_OFFSET

    def add(self, decision: WriteDecision[Any]) -> None:
        """Apply the records of one write. Raises, before anything is applied, `RecordTooLarge`, and ValueError for
        invalid side writes.
        """
        records = decision.records
        if decision.beside is not None:
            _check_beside(decision.beside, self._identity)
            if not records:
                raise ValueError("nothing can be beside a write without records: when it is done could not be read")
        for record in records:
            size = len(record.key) + len(record.value or b"")
            if size > self._identity.record_bytes_max:
                # Once sent, it would fail the transaction, and with it the writer and the whole group.
                raise RecordTooLarge(size, self._identity.record_bytes_max)
        for record in records:
            shard = self._identity.shard_for(record)
            own = shard < self._identity.partitions
            if own and record.late is not None:
                raise ValueError("only a record of the audit topic can have a late value")
            self.state.apply(
                StoredRecord(
                    topic=self._identity.topic if own else cast(str, self._identity.audit_topic),
                    partition=shard if own else 0,
                    offset=self._next_offset,
                    key=record.key,
                    value=record.value,
                    timestamp_ms=self._now_ms,
                )
            )
            self._next_offset += 1


def _check_beside(beside: Beside, identity: LogIdentity) -> None:
    """Check for mistakes that do not depend on Kafka. Raises ValueError."""
    for record in beside.records:
        # In the store's own topics the reader would take such a record for another program's.
        if record.topic in (None, identity.topic, identity.audit_topic):
            raise ValueError(f"a record for topic {record.topic!r} cannot be beside a write of {identity.topic!r}")
        if record.late is not None:
            raise ValueError("only a record of the audit topic can have a late value")
    if beside.group_offsets and not beside.group:
        raise ValueError("group offsets beside a write are of no group")
    for offset in beside.group_offsets:
        if offset.offset < 0:  # the client would silently leave it out
            raise ValueError(f"{offset.offset} is no offset of {offset.topic}-{offset.partition}")


def _decided(pending: _Pending) -> WriteDecision[Any]:
    assert pending.decision is not None
    return pending.decision


def _fail(group: Sequence[_Pending], error: Exception) -> None:
    for pending in group:
        fail_future(pending.answer, error)
