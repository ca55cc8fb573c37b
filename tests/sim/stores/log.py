"""One simulated replica's access to the broker: the `Log` under a real `TopicStoreCore`.

Owns the hops between process and broker, the stages of a commit, and the limits of a frozen or dead process:
nothing goes out and nothing comes in (`Process.gate`). Timers inside such a process do run; since nothing of it is
seen outside before it continues, that is one of the orders in which it could have continued.

As in the Kafka engine, a failure before the commit was requested is `CommitNotSent`, after it `CommitOutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from herdmesh.topicstore.contract import StoredRecord
from herdmesh.topicstore.errors import NotAuthorized
from herdmesh.topicstore.log import (
    CommitNotSent,
    CommitOutcomeUnknown,
    LogEvents,
    LogIdentity,
    LogPlace,
    LogUnavailable,
    Positions,
    Transaction,
)
from herdmesh.topicstore.settings import TopicSettings
from herdmesh.topicstore.stages import WriteStage
from tests.sim.stores.broker import COMPACTION_LAG_S, Fenced, Partition, SimBroker
from tests.sim.stores.broker import Transaction as OpenTransaction
from tests.sim.stores.clock import pause

_RETRY_S = 0.02


class Process(Protocol):
    """The log's view of the process it lives in."""

    name: str
    #: Delay before it reads available records: a reader far behind.
    reader_delay_s: float
    #: The answer of the next commit is lost; True: after it was decided, False: before.
    lose_answer: bool | None

    async def gate(self) -> None:
        """Returns when the process runs; never when it is dead."""
        ...

    def on_stage(self, stage: WriteStage) -> None: ...

    def chance(self, of: float) -> bool: ...

    def number(self, low: int, high: int) -> int: ...

    def hop_s(self) -> float: ...


class SimLog:
    """`Log` over a `SimBroker`."""

    def __init__(self, broker: SimBroker, settings: TopicSettings, process: Process) -> None:
        self.name = process.name
        self._broker = broker
        self.settings = settings
        self._process = process
        self._shards: list[Partition] = []
        self._positions: list[int] = []
        self._events: LogEvents | None = None
        self._more = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._epoch: int | None = None
        self._joined = False
        self._writing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def open(self) -> LogIdentity:
        settings = self.settings
        while True:  # as the Kafka engine does for the whole start time
            try:
                await self._hop()
                break
            except LogUnavailable:
                await pause(_RETRY_S)
        self._shards = list(self._broker.topic(settings.topic, settings.partitions))
        if settings.audit_topic is not None:
            self._shards += self._broker.topic(settings.audit_topic, 1)
        self._positions = [0] * len(self._shards)
        return LogIdentity(
            "sim", settings.topic, settings.partitions, settings.audit_topic, round(COMPACTION_LAG_S * 1000)
        )

    def read(self, events: LogEvents) -> None:
        self._events = events
        self._broker.attach(self._more.set, lambda: self._positions)
        self._more.set()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    def join_election(self) -> None:
        self._joined = True
        self._broker.join(self.settings.election_group, self)

    async def leave_election(self) -> None:
        await self._process.gate()
        self._broker.leave(self.settings.election_group, self)

    @property
    def address(self) -> str:
        return "sim"

    async def check(self) -> NotAuthorized | None:
        """Find no fault: the topics of a story stay as they were created."""
        await self._hop()
        return None

    async def end(self) -> Positions:
        await self._hop()
        found = tuple(partition.stable_offset for partition in self._shards)
        await self._hop()
        return found

    async def prove_ownership(self) -> bool:
        await self._hop()
        proved = self._broker.owner(self.settings.election_group) is self
        await self._hop()
        return proved

    async def take_over(self) -> None:
        async with self._writing:
            self._epoch = None
            await self._hop()
            while self._broker.is_committing(self.settings.transactional_id):
                await pause(_RETRY_S)
                await self._hop()
            epoch = self._broker.fence(self.settings.transactional_id, self.name)
            await self._hop()
            self._epoch = epoch

    async def commit(self, transaction: Transaction, placed: Callable[[Sequence[LogPlace]], None]) -> None:
        async with self._writing:
            await self._process.gate()
            if self._epoch is None:
                raise CommitNotSent("the writer was released")
            open_one = self._broker.begin(self.settings.transactional_id, self._epoch, self.name)
            await self._reach(WriteStage.BEFORE_SEND)
            places: list[LogPlace | None] = [None] * len(transaction.records)
            try:
                first = transaction.first
                await self._send(open_one, transaction, first, [transaction.records[i].value for i in first], places)
                if transaction.behind:
                    behind = transaction.values_behind(places)
                    await self._send(open_one, transaction, transaction.behind, behind, places)
            except (Fenced, LogUnavailable) as failure:
                self._epoch = None
                raise CommitNotSent(str(failure)) from failure
            await self._reach(WriteStage.AFTER_SEND)
            placed([place for place in places if place is not None])
            await self._reach(WriteStage.BEFORE_COMMIT)
            lose, self._process.lose_answer = self._process.lose_answer, None
            try:
                if lose is False:
                    raise LogUnavailable("the request was lost")
                await self._hop()
                self._broker.commit(open_one)
                if lose is True:
                    raise LogUnavailable("the answer was lost")
                await self._hop()
            except (Fenced, LogUnavailable) as failure:
                self._epoch = None
                raise CommitOutcomeUnknown(str(failure)) from failure
            await self._reach(WriteStage.AFTER_COMMIT)

    async def _send(
        self,
        open_one: OpenTransaction,
        transaction: Transaction,
        indexes: Sequence[int],
        values: Sequence[bytes | None],
        places: list[LogPlace | None],
    ) -> None:
        await self._hop()
        for index, value in zip(indexes, values, strict=True):
            shard = transaction.shards[index]
            record = transaction.records[index]
            places[index] = (shard, self._broker.send(open_one, self._shards[shard], record.key, value))
        await self._hop()

    async def read_audit(self, offsets: Sequence[int]) -> list[StoredRecord]:
        await self._hop()
        audit = self._shards[self.settings.partitions]
        return [record for record in audit.since(0, audit.next_offset) if record.offset in set(offsets)]

    def now_ms(self) -> int:
        return self._broker.now_ms()

    async def release(self) -> None:
        async with self._writing:
            self._epoch = None

    def cut(self) -> None:
        """The process is dead: the broker serves this reader no more."""
        self._broker.detach(self._more.set)

    async def close(self) -> None:
        self.cut()
        if self._reader is not None:
            self._reader.cancel()
        for task in list(self._background):
            task.cancel()

    # Called by the broker and the story.

    def tell_owner(self, owned: bool) -> None:
        """Notify the process of the group's decision; it gets it when it runs."""
        task = asyncio.get_running_loop().create_task(self._hear(owned))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def expire(self) -> None:
        """The group's coordinator has had no heartbeat of this member for the session's time."""
        self._broker.leave(self.settings.election_group, self)

    def rejoin(self) -> None:
        """After it was expired, the member learns it and joins again."""
        if self._joined and not self._broker.is_member(self.settings.election_group, self):
            self.tell_owner(False)
            self._broker.join(self.settings.election_group, self)

    async def _hear(self, owned: bool) -> None:
        await self._process.gate()
        if self._events is not None:
            # In truth this member was expired meanwhile; `rejoin` notifies it.
            self._events.on_owner(owned)

    async def _reach(self, stage: WriteStage) -> None:
        self._process.on_stage(stage)
        await self._process.gate()

    async def _hop(self) -> None:
        """Wait for a hop to the broker or back. Raises `LogUnavailable` during an outage."""
        await self._process.gate()
        await pause(self._process.hop_s())
        await self._process.gate()
        if not self._broker.available:
            raise LogUnavailable("no broker answers")

    async def _read(self) -> None:
        while True:
            await self._more.wait()
            await pause(self._process.hop_s() + self._process.reader_delay_s)
            await self._process.gate()
            if self._broker.available:
                self._more.clear()
                self._deliver()
            else:
                await pause(_RETRY_S)

    def _deliver(self) -> None:
        """Deliver one batch, cut anywhere, as a client's fetch is."""
        assert self._events is not None
        limit = self._process.number(1, 12)
        records: list[StoredRecord] = []
        for shard, partition in enumerate(self._shards):
            found = partition.since(self._positions[shard], limit - len(records))
            records += found
            if len(records) < limit:
                self._positions[shard] = partition.stable_offset
            else:
                if found:
                    self._positions[shard] = found[-1].offset + 1
                self._more.set()
        self._events.on_records(records, tuple(self._positions))
