"""Fleet part of a herder's memory: the workers of this reign, their sessions, and what was learned of their plugins.

Owns who is a member, who speaks on which session, and the windows of time in which more workers may join or leave. Does
not own adoption and loss (`handlers.worker_sessions`), draining (`workers.drains`), nor what workers hold
(`inventory`).

Invariants: a session belongs to one member, which has it as its own. Only which classes are sources and which sinks
outlives the reign.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.herder.state.memory.entities import Member
from herdmesh.herder.state.memory.leadership import Leadership
from herdmesh.herder.state.memory.step import Step
from herdmesh.herder.state.model import Plugin, RestartNote
from herdmesh.herder.state.model.instructions import CloseSession, Send
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.messages import Heartbeat, Message

DEPARTED_MAX = 100
#: a thousand restarts of workers under one leader.
LEFT_MAX = 1_000


class Window:
    """A time in which more of a kind may follow the first: each lengthens it, up to three times its length in all."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._since_ms = 0
        self._until_ms = 0

    @property
    def is_open(self) -> bool:
        """True until its time is over."""
        return self._step.now < self._until_ms

    @property
    def until_ms(self) -> int:
        """When its time is over, or was."""
        return self._until_ms

    def open(self, wait_ms: int) -> None:
        """The first of a kind came: wait for more."""
        self._since_ms, self._until_ms = self._step.now, self._step.now + wait_ms

    def lengthen(self, wait_ms: int) -> None:
        """Another came."""
        self._until_ms = min(self._step.now + wait_ms, self._since_ms + 3 * wait_ms)

    def close(self) -> bool:
        """Forget a window whose time is over. True when there was one."""
        if not self._until_ms or self.is_open:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget the window."""
        self._since_ms = self._until_ms = 0


class Fleet:
    """One per herder."""

    def __init__(self, step: Step, leadership: Leadership) -> None:
        self._step = step
        self._leadership = leadership
        self._members: dict[str, Member] = {}
        #: by worker id, those that dialled in to this leader and were not lost.
        self.members: Mapping[str, Member] = self._members
        self._sessions: dict[int, str] = {}
        #: the last life of workers that drained and then went, by worker, oldest first.
        self._departed: dict[str, Member] = {}
        #: lives of workers that said they leave: they never take work again. Oldest first.
        self._left: dict[str, None] = {}
        #: lost workers whose units are kept for them, and until when.
        self._awaited: dict[str, int] = {}
        #: the versions of each transformation, predicate and converter that a worker reported to this leader.
        self._steps_reported: dict[str, set[str]] = {}
        #: the connector classes that workers reported, by class and alias. What a class is outlives any reign.
        self._connectors_reported: dict[str, Plugin] = {}
        #: the first workers join, and nothing starts on them meanwhile.
        self.assembling = Window(step)
        #: more workers may say that they leave, and their units run on where they are meanwhile.
        self.leaving = Window(step)
        self._unrest_ms = 0
        self._heartbeat_ms = 0

    def end_leadership(self) -> None:
        """Forget all workers of the reign."""
        self._members.clear()
        self._sessions.clear()
        self._departed.clear()
        self._left.clear()
        self._awaited.clear()
        self._steps_reported.clear()
        self.assembling.clear()
        self.leaving.clear()
        self._unrest_ms = self._step.now

    # --- messages

    def send(self, session: int, message: Message, note: RestartNote | None = None) -> None:
        """Send over a session, under the epoch."""
        self._step.emit(Send(session, self._leadership.epoch, message, note))

    def send_to(self, worker_id: str, message: Message, note: RestartNote | None = None) -> bool:
        """Send to a worker if its stream is open; its next hello makes up for what it misses."""
        member = self._members.get(worker_id)
        if member is None or member.session is None:
            return False
        self.send(member.session, message, note)
        return True

    def send_heartbeats(self) -> None:
        """Tell every worker that we live, where the last time is long enough ago."""
        if self._step.now - self._heartbeat_ms >= self._step.rules.heartbeat_ms:
            self._heartbeat_ms = self._step.now
            for session in self._sessions:
                self.send(session, Heartbeat())

    def begin_heartbeats(self) -> None:
        """The reign begins: the first heartbeat comes one interval later."""
        self._heartbeat_ms = self._step.now

    # --- members and sessions

    def connected(self) -> list[Member]:
        """The members whose stream is open."""
        return [member for member in self._members.values() if member.session is not None]

    def takers(self) -> list[Member]:
        """The members that take work."""
        return [member for member in self._members.values() if member.takes_work]

    def member_of(self, session: int) -> Member | None:
        """Who speaks on a session; None for one that was replaced or closed."""
        worker_id = self._sessions.get(session)
        return self._members.get(worker_id) if worker_id is not None else None

    def join(self, member: Member, session: int) -> None:
        """A worker said hello: it is a member, in place of any earlier one of its id."""
        self._members[member.worker_id] = member
        self._departed.pop(member.worker_id, None)
        self._sessions[session] = member.worker_id
        self._awaited.pop(member.worker_id, None)

    def end_session(self, member: Member) -> int | None:
        """Nothing goes over the worker's session any more. Returns its number; None = it had none."""
        session, member.session = member.session, None
        if session is not None:
            self._sessions.pop(session, None)
        return session

    def close_sessions(self, error: HerdmeshError) -> None:
        """End the streams of all workers."""
        for session in self._sessions:
            self._step.emit(CloseSession(session, error))

    def remove(self, worker_id: str) -> None:
        """A worker is lost, or has left."""
        self._members.pop(worker_id, None)

    # --- workers that left

    @property
    def departed(self) -> Mapping[str, Member]:
        """The last life of workers that drained and then went, by worker, oldest first."""
        return self._departed

    def add_departed(self, member: Member) -> None:
        """A worker drained and went."""
        self._departed[member.worker_id] = member
        while len(self._departed) > DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]

    def has_left(self, incarnation: str) -> bool:
        """True when that life of a worker said that it leaves."""
        return incarnation in self._left

    def add_left(self, incarnation: str) -> None:
        """That life of a worker leaves."""
        self._left.pop(incarnation, None)
        self._left[incarnation] = None
        while len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    # --- workers that may return

    def wait_for_return(self, worker_id: str, until_ms: int) -> None:
        """A worker was lost: its units are kept for it until then."""
        self._awaited[worker_id] = until_ms

    @property
    def awaits_return(self) -> bool:
        """True while units are kept for a lost worker."""
        return bool(self._awaited)

    def stop_waiting(self) -> bool:
        """Wait no longer for workers whose time is over. True when there were any."""
        over = [worker_id for worker_id, until_ms in self._awaited.items() if self._step.now >= until_ms]
        for worker_id in over:
            del self._awaited[worker_id]
        return bool(over)

    # --- unrest

    @property
    def unrest_ms(self) -> int:
        """When a worker last came or went, or a unit was placed because of that: see `balance.py`."""
        return self._unrest_ms

    def note_unrest(self) -> None:
        """A worker comes or goes, or a unit is placed because of that."""
        self._unrest_ms = self._step.now

    # --- plugins

    def note_plugins(self, member: Member) -> None:
        """Remember what a worker can load for when it is away."""
        self._connectors_reported.update(member.connectors)
        for name, versions in member.step_versions.items():
            self._steps_reported.setdefault(name, set()).update(versions)

    @property
    def steps_reported(self) -> Mapping[str, set[str]]:
        """The versions of each transformation, predicate and converter that a worker reported to this leader."""
        return self._steps_reported

    def reported_connector(self, class_name: str) -> Plugin | None:
        """What a worker once reported of a connector class, by class or alias."""
        return self._connectors_reported.get(class_name)
