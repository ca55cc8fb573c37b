"""The memory engine: the same store over topics that live in this process.

Owns `MemoryTopicStore`, a replica, and its `Log` over a `MemoryBroker` (which belongs to `memory_broker`). In addition
to a real replica's behaviour it offers faults for tests: `freeze`/`thaw` (a process stopped and continued, or cut off
from the network), `kill`, `lose_next_answer` (a commit whose reply does not arrive). Everything runs on the event loop
in a fixed order; with an injected clock it is deterministic. Invariant: as with a real client, cancelling a caller does
not stop a transaction that was begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from herdmesh.topicstore.contract import Beside, ChangeT, StateT, StoredRecord
from herdmesh.topicstore.core import MayWrite, TopicStoreCore, always
from herdmesh.topicstore.errors import BesideRefused, NotAuthorized, TopicMisconfigured, TopicRecreated
from herdmesh.topicstore.log import (
    FRAMING_BYTES,
    CommitBesideRefused,
    CommitNotSent,
    CommitOutcomeUnknown,
    LogEvents,
    LogIdentity,
    LogPlace,
    Positions,
    Transaction,
)
from herdmesh.topicstore.memory.memory_broker import Fenced, MemoryBroker, MemoryPartition, MemoryTopic
from herdmesh.topicstore.partitioner import partition_of
from herdmesh.topicstore.settings import (
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES_DEFAULT,
    MIN_COMPACTION_LAG,
    StoreTuning,
    TopicSettings,
)
from herdmesh.topicstore.stages import OnStage, WriteStage, failpoints_of

_BATCH_RECORDS = 500
_T = TypeVar("_T")


class MemoryLog:
    """`Log` over a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, settings: TopicSettings, on_stage: OnStage) -> None:
        self._broker = broker
        self._on_stage = on_stage
        self._settings = settings
        self._id = settings.transactional_id
        self._opened: dict[str, tuple[MemoryTopic, int, str]] = {}
        self._shards: list[MemoryPartition] = []
        self._positions: list[int] = []
        self._events: LogEvents | None = None
        self._poked = False
        self._epoch: int | None = None
        self._message_bytes_max = 0
        self._writing = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()
        self._told_owner = False
        self._frozen = False
        self._calls_go_out = asyncio.Event()
        self._calls_go_out.set()
        self._lose_answer: bool | None = None

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    async def open(self) -> LogIdentity:
        settings = self._settings
        own = self._open_topic(
            settings.topic, settings.partitions, "compact", int(settings.own_topic_configs[MIN_COMPACTION_LAG])
        )
        self._shards = list(own.partitions)
        if settings.audit_topic is not None:
            self._shards += self._open_topic(settings.audit_topic, 1, "delete", 0).partitions
        self._positions = [0] * len(self._shards)
        max_bytes = int(settings.topic_configs.get(MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES_DEFAULT))
        self._message_bytes_max = max_bytes
        return LogIdentity(
            own.store_id,
            settings.topic,
            settings.partitions,
            settings.audit_topic,
            own.min_compaction_lag_ms,
            max_bytes - FRAMING_BYTES,
            self._broker.cluster_id,
        )

    def _open_topic(self, name: str, partitions: int, policy: str, min_compaction_lag_ms: int) -> MemoryTopic:
        topic = self._broker.topics.get(name)
        if topic is None:
            topic = self._broker.create_topic(name, partitions, policy, min_compaction_lag_ms)
        _check_topic(topic, partitions, policy)
        self._opened[name] = (topic, partitions, policy)
        return topic

    async def check(self) -> NotAuthorized | None:
        await self._stand()
        for name, (topic, partitions, policy) in self._opened.items():
            found = self._broker.topics.get(name)
            if found is not topic:
                raise TopicRecreated(name, topic.store_id, None if found is None else found.store_id)
            _check_topic(topic, partitions, policy)
        return None

    def read(self, events: LogEvents) -> None:
        self._events = events
        self._broker.attach(self.poke)
        self.poke()

    def join_election(self) -> None:
        self._broker.join(self._settings.election_group, self)

    async def leave_election(self) -> None:
        self._broker.leave(self._settings.election_group, self)

    async def end(self) -> Positions:
        await self._stand()
        return tuple(partition.stable for partition in self._shards)

    async def prove_ownership(self) -> bool:
        await self._stand()
        return self._broker.owner(self._settings.election_group) is self

    async def take_over(self) -> None:
        await self._call(self._take_over())

    async def _take_over(self) -> None:
        async with self._writing:
            await self._stand()
            self._epoch = self._broker.fence(self._id)

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        await self._call(self._commit(transaction, placed))

    async def _commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        async with self._writing:
            await self._stand()
            if self._epoch is None:
                raise CommitNotSent("the writer was released")
            epoch = self._epoch
            try:
                await self._reach(WriteStage.BEFORE_SEND)
                places = self._send(transaction, epoch)
                await self._reach(WriteStage.AFTER_SEND)
            except Fenced as fenced:
                raise CommitNotSent(str(fenced)) from None
            placed(places)
            await self._reach(WriteStage.BEFORE_COMMIT)
            lose, self._lose_answer = self._lose_answer, None
            try:
                self._broker.end(self._id, epoch, commit=lose is not False)
            except Fenced as fenced:
                raise CommitOutcomeUnknown(str(fenced)) from None
            await self._reach(WriteStage.AFTER_COMMIT)
            if lose is not None:
                raise CommitOutcomeUnknown("the answer was lost")

    def _send(self, transaction: Transaction, epoch: int) -> list[LogPlace]:
        places: list[LogPlace | None] = [None] * len(transaction.records)

        def send(indexes: Sequence[int], values: Sequence[bytes | None]) -> None:
            for index, value in zip(indexes, values, strict=True):
                record, shard = transaction.records[index], transaction.shards[index]
                topic, partition = record.topic or self._settings.topic, shard % self._settings.partitions
                places[index] = (shard, self._broker.send(self._id, epoch, topic, partition, record.key, value))

        send(transaction.first, [transaction.records[index].value for index in transaction.first])
        send(transaction.behind, transaction.values_behind(places))
        if transaction.beside is not None:
            self._send_beside(transaction.beside, epoch)
        return [place for place in places if place is not None]

    def _send_beside(self, beside: Beside, epoch: int) -> None:
        """Send the side writes. Raises `CommitBesideRefused`, possibly after a part of them was sent, as with a
        broker."""
        for record in beside.records:
            topic = record.topic or ""
            partition = partition_of(record.key, self._partitions_of(topic))
            if len(record.key) + len(record.value or b"") > self._message_bytes_max:
                raise CommitBesideRefused(BesideRefused(f"a record for topic {topic!r}", "it is too large"))
            self._broker.send(self._id, epoch, topic, partition, record.key, record.value)
        for offset in beside.group_offsets:
            if not 0 <= offset.partition < self._partitions_of(offset.topic):
                what = f"topic {offset.topic!r}"
                raise CommitBesideRefused(BesideRefused(what, f"there is no partition {offset.partition} of it"))
        self._broker.send_offsets(self._id, epoch, beside.group, beside.group_offsets)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._broker.topics:
            raise CommitBesideRefused(BesideRefused(f"topic {topic!r}", "there is no such topic"))
        return len(self._broker.topics[topic].partitions)

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        await self._stand()
        audit = self._shards[self._settings.partitions]
        wanted = set(offsets)
        return [record for record in audit.since(min(wanted), audit.next_offset) if record.offset in wanted]

    def now_ms(self) -> int:
        return self._broker.now_ms()

    async def release(self) -> None:
        await self._call(self._release())

    async def _release(self) -> None:
        async with self._writing:
            self._epoch = None

    async def close(self) -> None:
        self._broker.detach(self.poke)
        self._events = None
        for call in self._calls:
            call.cancel()

    async def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` to its end, even if the caller is cancelled."""
        call = asyncio.get_running_loop().create_task(work)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.shield(call)

    async def _reach(self, stage: WriteStage) -> None:
        self._on_stage(stage)
        await self._stand()

    async def _stand(self) -> None:
        """Yield to other tasks; while `freeze(calls=True)` holds, wait as a stopped process would."""
        await asyncio.sleep(0)
        await self._calls_go_out.wait()

    # Methods for the broker and tests.

    def tell_owner(self, owned: bool) -> None:
        if not self._frozen and owned != self._told_owner and self._events is not None:
            self._told_owner = owned
            self._events.on_owner(owned)

    def poke(self) -> None:
        if not self._poked and not self._frozen and self._events is not None:
            self._poked = True
            asyncio.get_running_loop().call_soon(self._pump)

    def freeze(self, *, calls: bool) -> None:
        self._frozen = True
        if calls:
            self._calls_go_out.clear()
        self._broker.leave(self._settings.election_group, self)

    def thaw(self) -> None:
        self._frozen = False
        self._calls_go_out.set()
        self.tell_owner(False)
        self._broker.join(self._settings.election_group, self)
        self.poke()

    def lose_next_answer(self, *, applied: bool) -> None:
        self._lose_answer = applied

    def _pump(self) -> None:
        self._poked = False
        if self._frozen or self._events is None:
            return
        records: list[StoredRecord] = []
        for shard, partition in enumerate(self._shards):
            found = partition.since(self._positions[shard], _BATCH_RECORDS - len(records))
            records += found
            complete = len(records) < _BATCH_RECORDS
            self._positions[shard] = (
                partition.stable if complete else found[-1].offset + 1 if found else self._positions[shard]
            )
        self._events.on_records(records, tuple(self._positions))
        if any(mine < shard.stable for mine, shard in zip(self._positions, self._shards, strict=True)):
            self.poke()


def _check_topic(topic: MemoryTopic, partitions: int, policy: str) -> None:
    if len(topic.partitions) != partitions:
        raise TopicMisconfigured(topic.name, "partitions", str(partitions), str(len(topic.partitions)))
    if topic.cleanup_policy != policy:
        raise TopicMisconfigured(topic.name, "cleanup.policy", policy, topic.cleanup_policy)


class MemoryTopicStore(TopicStoreCore[StateT, ChangeT], Generic[StateT, ChangeT]):
    """`TopicStore` in memory. Stores given one `broker` and equal topic settings are replicas of each other."""

    def __init__(
        self,
        broker: MemoryBroker,
        settings: TopicSettings,
        initial: StateT,
        *,
        may_write: MayWrite = always,
        tuning: StoreTuning | None = None,
        on_stage: OnStage | None = None,
    ) -> None:
        """`on_stage` replaces the failpoints."""
        on_stage = on_stage or failpoints_of(settings.topic)
        self._memory = MemoryLog(broker, settings, on_stage)
        super().__init__(self._memory, initial, may_write, tuning or StoreTuning(), on_stage)

    def freeze(self, *, calls: bool = False) -> None:
        """Deliver nothing more to this replica: no records, no loss of ownership. Another replica is elected. This
        replica's own calls continue, which is worse than a stopped process; with `calls` they stop too, at any point of
        a transaction. `on_stage` may call this.
        """
        self._memory.freeze(calls=calls)

    def thaw(self) -> None:
        """End `freeze`: this replica receives what it missed and joins the election again."""
        self._memory.thaw()

    def kill(self) -> None:
        """Behave as after kill -9 of the process: no call gets out any more, the transaction stays open until another
        writer fences it, another replica is elected. Waiting callers get the error that the store closed or that the
        outcome is unknown. `on_stage` may call this. At `before-read-back` and `before-answer`, which are one step with
        the answer, callers still get their results: discard what comes from a killed store.
        """
        self._memory.freeze(calls=True)
        self._end("killed")

    def lose_next_answer(self, *, applied: bool) -> None:
        """Let the next commit take effect (or not, by `applied`) and lose its reply either way."""
        self._memory.lose_next_answer(applied=applied)
