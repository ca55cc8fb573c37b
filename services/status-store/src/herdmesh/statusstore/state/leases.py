"""The table of worker leases, and its effect on a status that is read.

Owns leases and the join of status and lease. Leases are not in the topic and decide no safety (the fence does): they
make a lost worker visible soon.

Life of a lease: none -> live (heartbeat, or granted by a new writer to a worker that the topic shows RUNNING) -> live
(heartbeat) -> expired (silence, or a heartbeat that announces leaving) -> live again (heartbeat of the same process
unless it left, or of a new one) -> discarded. A worker id is an address that one process at a time can listen on: the
first heartbeat of a new process takes the lease over, and a replaced process gets it back only when its successor's
lease has expired.

Life of the table: while this replica writes, heartbeats and time change it. While it does not write, it is the table
that the writer last sent (`Relayed`, repeated every `PULSE_MS`), unchanged in between, for `SILENT_MS` at most. After
that no lease counts until a writer sends a table again, so that a replica that lost its writer does not show dead
workers for ever. Before the first table (`known` is False) statuses are shown without a join.

Invariant: times are those of the clock that `handle` is given, which never jumps; `Publish` is returned only when a
reader would see a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from herdmesh.connect.topics import State
from herdmesh.statusstore.state.statuses import AnyStatus, StatusState, StoredStatus

LEASE_MS_MIN: Final = 500
LEASE_MS_MAX: Final = 60_000
#: Time for which an expired lease is shown before it is discarded from the table.
FORGET_MS: Final = 600_000
#: A tick that is late by more than this means that this process was stopped, not that the workers were silent.
STALL_MS: Final = 1_000
#: Interval at which the writer repeats its table to other replicas, changed or not.
PULSE_MS: Final = 1_000
#: Time for which a replica trusts its last table: a take-over after kill -9 ends within 10 s, and the relay finds it in
#: 2 s.
SILENT_MS: Final = 12_000
#: Number of replaced processes kept for one worker id.
_REPLACED_KEPT: Final = 4

LEASE_EXPIRED: Final = "LEASE_EXPIRED"
LEASE_UNKNOWN: Final = "LEASE_UNKNOWN"


@dataclass(frozen=True, slots=True)
class Lease:
    """One worker's lease. `expires_ms` is by the clock that `handle` is given."""

    worker_id: str
    incarnation: str
    expires_ms: int
    live: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of a worker. `leaving`: the process stops cleanly and will not come back."""

    worker_id: str
    incarnation: str
    lease_ms: int
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """A worker wrote a status, so it is alive; does not replace a live lease of another process of that worker id."""

    worker_id: str
    incarnation: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class BecameWriter:
    """This replica became the writer; `workers` (worker id -> incarnation) are those that the topic shows RUNNING."""

    workers: Mapping[str, str]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class StoppedWriting:
    """This replica is not the writer, or no longer: from now on its table is the one that the writer sends."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """The writer's whole table, as a replica received it."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """The time requested by `WakeAt` has come."""


Event = Heartbeat | StatusWritten | BecameWriter | StoppedWriting | Relayed | Tick


@dataclass(frozen=True, slots=True)
class Publish:
    """Send the table to the watchers: a lease appeared, ended, came back or changed its process."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this time; replaces an earlier `WakeAt`."""

    at_ms: int


Instruction = Publish | WakeAt


@dataclass(slots=True)
class _Entry:
    """The entry of one worker id: its lease, whether that process announced that it leaves, and the processes it
    replaced.
    """

    lease: Lease
    left: bool = False
    replaced: tuple[str, ...] = ()

    @property
    def due_ms(self) -> int:
        """The time at which silence changes the entry: the lease ends, or is discarded."""
        return self.lease.expires_ms + (0 if self.lease.live else FORGET_MS)


class LeaseTable:
    """All leases. `handle` is the only mutator."""

    def __init__(self) -> None:
        self.known = False
        self.writing = False
        self._entries: dict[str, _Entry] = {}
        self._lease_ms = 0
        self._told_ms: int | None = (
            None  # while not writing: the time of the writer's last table, or of the beginning of the wait
        )
        self._silent = False
        self._wake_ms: int | None = None

    def leases(self) -> list[Lease]:
        """The leases for readers, sorted by worker id."""
        return [self._seen(self._entries[worker_id].lease) for worker_id in sorted(self._entries)]

    def get(self, worker_id: str) -> Lease | None:
        entry = self._entries.get(worker_id)
        return None if entry is None else self._seen(entry.lease)

    def effective(self, status: AnyStatus) -> tuple[State, str]:
        """State and reason for a reader. A status without a process (Java's) is shown unchanged."""
        if status.state is not State.RUNNING or not status.worker_incarnation or not self.known:
            return status.state, ""
        if self._silent:
            return State.UNASSIGNED, LEASE_UNKNOWN
        entry = None if status.worker_id is None else self._entries.get(status.worker_id)
        if entry is not None and entry.lease.live and entry.lease.incarnation == status.worker_incarnation:
            return status.state, ""
        return State.UNASSIGNED, LEASE_EXPIRED

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """Apply one event."""
        changed = False
        match event:
            case Heartbeat():
                changed = self._heartbeat(event, now_ms)
            case StatusWritten():
                changed = self._heard(event, now_ms)
            case BecameWriter():
                changed = self._became_writer(event, now_ms)
            case StoppedWriting():
                self._stopped_writing(now_ms)
            case Relayed():
                changed = self._relayed(event, now_ms)
            case Tick():
                changed = self._tick(now_ms)
            case _:
                assert_never(event)
        instructions: list[Instruction] = [Publish()] if changed else []
        due_ms = self._due_ms(event)
        if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
            self._wake_ms = due_ms
            instructions.append(WakeAt(due_ms))
        return instructions

    # Workers.

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> bool:
        entry = self._entries.get(event.worker_id)
        if event.leaving:
            return entry is not None and entry.lease.incarnation == event.incarnation and self._leave(entry, now_ms)
        expires_ms = now_ms + event.lease_ms
        if entry is None:
            self._entries[event.worker_id] = _Entry(Lease(event.worker_id, event.incarnation, expires_ms, live=True))
            return True
        old = entry.lease
        if old.incarnation == event.incarnation:
            if entry.left:
                return False  # sent before the announcement that it leaves, received after it
            entry.lease = replace(old, expires_ms=max(expires_ms, old.expires_ms), live=True)
            return not old.live
        if old.live and event.incarnation in entry.replaced:
            return False
        entry.lease = Lease(event.worker_id, event.incarnation, expires_ms, live=True)
        entry.left = False
        entry.replaced = (*entry.replaced, old.incarnation)[-_REPLACED_KEPT:]
        return True

    def _leave(self, entry: _Entry, now_ms: int) -> bool:
        was_live = entry.lease.live
        entry.lease = replace(entry.lease, expires_ms=now_ms, live=False)
        entry.left = True
        return was_live

    def _heard(self, event: StatusWritten, now_ms: int) -> bool:
        entry = self._entries.get(event.worker_id)
        if entry is not None and entry.lease.live and entry.lease.incarnation != event.incarnation:
            return False
        return self._heartbeat(Heartbeat(event.worker_id, event.incarnation, event.lease_ms), now_ms)

    # Roles.

    def _became_writer(self, event: BecameWriter, now_ms: int) -> bool:
        # Heartbeats since the last writer fell silent were lost, so every known worker gets one full lease. A worker
        # that the last writer had declared dead stays dead.
        self.writing, self.known, self._silent = True, True, False
        self._lease_ms = event.lease_ms
        self._wake_ms = None
        expires_ms = now_ms + event.lease_ms
        for entry in self._entries.values():
            entry.lease = replace(entry.lease, expires_ms=expires_ms if entry.lease.live else now_ms)
        for worker_id, incarnation in event.workers.items():
            if worker_id not in self._entries:
                self._entries[worker_id] = _Entry(Lease(worker_id, incarnation, expires_ms, live=True))
        return True

    def _stopped_writing(self, now_ms: int) -> None:
        if self.writing or self._told_ms is None:
            self._told_ms = now_ms
            self._wake_ms = None
        self.writing = False

    def _relayed(self, event: Relayed, now_ms: int) -> bool:
        if self.writing:
            return False  # this writer's own table wins over a table of an earlier writer
        before = self._visible()
        self._told_ms = now_ms
        self.known, self._silent = True, False
        self._entries = {lease.worker_id: _Entry(lease) for lease in event.leases}
        return self._visible() != before

    def _visible(self) -> object:
        return self.known, self._silent, {(lease.worker_id, lease.incarnation, lease.live) for lease in self.leases()}

    # Time.

    def _tick(self, now_ms: int) -> bool:
        stalled = self._wake_ms is not None and now_ms - self._wake_ms > STALL_MS
        self._wake_ms = None
        if self.writing:
            return self._expire(now_ms, stalled)
        if self._told_ms is None or self._silent:
            return False
        if stalled:
            # The writer's messages of the meantime are still queued: allow two intervals for their arrival.
            self._told_ms = max(self._told_ms, now_ms - SILENT_MS + 2 * PULSE_MS)
        if now_ms - self._told_ms < SILENT_MS:
            return False
        self.known, self._silent = True, True
        return True

    def _expire(self, now_ms: int, stalled: bool) -> bool:
        # After a stall every live worker gets one full lease, as from a new writer: heartbeats are still queued.
        changed = False
        for worker_id, entry in list(self._entries.items()):
            if stalled and entry.lease.live:
                entry.lease = replace(entry.lease, expires_ms=now_ms + self._lease_ms)
            if entry.due_ms > now_ms:
                continue
            changed = True
            if entry.lease.live:
                entry.lease = replace(entry.lease, live=False)
            else:
                del self._entries[worker_id]
        return changed

    def _due_ms(self, event: Event) -> int | None:
        """The time at which `event` makes a `Tick` necessary. A heartbeat checks only its own lease: its cost must not
        grow with the number of workers.
        """
        if not self.writing:
            return None if self._told_ms is None or self._silent else self._told_ms + SILENT_MS
        if isinstance(event, Heartbeat | StatusWritten):
            entry = self._entries.get(event.worker_id)
            return None if entry is None else entry.due_ms
        return min((entry.due_ms for entry in self._entries.values()), default=None)

    def _seen(self, lease: Lease) -> Lease:
        return replace(lease, live=False) if self._silent else lease


def running_workers(state: StatusState) -> dict[str, str]:
    """Worker id -> process, of all statuses that the topic shows RUNNING under a process of ours; the latest write
    wins.
    """
    newest: dict[str, tuple[int, str]] = {}
    for stored in _all(state):
        status = stored.status
        if status.state is State.RUNNING and status.worker_incarnation and status.worker_id is not None:
            seen = (stored.timestamp_ms, status.worker_incarnation)
            newest[status.worker_id] = max(newest.get(status.worker_id, seen), seen)
    return {worker_id: incarnation for worker_id, (_, incarnation) in newest.items()}


def _all(state: StatusState) -> Iterable[StoredStatus]:
    yield from state.connectors.values()
    for tasks in state.tasks.values():
        yield from tasks.values()
