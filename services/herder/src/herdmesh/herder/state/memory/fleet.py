"""Fleet part of a herder's memory: the workers of this leadership, their sessions, and their reported plugins.

Owns which workers are members, which member uses which session, and the windows of time in which more workers may join
or leave. Does not own adoption and loss (`handlers.worker_sessions`), draining (`workers.drains`), nor the units on
workers (`inventory`).

Invariants: a session belongs to one member, whose `session` is its number. Only the types of connector classes (source
or sink) outlive the leadership.
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
    """A wait for more events after the first of a kind: each further one lengthens it, up to three times its length."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._since_ms = 0
        self._until_ms = 0

    @property
    def is_open(self) -> bool:
        """True until the window ends."""
        return self._step.now < self._until_ms

    @property
    def until_ms(self) -> int:
        """The end of the window, past or future."""
        return self._until_ms

    def open(self, wait_ms: int) -> None:
        """The first event of the kind came: wait for more."""
        self._since_ms, self._until_ms = self._step.now, self._step.now + wait_ms

    def lengthen(self, wait_ms: int) -> None:
        """Another event came."""
        self._until_ms = min(self._step.now + wait_ms, self._since_ms + 3 * wait_ms)

    def close(self) -> bool:
        """Clear a window that has ended. True when there was one."""
        if not self._until_ms or self.is_open:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Clear the window."""
        self._since_ms = self._until_ms = 0


class Fleet:
    """Workers of one herder."""

    def __init__(self, step: Step, leadership: Leadership) -> None:
        self._step = step
        self._leadership = leadership
        self._members: dict[str, Member] = {}
        #: by worker id, the workers that dialled in to this leader and were not lost.
        self.members: Mapping[str, Member] = self._members
        self._sessions: dict[int, str] = {}
        #: the last incarnation of workers that drained and then left, by worker id, oldest first.
        self._departed: dict[str, Member] = {}
        #: incarnations that announced that they leave: they never get work again. Oldest first.
        self._left: dict[str, None] = {}
        #: lost workers whose units are kept for them, and until when.
        self._awaited: dict[str, int] = {}
        #: the versions of each transformation, predicate and converter that a worker reported to this leader.
        self._steps_reported: dict[str, set[str]] = {}
        #: the connector classes that workers reported, by class and alias. They stay valid under any leader.
        self._connectors_reported: dict[str, Plugin] = {}
        #: while open, the first workers join and nothing starts on them.
        self.assembling = Window(step)
        #: while open, more workers may announce that they leave, and their units run on where they are.
        self.leaving = Window(step)
        self._unrest_ms = 0
        self._heartbeat_ms = 0

    def end_leadership(self) -> None:
        """Forget all workers."""
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
        """Send to a worker if its stream is open; after a missed message its next hello brings the state up to date."""
        member = self._members.get(worker_id)
        if member is None or member.session is None:
            return False
        self.send(member.session, message, note)
        return True

    def send_heartbeats(self) -> None:
        """Send every worker a heartbeat, if the interval has passed."""
        if self._step.now - self._heartbeat_ms >= self._step.rules.heartbeat_ms:
            self._heartbeat_ms = self._step.now
            for session in self._sessions:
                self.send(session, Heartbeat())

    def begin_heartbeats(self) -> None:
        """The leadership begins: the first heartbeat comes one interval later."""
        self._heartbeat_ms = self._step.now

    # --- members and sessions

    def connected(self) -> list[Member]:
        """The members whose stream is open."""
        return [member for member in self._members.values() if member.session is not None]

    def takers(self) -> list[Member]:
        """The members that take work."""
        return [member for member in self._members.values() if member.takes_work]

    def member_of(self, session: int) -> Member | None:
        """The member of a session; None for one that was replaced or closed."""
        worker_id = self._sessions.get(session)
        return self._members.get(worker_id) if worker_id is not None else None

    def join(self, member: Member, session: int) -> None:
        """A worker's hello: it becomes a member, in place of any earlier one of its id."""
        self._members[member.worker_id] = member
        self._departed.pop(member.worker_id, None)
        self._sessions[session] = member.worker_id
        self._awaited.pop(member.worker_id, None)

    def end_session(self, member: Member) -> int | None:
        """Close the worker's session. Returns its number; None = it had none."""
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
        """The last incarnation of workers that drained and then left, by worker id, oldest first."""
        return self._departed

    def add_departed(self, member: Member) -> None:
        """A worker drained and left."""
        self._departed[member.worker_id] = member
        while len(self._departed) > DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]

    def has_left(self, incarnation: str) -> bool:
        """True when that incarnation announced that it leaves."""
        return incarnation in self._left

    def add_left(self, incarnation: str) -> None:
        """That incarnation leaves."""
        self._left.pop(incarnation, None)
        self._left[incarnation] = None
        while len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    # --- workers that may return

    def wait_for_return(self, worker_id: str, until_ms: int) -> None:
        """A worker was lost: keep its units for it until then."""
        self._awaited[worker_id] = until_ms

    @property
    def awaits_return(self) -> bool:
        """True while units are kept for a lost worker."""
        return bool(self._awaited)

    def stop_waiting(self) -> bool:
        """End the wait for workers whose time is over. True when there were any."""
        over = [worker_id for worker_id, until_ms in self._awaited.items() if self._step.now >= until_ms]
        for worker_id in over:
            del self._awaited[worker_id]
        return bool(over)

    # --- unrest

    @property
    def unrest_ms(self) -> int:
        """When a worker last joined or left, or a unit was placed because of that: see `balance.py`."""
        return self._unrest_ms

    def note_unrest(self) -> None:
        """A worker joins or leaves, or a unit is placed because of that."""
        self._unrest_ms = self._step.now

    # --- plugins

    def note_plugins(self, member: Member) -> None:
        """Remember the plugins of a worker for the time when it is gone."""
        self._connectors_reported.update(member.connectors)
        for name, versions in member.step_versions.items():
            self._steps_reported.setdefault(name, set()).update(versions)

    @property
    def steps_reported(self) -> Mapping[str, set[str]]:
        """The versions of each transformation, predicate and converter that a worker reported to this leader."""
        return self._steps_reported

    def reported_connector(self, class_name: str) -> Plugin | None:
        """The latest report about a connector class, by class or alias."""
        return self._connectors_reported.get(class_name)
