"""The runner of the leader election: campaign streams and time come in, epoch records and messages go out.

Owns the `Election` machine, its ticks, the outbox of each campaign stream and the writes in flight: one of an epoch and
one of a block of generations. The machine decides who leads (`state.election`); the servicer converts messages.

Invariant: everything runs on one event loop and the machine is entered only there, so it needs no lock.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.configstore.state.changes import Leadership
from herdmesh.configstore.state.config import ConfigState
from herdmesh.configstore.state.election import (
    BlockNotWritten,
    BlockWritten,
    CandidateJoined,
    CandidateLeft,
    Election,
    EndSession,
    EpochNotWritten,
    EpochWritten,
    Event,
    HeartbeatReceived,
    Instruction,
    Message,
    Resigned,
    SendFollowing,
    SendGranted,
    SendHeartbeat,
    SendLost,
    SendReserved,
    Tick,
    WriteBlock,
    WriteEpoch,
    WriterGained,
    WriterLost,
)
from herdmesh.configstore.state.mutations import LeaderToken
from herdmesh.configstore.state.writes import plan_block, plan_epoch
from herdmesh.rpc.errors import HerdmeshError, NotWriter, QueueFull, ShuttingDown, StaleEpoch
from herdmesh.topicstore import StoreRole, TopicStoreError, WriteDecision

TICK_MS = 250
_OUTBOX_MAX = 64
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Outbox:
    messages: asyncio.Queue[Message | HerdmeshError | None]

    def put(self, message: Message) -> None:
        if self.messages.qsize() < _OUTBOX_MAX - 1:
            self.messages.put_nowait(message)
        elif not self.messages.full():
            self.messages.put_nowait(
                QueueFull(f"{_OUTBOX_MAX} messages wait for this herder, which reads too slowly; campaign again")
            )

    def end(self, error: HerdmeshError | None) -> None:
        if self.messages.full():
            self.messages.get_nowait()
        self.messages.put_nowait(error)


class Campaigns:
    """All campaign streams of this replica. Nothing happens unless `run()` is running."""

    def __init__(self, store: ConfigTopicStore, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms
        self._election = Election()
        self._outboxes: dict[int, _Outbox] = {}
        self._numbers = itertools.count(1)
        self._writes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send ticks to the election until cancelled; then end every stream."""
        try:
            while True:
                await asyncio.sleep(TICK_MS / 1000)
                self._tell(Tick())
        finally:
            for write in self._writes:
                write.cancel()
            for outbox in self._outboxes.values():
                outbox.end(ShuttingDown("the config store stops"))

    def become(self, role: StoreRole) -> None:
        """Apply a new role of this replica: only the writer runs an election."""
        writes = role is StoreRole.WRITER
        if writes and not self._election.writer:
            self._tell(WriterGained(self._store.state.leadership))
        elif not writes and self._election.writer:
            self._tell(WriterLost())

    def join(self, herder_id: str, address: str, held: LeaderToken | None) -> int:
        """Add a candidate for leadership; returns the number of its session."""
        session = next(self._numbers)
        self._outboxes[session] = _Outbox(asyncio.Queue(_OUTBOX_MAX))
        self._tell(CandidateJoined(session, herder_id, address, held))
        return session

    def heartbeat(self, session: int, reserve_above: int = 0) -> None:
        """Record a heartbeat of this session's herder. A leader may request generations from `reserve_above` on (0 = no
        request).
        """
        self._tell(HeartbeatReceived(session, reserve_above))

    async def messages(self, session: int) -> AsyncIterator[Message]:
        """Yield the messages for the herder until `leave`. Raises `NotWriter`, `ShuttingDown`, `QueueFull`."""
        outbox = self._outboxes[session]
        while (message := await outbox.messages.get()) is not None:
            if isinstance(message, HerdmeshError):
                raise message
            yield message

    def leave(self, session: int) -> None:
        """Remove the session of a stream that ended."""
        outbox = self._outboxes.pop(session, None)
        if outbox is not None:
            outbox.end(None)
            self._tell(CandidateLeft(session))

    def resign(self, token: LeaderToken) -> None:
        """End the epoch of `token`: its leader resigned. Raises `NotWriter` where another replica runs the election."""
        if not self._election.writer:
            raise NotWriter("this replica does not run the election")
        self._tell(Resigned(token))

    def _tell(self, event: Event) -> None:
        for instruction in self._election.handle(event, self._clock_ms()):
            self._do(instruction)

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case WriteEpoch():
                self._begin(self._write_epoch(instruction))
            case WriteBlock():
                self._begin(self._write_block(instruction))
            case EndSession():
                reason = "this replica no longer writes" if instruction.not_writer else "a newer stream took its place"
                self._end(instruction.session, NotWriter(reason) if instruction.not_writer else None)
            case SendGranted(leadership=leadership):
                _log.info("leadership_granted", epoch=leadership.epoch, leader_id=leadership.leader_id)
                self._send(instruction)
            case SendReserved(leadership=leadership):
                _log.info("generations_reserved", epoch=leadership.epoch, limit=leadership.generation_limit)
                self._send(instruction)
            case SendLost(reason=reason):
                _log.info("leadership_lost", reason=reason)
                self._send(instruction)
            case SendFollowing() | SendHeartbeat():
                self._send(instruction)
            case _:
                assert_never(instruction)

    def _send(self, message: Message) -> None:
        outbox = self._outboxes.get(message.session)
        if outbox is not None:
            outbox.put(message)

    def _end(self, session: int, error: HerdmeshError | None) -> None:
        outbox = self._outboxes.get(session)
        if outbox is not None:
            outbox.end(error)

    def _begin(self, write: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write_epoch(self, wanted: WriteEpoch) -> None:
        def decide(state: ConfigState) -> WriteDecision[Leadership]:
            return WriteDecision(plan_epoch(state, wanted.leader_id, wanted.leader_address), _stored_leadership)

        try:
            leadership = await self._store.write(decide)
        except TopicStoreError as error:
            _log.warning("epoch_not_written", leader_id=wanted.leader_id, error=str(error))
            self._tell(EpochNotWritten(wanted.session))
        else:
            self._tell(EpochWritten(wanted.session, leadership))

    async def _write_block(self, wanted: WriteBlock) -> None:
        def decide(state: ConfigState) -> WriteDecision[Leadership]:
            return WriteDecision(plan_block(state, wanted.leader, wanted.above), _stored_leadership)

        try:
            leadership = await self._store.write(decide)
        except (TopicStoreError, StaleEpoch) as error:
            _log.warning("generations_not_reserved", epoch=wanted.leader.epoch, error=str(error))
            self._tell(BlockNotWritten())
        else:
            self._tell(BlockWritten(leadership))


def _stored_leadership(state: ConfigState, _revision: object) -> Leadership:
    assert state.leadership is not None  # the record of this result was an epoch record
    return state.leadership
