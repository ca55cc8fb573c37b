"""Who is alive: the table of worker leases, and what it does to a status that is read.

Owns leases and the join of status and lease. Leases are not in the topic and decide no safety (the fence does): they
make a lost worker visible soon.

How a lease moves: none -> live (heartbeat, or granted by a new writer to a worker the topic shows RUNNING) -> live
(heartbeat) -> expired (silence, or a leaving heartbeat) -> live again (heartbeat of the same process, or of a new one)
-> forgotten. A worker id is an address that one process at a time can listen on: the last heartbeat says whose it is.

Invariant: only the writer's table moves by itself; a replica's is what the writer last told (`Relayed`) and otherwise
stands still. While nobody told anything (`known` is False) statuses are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from herdmesh.connect.status_topic import State
from herdmesh.statusstore.state.statuses import AnyStatus, StatusState, StoredStatus

LEASE_MS_MIN: Final = 500
LEASE_MS_MAX: Final = 60_000
#: An expired lease is shown this long before it is dropped from the table.
FORGET_MS: Final = 600_000
#: A tick that comes this much too late means that this process itself was stopped, not that the workers were silent.
STALL_MS: Final = 1_000

LEASE_EXPIRED: Final = "LEASE_EXPIRED"


@dataclass(frozen=True, slots=True)
class Lease:
    """One worker's lease. `expires_ms` by the clock `handle` is given."""

    worker_id: str
    incarnation: str
    expires_ms: int
    live: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker lives. `leaving`: it stops cleanly and will not come back as this process."""

    worker_id: str
    incarnation: str
    lease_ms: int
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker wrote a status, so it lives; says nothing against a live lease of another process of that worker id."""

    worker_id: str
    incarnation: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class BecameWriter:
    """This replica writes from now on; `workers` (worker id -> incarnation) are those the topic shows RUNNING."""

    workers: Mapping[str, str]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class StoppedWriting:
    """This replica writes no more: its table stands still."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """The writer's whole table, as a replica received it."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """The time asked for by `WakeAt` has come."""


Event = Heartbeat | Heard | BecameWriter | StoppedWriting | Relayed | Tick


@dataclass(frozen=True, slots=True)
class Publish:
    """Watchers must be sent the table: a lease appeared, ended, came back or is of another process now."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this time; replaces an earlier wish."""

    at_ms: int


Instruction = Publish | WakeAt


class LeaseTable:
    """All leases. `handle` is the only mutator."""

    def __init__(self) -> None:
        self.known = False
        self._leases: dict[str, Lease] = {}
        self._writing = False
        self._lease_ms = 0
        self._wake_ms: int | None = None

    def leases(self) -> list[Lease]:
        """Sorted by worker id."""
        return [self._leases[worker_id] for worker_id in sorted(self._leases)]

    def get(self, worker_id: str) -> Lease | None:
        return self._leases.get(worker_id)

    def effective(self, status: AnyStatus) -> tuple[State, str]:
        """State and reason as a reader shall see them. A status of no known process (Java's) is shown as it is."""
        if status.state is not State.RUNNING or not status.worker_incarnation or not self.known:
            return status.state, ""
        lease = self._leases.get(status.worker_id)
        if lease is not None and lease.live and lease.incarnation == status.worker_incarnation:
            return status.state, ""
        return State.UNASSIGNED, LEASE_EXPIRED

    def handle(self, event: Event, now_ms: int) -> list[Instruction]:
        """Apply one event."""
        changed = False
        match event:
            case Heartbeat():
                changed = self._heartbeat(event, now_ms)
            case Heard():
                changed = self._heard(event, now_ms)
            case BecameWriter():
                changed = self._became_writer(event, now_ms)
            case StoppedWriting():
                self._writing = False
                self._wake_ms = None
            case Relayed():
                changed = self._relayed(event)
            case Tick():
                changed = self._tick(now_ms)
        instructions: list[Instruction] = [Publish()] if changed else []
        wake_ms = self._next_wake_ms()
        if wake_ms is not None and (self._wake_ms is None or wake_ms < self._wake_ms):
            self._wake_ms = wake_ms
            instructions.append(WakeAt(wake_ms))
        return instructions

    def _heartbeat(self, event: Heartbeat, now_ms: int) -> bool:
        old = self._leases.get(event.worker_id)
        expires_ms = now_ms if event.leaving else now_ms + event.lease_ms
        if old is not None and old.live and old.incarnation == event.incarnation and not event.leaving:
            expires_ms = max(expires_ms, old.expires_ms)
        new = Lease(event.worker_id, event.incarnation, expires_ms, not event.leaving)
        self._leases[event.worker_id] = new
        return old is None or (old.live, old.incarnation) != (new.live, new.incarnation)

    def _heard(self, event: Heard, now_ms: int) -> bool:
        old = self._leases.get(event.worker_id)
        if old is not None and old.live and old.incarnation != event.incarnation:
            return False
        return self._heartbeat(Heartbeat(event.worker_id, event.incarnation, event.lease_ms), now_ms)

    def _became_writer(self, event: BecameWriter, now_ms: int) -> bool:
        # Heartbeats since the last writer fell silent went nowhere, so everyone known gets one full lease.
        self._writing = True
        self._lease_ms = event.lease_ms
        self.known = True
        expires_ms = now_ms + event.lease_ms
        self._leases = {
            worker_id: replace(lease, expires_ms=expires_ms if lease.live else now_ms)
            for worker_id, lease in self._leases.items()
        }
        for worker_id, incarnation in event.workers.items():
            if worker_id not in self._leases:
                self._leases[worker_id] = Lease(worker_id, incarnation, expires_ms, live=True)
        return True

    def _relayed(self, event: Relayed) -> bool:
        if self._writing:
            return False  # the writer's own table wins over what an earlier writer told
        self.known = True
        self._leases = {lease.worker_id: lease for lease in event.leases}
        return True

    def _tick(self, now_ms: int) -> bool:
        if not self._writing:
            return False
        # After a stall everyone alive gets one full lease, as from a new writer: heartbeats waited at our door.
        stalled = self._wake_ms is not None and now_ms - self._wake_ms > STALL_MS
        self._wake_ms = None
        changed = False
        kept: dict[str, Lease] = {}
        for lease in self._leases.values():
            expires_ms = now_ms + self._lease_ms if stalled and lease.live else lease.expires_ms
            live = lease.live and expires_ms > now_ms
            if not live and not lease.live and expires_ms + FORGET_MS <= now_ms:
                changed = True
                continue
            changed = changed or live != lease.live
            kept[lease.worker_id] = replace(lease, expires_ms=expires_ms, live=live)
        self._leases = kept
        return changed

    def _next_wake_ms(self) -> int | None:
        if not self._writing:
            return None
        moments = [lease.expires_ms + (0 if lease.live else FORGET_MS) for lease in self._leases.values()]
        return min(moments, default=None)


def running_workers(state: StatusState) -> dict[str, str]:
    """Worker id -> process, of everything the topic shows RUNNING under a process of ours; the last to write wins."""
    newest: dict[str, tuple[int, str]] = {}
    for stored in _all(state):
        status = stored.status
        if status.state is State.RUNNING and status.worker_incarnation:
            seen = (stored.timestamp_ms, status.worker_incarnation)
            newest[status.worker_id] = max(newest.get(status.worker_id, seen), seen)
    return {worker_id: incarnation for worker_id, (_, incarnation) in newest.items()}


def _all(state: StatusState) -> Iterable[StoredStatus]:
    yield from state.connectors.values()
    for tasks in state.tasks.values():
        yield from tasks.values()
