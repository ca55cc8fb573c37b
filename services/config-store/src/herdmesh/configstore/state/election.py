"""The election of the leading herder: candidates, heartbeats and leases in, instructions out.

Owns the decision who is granted the next epoch and when; writes nothing and reads no clock. Safety is not decided here:
an epoch is a durable record written by a fenced writer, and every write that needs it is checked against that record.
Leases only make a take-over quick.

A candidate is one stream. Transitions of the machine: FOLLOWING (not the writer) -> WAITING (an incumbent is stored,
its lease runs, it may come back) or OPEN (nobody leads) -> WRITING (an epoch record is in flight) -> LED -> OPEN ...;
anything -> FOLLOWING when another replica writes.

A fail-over of the store keeps the incumbent: for the new writer it is a leader whose stream broke. The herder that
comes back with its epoch in `held` continues to lead with it; no record is written and no task is affected.

A leader whose generations are almost used up requests the next block of its epoch with its heartbeats, until it is
granted one. The block is one more record under the same epoch; it changes nothing else of the leadership, whatever its
outcome.

Invariants: at most one epoch record and at most one block are in flight; a herder is told of an epoch or a block only
after its record was applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from herdmesh.configstore.state.changes import Leadership
from herdmesh.configstore.state.mutations import LeaderToken

LEASE_MS = 4_000
#: Maximum rest of the lease after the leader's stream broke or another replica took over. A live herder is back within
#: a second; a killed one is replaced after this time instead of after the whole lease. The herder counts in the same
#: way (its campaign).
RETURN_MS = 2_000
#: A pause of this process longer than this does not count against the herders, whose heartbeats could not arrive.
STALL_MS = 1_000
RETRY_MS = 500


@dataclass(frozen=True, slots=True)
class WriterGained:
    """This replica became the writer; `stored` is the leadership in the topic."""

    stored: Leadership | None


@dataclass(frozen=True, slots=True)
class WriterLost:
    """This replica is no longer the writer."""


@dataclass(frozen=True, slots=True)
class CandidateJoined:
    """A stream opened. `held` is the epoch that the herder claims to lead with."""

    session: int
    herder_id: str
    address: str
    held: LeaderToken | None


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A later message of a stream. `reserve_above` is the limit of generations that a leader knows and wants raised, 0
    = it has enough.
    """

    session: int
    reserve_above: int = 0


@dataclass(frozen=True, slots=True)
class CandidateLeft:
    """A stream ended. The herder may come back: its lease continues, for at most `RETURN_MS`."""

    session: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """A herder resigned from its epoch."""

    token: LeaderToken


@dataclass(frozen=True, slots=True)
class EpochWritten:
    """The epoch record requested for `session` was applied."""

    session: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class EpochNotWritten:
    """The epoch record was refused, or its outcome is unknown."""

    session: int


@dataclass(frozen=True, slots=True)
class BlockWritten:
    """The requested block is reserved, by this request or an earlier one."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class BlockNotWritten:
    """The requested block was refused, or its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Sent several times a second."""


Event = (
    WriterGained
    | WriterLost
    | CandidateJoined
    | HeartbeatReceived
    | CandidateLeft
    | Resigned
    | EpochWritten
    | EpochNotWritten
    | BlockWritten
    | BlockNotWritten
    | Tick
)


@dataclass(frozen=True, slots=True)
class WriteEpoch:
    """Write the next epoch for this candidate; the reply is EpochWritten or EpochNotWritten."""

    session: int
    leader_id: str
    leader_address: str


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """Reserve more generations than those below `above` for the leader of stream `session`; the reply is BlockWritten
    or BlockNotWritten.
    """

    session: int
    leader: LeaderToken
    above: int


@dataclass(frozen=True, slots=True)
class SendGranted:
    """Notify the stream that its herder leads."""

    session: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class SendFollowing:
    """Notify the stream of the current leader."""

    session: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Confirm that the lease was extended."""

    session: int


@dataclass(frozen=True, slots=True)
class SendReserved:
    """Notify the leader of more generations."""

    session: int
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class SendLost:
    """Notify the stream that its herder's epoch has ended."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndSession:
    """End the stream. With `not_writer` the herder looks for another replica; else a newer stream of it replaced this
    one.
    """

    session: int
    not_writer: bool


Message = SendGranted | SendFollowing | SendHeartbeat | SendReserved | SendLost
"""The messages to a stream."""
Instruction = WriteEpoch | WriteBlock | Message | EndSession


@dataclass(slots=True)
class _Candidate:
    session: int
    herder_id: str
    address: str
    heard_ms: int
    electable: bool = True


@dataclass(slots=True)
class _Incumbent:
    leadership: Leadership
    session: int | None
    lease_until_ms: int

    @property
    def token(self) -> LeaderToken:
        return LeaderToken(self.leadership.epoch, self.leadership.leader_id)


@dataclass(slots=True)
class Election:
    """The election's state machine. `handle` is its only mutator; `now_ms` is monotonic."""

    writer: bool = False
    _stored: Leadership | None = None
    #: an epoch that `_stored` does not have may have been written.
    _unsure: bool = False
    _incumbent: _Incumbent | None = None
    _writing: int | None = None
    _reserving: bool = False
    _retry_at_ms: int = 0
    _heard_of_time_ms: int | None = None
    # In order of joining: the one that waited longest is elected first.
    _candidates: dict[int, _Candidate] = field(default_factory=dict[int, _Candidate])

    @property
    def leader(self) -> Leadership | None:
        """The leadership whose lease runs, None while nobody leads."""
        return None if self._incumbent is None else self._incumbent.leadership

    def handle(self, event: Event, now_ms: int) -> Sequence[Instruction]:
        """Apply one event and return the instructions that follow from it."""
        self._forgive_stall(now_ms)
        instructions: list[Instruction] = []
        match event:
            case WriterGained():
                self._gain(event.stored, now_ms)
            case WriterLost():
                instructions += self._lose_writer()
            case CandidateJoined():
                instructions += self._expire(now_ms)
                instructions += self._join(event, now_ms)
            case HeartbeatReceived():
                instructions += self._expire(now_ms)
                instructions += self._hear(event, now_ms)
            case CandidateLeft():
                self._leave(event.session, now_ms)
            case Resigned():
                instructions += self._resign(event.token)
            case EpochWritten():
                instructions += self._install(event, now_ms)
            case EpochNotWritten():
                if self._writing == event.session:
                    self._writing, self._unsure = None, True
                    self._retry_at_ms = now_ms + RETRY_MS
            case BlockWritten():
                self._reserving = False
                instructions += self._extend(event.leadership)
            case BlockNotWritten():
                self._reserving = False
            case Tick():
                instructions += self._expire(now_ms)
            case _:
                assert_never(event)
        instructions += self._elect(now_ms)
        return instructions

    def _forgive_stall(self, now_ms: int) -> None:
        """Extend the leases by a pause of this process: the time of a pause does not count."""
        silent_ms = 0 if self._heard_of_time_ms is None else now_ms - self._heard_of_time_ms
        self._heard_of_time_ms = now_ms
        if silent_ms <= STALL_MS:
            return
        if self._incumbent is not None:
            self._incumbent.lease_until_ms += silent_ms
        for candidate in self._candidates.values():
            candidate.heard_ms += silent_ms

    def _gain(self, stored: Leadership | None, now_ms: int) -> None:
        self.writer = True
        self._stored, self._unsure = stored, False
        self._writing, self._reserving = None, False
        self._incumbent = None if stored is None else _Incumbent(stored, None, now_ms + RETURN_MS)

    def _lose_writer(self) -> Sequence[Instruction]:
        ended = [EndSession(session, not_writer=True) for session in self._candidates]
        self._candidates.clear()
        self.writer, self._incumbent, self._writing, self._stored = False, None, None, None
        return ended

    def _join(self, event: CandidateJoined, now_ms: int) -> Sequence[Instruction]:
        if not self.writer:
            return [EndSession(event.session, not_writer=True)]
        instructions: list[Instruction] = []
        for other in [one for one in self._candidates.values() if one.herder_id == event.herder_id]:
            self._leave(other.session, now_ms)
            instructions.append(EndSession(other.session, not_writer=False))
        self._candidates[event.session] = _Candidate(event.session, event.herder_id, event.address, now_ms)
        if self._takes_up_again(event):
            assert self._stored is not None
            self._incumbent = _Incumbent(self._stored, event.session, now_ms + LEASE_MS)
            return [*instructions, SendGranted(event.session, self._stored)]
        incumbent = self._incumbent
        if incumbent is not None and incumbent.leadership.leader_id == event.herder_id:
            self._incumbent = None  # it is the incumbent and does not claim its epoch: it has resigned
        elif incumbent is not None:
            instructions.append(SendFollowing(event.session, incumbent.leadership))
        return instructions

    def _takes_up_again(self, event: CandidateJoined) -> bool:
        """True when certainly no epoch was granted since the one this candidate holds. False while another epoch is
        being written, and after a write of unknown outcome, which may be in the topic.
        """
        stored = self._stored
        return (
            stored is not None
            and self._writing is None
            and not self._unsure
            and event.held == LeaderToken(stored.epoch, stored.leader_id)
            and event.herder_id == stored.leader_id
        )

    def _hear(self, event: HeartbeatReceived, now_ms: int) -> Sequence[Instruction]:
        session = event.session
        candidate = self._candidates.get(session)
        if candidate is None:
            return []
        candidate.heard_ms = now_ms
        incumbent = self._incumbent
        if incumbent is None:
            return []
        if incumbent.session == session:
            incumbent.lease_until_ms = now_ms + LEASE_MS
            return [SendHeartbeat(session), *(self._reserve(incumbent, event) if event.reserve_above else ())]
        return [SendFollowing(session, incumbent.leadership)]

    def _reserve(self, incumbent: _Incumbent, event: HeartbeatReceived) -> Sequence[Instruction]:
        if incumbent.leadership.generation_limit > event.reserve_above:
            return [SendReserved(event.session, incumbent.leadership)]
        if self._reserving:
            return []
        self._reserving = True
        return [WriteBlock(event.session, incumbent.token, event.reserve_above)]

    def _extend(self, leadership: Leadership) -> Sequence[Instruction]:
        """Add the generations of a new block to the leadership; notify its leader if it still leads."""
        stored, incumbent = self._stored, self._incumbent
        if (
            stored is None
            or (stored.epoch, stored.leader_id) != (leadership.epoch, leadership.leader_id)
            or stored.generation_limit > leadership.generation_limit
        ):
            return []  # requested before this replica lost and regained its role, or before another epoch
        self._stored = leadership
        if incumbent is None:
            return []
        incumbent.leadership = leadership
        return [] if incumbent.session is None else [SendReserved(incumbent.session, leadership)]

    def _leave(self, session: int, now_ms: int) -> None:
        self._candidates.pop(session, None)
        incumbent = self._incumbent
        if incumbent is not None and incumbent.session == session:
            incumbent.session = None
            incumbent.lease_until_ms = min(incumbent.lease_until_ms, now_ms + RETURN_MS)

    def _resign(self, token: LeaderToken) -> Sequence[Instruction]:
        incumbent = self._incumbent
        if incumbent is None or incumbent.token != token:
            return []  # the epoch has already ended, which is what the caller wants
        return self._depose(incumbent, "resigned", electable=False)

    def _expire(self, now_ms: int) -> Sequence[Instruction]:
        incumbent = self._incumbent
        if incumbent is None or now_ms < incumbent.lease_until_ms:
            return []
        return self._depose(incumbent, f"no heartbeat for {LEASE_MS} ms", electable=True)

    def _depose(self, incumbent: _Incumbent, reason: str, *, electable: bool) -> Sequence[Instruction]:
        self._incumbent = None
        candidate = None if incumbent.session is None else self._candidates.pop(incumbent.session, None)
        if candidate is None:
            return []
        # To the end of the queue: others have waited longer.
        candidate.electable = electable
        self._candidates[candidate.session] = candidate
        return [SendLost(candidate.session, reason)]

    def _elect(self, now_ms: int) -> Sequence[Instruction]:
        if not self.writer or self._incumbent is not None or self._writing is not None or now_ms < self._retry_at_ms:
            return []
        for candidate in self._candidates.values():
            if candidate.electable and now_ms - candidate.heard_ms < LEASE_MS:
                self._writing = candidate.session
                return [WriteEpoch(candidate.session, candidate.herder_id, candidate.address)]
        return []

    def _install(self, event: EpochWritten, now_ms: int) -> Sequence[Instruction]:
        if self._writing != event.session:
            return []  # requested before this replica lost and regained its role; the topic has the result
        self._writing = None
        self._stored, self._unsure = event.leadership, False
        if event.session not in self._candidates:
            return []  # the candidate left before the grant; nobody leads with this epoch
        self._incumbent = _Incumbent(event.leadership, event.session, now_ms + LEASE_MS)
        told: list[Instruction] = [SendGranted(event.session, event.leadership)]
        others = [session for session in self._candidates if session != event.session]
        return [*told, *(SendFollowing(session, event.leadership) for session in others)]
