"""A store's topic with one writer and several replicas; relies on the properties that the stores' own simulator checks.

Owns the records, their order, who may write, and how far each replica has read. The states are the services' own pure
states; because a fold is the same everywhere, a replica that lags has the state of an earlier record.

Invariants: a write is decided on everything written before it and is in force at once; a writer that lost the election
and does not know it is refused at its next write, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import ManifestRecord
from herdmesh.rpc.errors import NotWriter, WriteOutcomeUnknown, WriterFenced
from herdmesh.topicstore.contract import Revision, StoredRecord, StoreRole, WriteDecision
from tests.sim.mesh.network import Stream
from tests.sim.mesh.node import Node
from tests.sim.mesh.scheduler import Answer

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

#: silence of a writer after which another replica takes over.
ELECTION_MS = 4_000
#: the outcome of a write sent so shortly before an outage is unknown.
_ON_ITS_WAY_MS = 300
_GIVES_UP_MS = 6_000


def _unknown() -> WriteOutcomeUnknown:
    return WriteOutcomeUnknown("the commit's answer was lost")


@dataclass
class Entry:
    """One record, its changes, and the state and revision after it."""

    record: StoredRecord
    changes: Sequence[Any]
    state: Any
    revision: Revision
    #: messages to watchers about it, created once.
    messages: list[Any] = field(default_factory=lambda: [])
    made: bool = False


class Log:
    """The topic, its audit topic, and the election of its writer."""

    def __init__(self, world: World, topic: str, initial: Any) -> None:
        self.world = world
        self.topic = topic
        self.entries: list[Entry] = []
        self.initial = initial
        self.state: Any = initial.copy()
        self.revision = Revision(topic, (0,))
        self.replicas: list[Replica] = []
        self.writer: Replica | None = None
        #: the newest record of each key, without the audit topic's.
        self._newest: dict[bytes | None, StoredRecord] = {}
        self._audit_next = 0
        self._last_well_ms = 0

    def append(self, decision: WriteDecision[Any]) -> None:
        """Append one transaction, with its extra records and offsets."""
        records = decision.records
        if decision.beside is not None:
            self.world.dataplane.offsets.created(decision)
        offset = self.revision.next_offsets[0]
        own = sum(1 for record in records if record.topic is None)
        after = Revision(self.topic, (offset + own,))
        for record in records:
            value = record.late(after) if record.late is not None else record.value
            at = offset if record.topic is None else self._audit_next
            stored = StoredRecord(
                record.topic or self.topic, 0, at, record.key, value, self.world.EPOCH_MS + self.world.now
            )
            if record.topic is None:
                offset += 1
                self.revision = Revision(self.topic, (offset,))
                self._newest[record.key] = stored
            else:
                self._audit_next += 1
            changes = self.state.apply(stored)
            self.entries.append(Entry(stored, changes, self.state.copy(), self.revision))
        self.revision = Revision(self.topic, (offset + (1 if own else 0),))  # the marker of the transaction

    def manifest_since(self, connector: str, offset: int) -> ManifestRecord | None:
        """The last manifest of a connector in the config topic from `offset` on."""
        record = self._newest.get(config_topic.manifest_key(connector))
        if record is None or record.offset < offset:
            return None
        decoded = config_topic.decode(record.key, record.value)
        return decoded if isinstance(decoded, ManifestRecord) else None

    def watch_over(self) -> None:
        """Called often: elect another writer when this one has been silent for long."""
        now = self.world.now
        if self.world.broker.away:
            return  # without a broker there is no election
        if self.writer is not None and self.writer.well and self.writer.claims:
            self._last_well_ms = now
        elif now - self._last_well_ms >= ELECTION_MS or self.writer is None:
            self.elect()

    def elect(self) -> None:
        """Make the next running replica the writer."""
        able = [replica for replica in self.replicas if replica.well and replica is not self.writer]
        if not able and self.writer is not None and self.writer.well:
            able = [self.writer]
        if not able:
            return
        before, self.writer = self.writer, able[0]
        self._last_well_ms = self.world.now
        if before is not None and before is not self.writer and before.alive:
            before.after(self.world.rng.randint(20, 1_500), before.learn)
        self.writer.after(self.world.rng.randint(20, 300), self.writer.learn)


class Replica(Node):
    """One process of a store; a `TopicStore` for the methods that the servicers use."""

    def __init__(self, name: str, world: World, log: Log) -> None:
        super().__init__(name, world)
        self.log = log
        self.topic = log.topic
        self.index = 0
        self.claims = False
        self.slow_ms = 0
        self.term = 0
        self.watchers: list[Callable[[Entry], None]] = []
        #: writes in flight in this life.
        self.writing: set[object] = set()
        log.replicas.append(self)

    @property
    def role(self) -> StoreRole:
        return StoreRole.WRITER if self.claims else StoreRole.REPLICA

    @property
    def state(self) -> Any:
        return self.log.entries[self.index - 1].state if self.index else self.log.initial

    @property
    def revision(self) -> Revision:
        return self.log.entries[self.index - 1].revision if self.index else Revision(self.topic, (0,))

    async def wait_for(self, revision: Revision) -> None:
        """Wait for the revision: replicas lag for milliseconds; a caller that would wait longer has to retry."""

    async def barrier(self) -> Revision:
        return self.revision

    async def write(self, decide: Callable[[Any], WriteDecision[Any]]) -> Any:
        """Decide, write, answer with the applied result; a fault may hide the answer."""
        mine, writing = object(), self.writing
        writing.add(mine)
        try:
            return await self._write(decide)
        finally:
            writing.discard(mine)

    async def _write(self, decide: Callable[[Any], WriteDecision[Any]]) -> Any:
        term = self.term
        if self.slow_ms:
            await self._pause(self.world.rng.randint(0, self.slow_ms))
        while self.world.broker.away:
            await self._without_broker(decide)
        # Writes that waited through a change of writers fail with it.
        if not self.claims or self.term != term:
            raise NotWriter(f"{self.name} does not write")
        if self.log.writer is not self:
            self.learn()
            raise WriterFenced("another replica took over")
        self.advance(len(self.log.entries))
        decision = decide(self.state)
        unsure = self.world.chance(0.01)
        if unsure and self.world.chance(0.5):
            raise _unknown()
        if decision.records:
            self.log.append(decision)
            self.world.checker.stored(self.log)
            self.advance(len(self.log.entries))
            self.tell_others()
        if unsure:
            raise _unknown()
        return decision.result(self.state, self.revision)

    async def _pause(self, ms: int) -> None:
        pause = Answer()
        self.after(ms, pause.set)
        await pause

    async def _without_broker(self, decide: Callable[[Any], WriteDecision[Any]]) -> None:
        """Handle a commit without a broker. A commit in flight when the outage began may have been the broker's last
        action; a later one is retried until its caller stops waiting. Returns when the broker is back in time.
        """
        world = self.world
        on_its_way = world.now - world.broker.left_ms < _ON_ITS_WAY_MS and self.claims and self.log.writer is self
        if on_its_way and self.index == len(self.log.entries) and world.rng.random() < 0.5:
            self.log.append(decide(self.state))
            world.checker.stored(self.log)
            self.advance(len(self.log.entries))
            self.tell_others()
        elif world.rng.random() < 0.5:
            back = Answer()
            world.broker.when_there(back.set)
            self.after(world.rng.randint(500, _GIVES_UP_MS), lambda: back.set(error=_unknown()))
            await back
            return
        else:
            await self._pause(world.rng.randint(500, _GIVES_UP_MS))
        raise _unknown()

    def tell_others(self) -> None:
        """The other replicas read it a little later, cut anywhere."""
        end = len(self.log.entries)
        for other in self.log.replicas:
            if other is not self and other.alive:
                if self.world.network.unruly and self.world.rng.random() < 0.2:
                    middle = self.world.rng.randint(other.index, end)
                    other.after(self.world.rng.randint(0, 20), lambda other=other, to=middle: other.advance(to))
                other.after(self._lag_ms(), lambda other=other: other.advance(end))

    def advance(self, index: int) -> None:
        """Read up to `index`, and notify the watchers."""
        if not self.world.broker.when_there(partial(self.take, self.life, partial(self.advance, index))):
            return
        entries = self.log.entries
        while self.index < min(index, len(entries)):
            self.index += 1
            for watcher in list(self.watchers):
                watcher(entries[self.index - 1])

    def learn(self) -> None:
        """Deliver the election's result to this replica."""
        writes = self.log.writer is self
        if writes != self.claims:
            self.term += 1
        if writes and not self.claims:
            self.advance(len(self.log.entries))
            self.claims = True
            self.gained()
        elif not writes and self.claims:
            self.claims = False
            self.lost()

    def gained(self) -> None:
        """This replica becomes the writer."""

    def lost(self) -> None:
        """This replica is no longer the writer."""

    def begin(self) -> None:
        """Start the process: it replays the topic."""
        self.start()
        self.claims = False
        self.watchers = []
        self.writing = set()
        self.index = len(self.log.entries)

    def watch(self, stream: Stream, watcher: Callable[[Entry], None]) -> None:
        """Call `watcher` for every record from now on, until the stream ends."""
        self.watchers.append(watcher)

        def over(_: object) -> None:
            if watcher in self.watchers:
                self.watchers.remove(watcher)

        stream.far.over = over

    def position_of(self, revision: Revision) -> int | None:
        """The index after the last entry that `revision` includes; None when this replica is not there yet."""
        if revision.next_offsets[0] > self.log.revision.next_offsets[0]:
            return None
        low, high = 0, len(self.log.entries)
        while low < high:
            middle = (low + high) // 2
            if self.log.entries[middle].revision.next_offsets[0] <= revision.next_offsets[0]:
                low = middle + 1
            else:
                high = middle
        return low if low <= self.index else None

    def _lag_ms(self) -> int:
        if not self.world.network.unruly:
            return 5
        return self.world.rng.randint(1, 40) if self.world.rng.random() < 0.95 else self.world.rng.randint(40, 2_000)
