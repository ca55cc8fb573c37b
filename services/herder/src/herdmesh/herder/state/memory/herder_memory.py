"""Everything a herder holds in memory, and the few ways all concepts change it.

Owns the bookkeeping: who holds what, what is dirty, what to wake for, which instructions go out. Owns no decision:
those stand in the file of their concept.

Invariants:
- A member's `load` is always what the units say: every hold begins and ends through `take`, `stray` and `drop`.
- A generation is given out once, in rising order, and only from the blocks of the current epoch.
- Nothing here outlives the epoch but what was read from the stores, restarts that were begun, and which classes are
  sources and which sinks: a new leader starts from stores and hellos, and who leads again from what it did itself
  besides.
"""

from __future__ import annotations

import heapq
from enum import StrEnum, unique

from herdmesh.herder.state.memory.entities import Balance, Call, Command, Connector, Hold, Member, Op, OpKind, Unit
from herdmesh.herder.state.memory.traces import Traces
from herdmesh.herder.state.model import (
    ClusterLevel,
    ConnectorEntry,
    Lease,
    Plugin,
    Rules,
    SessionKey,
    StatusEntry,
    UnitId,
)
from herdmesh.herder.state.model.instructions import Instruction, Message, Send, ViewsChanged
from herdmesh.herder.state.model.restart_policy import Account
from herdmesh.topicstore.contract import Revision

#: in the place of a task's number among wake-ups: of the connector itself, and of all that it has.
_CONNECTOR, _WHOLE = -1, -2


@unique
class Role(StrEnum):
    """What this herder is. Legal moves: FOLLOWING -> CATCHING_UP -> LEADING; any -> FOLLOWING."""

    FOLLOWING = "FOLLOWING"
    #: the epoch is ours, but the config watch has not come to where it was granted: we would decide from the past.
    CATCHING_UP = "CATCHING_UP"
    LEADING = "LEADING"


class Mesh:
    """The whole of it. One instance per herder process; `machine.Herder` is the only one that drives it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now = 0
        self.out: list[Instruction] = []
        # leadership
        self.role = Role.FOLLOWING
        self.epoch = 0
        self.lease_until_ms = 0
        self.next_generation = 0
        self.generation_limit = 0
        #: the limit above which more generations were asked for last.
        self.reserve_above = 0
        #: since when a unit waits for a generation; None = none does.
        self.used_up_ms: int | None = None
        self.leader_id = ""
        self.leader_address = ""
        self.start_count = 0
        self.adopted_count = 0
        # what the stores say
        self.entries: dict[str, ConnectorEntry] = {}
        self.config_revision: Revision | None = None
        self.epoch_seen = 0
        self.session_key: SessionKey | None = None
        #: by our own clock; None = never.
        self.session_key_until_ms: int | None = None
        #: cluster-wide logger levels, set longest ago first.
        self.logger_levels: dict[str, ClusterLevel] = {}
        #: entries last seen in a foreign writer's hands, and since when: see `machine.FOREIGN_SETTLE_MS`.
        self.parked: dict[str, tuple[ConnectorEntry, int]] = {}
        self.statuses: dict[str, dict[int | None, StatusEntry]] = {}
        self.statuses_known = False
        self.leases: dict[str, Lease] = {}
        self.leases_known = False
        #: the connector classes that workers told of, by class and alias. What a class is outlives any reign.
        self.connectors_told: dict[str, Plugin] = {}
        # bookkeeping
        #: connectors to look at before this event ends, and which of their units; None = at all of them.
        self.dirty: dict[str, set[int | None] | None] = {}
        #: units whose turn comes in the next step, because this one did as much as one may.
        self.dirty_later: set[UnitId] = set()
        #: connectors with a `wait_revision`.
        self.waiting: set[str] = set()
        #: every unit is to be placed anew: workers, or what may run, changed.
        self.place_again = False
        #: connectors with units that look for a place, while nothing else changed.
        self.place_names: set[str] = set()
        #: when, the connector, and the number of the task, `_CONNECTOR` or `_WHOLE`.
        self._wakeups: list[tuple[int, str, int]] = []
        self._changed_connectors: set[str] = set()
        self._changed_workers: set[str] = set()
        self._begin_knowledge()

    def _begin_knowledge(self) -> None:
        """What the leader knows besides."""
        self.members: dict[str, Member] = {}
        #: the versions of each transformation, predicate and converter that a worker told this leader of.
        self.steps_told: dict[str, set[str]] = {}
        #: the last life of workers that drained and then went, by worker, oldest first.
        self.departed: dict[str, Member] = {}
        self.sessions: dict[int, str] = {}
        self.connectors: dict[str, Connector] = {}
        self.traces = Traces()
        self.calls: dict[int, Call] = {}
        self.ops: dict[int, Op] = {}
        self.commands: dict[str, Command] = {}
        #: request ids of changes of offsets that were begun and then refused by who would have made them.
        self.offsets_left_alone: dict[str, None] = {}
        #: the call that writes offsets, by the connector's name.
        self.offsets_under_way: dict[str, int] = {}
        #: calls that wait for the config watch.
        self.reading_back: set[int] = set()
        self.adopting_until_ms = 0
        #: until then nothing is started while live workers are missing: see `leadership_queries.gathering`.
        self.gathering_until_ms = 0
        #: lost workers whose units are kept for them, and until when.
        self.awaited: dict[str, int] = {}
        #: the first workers join: since when, and until when nothing starts on them.
        self.assembling_since_ms = 0
        self.assembling_until_ms = 0
        #: lives of workers that said they leave: they never take work again. Oldest first.
        self.left: dict[str, None] = {}
        #: more workers may say that they leave: since when, and until when their units run on where they are.
        self.leaving_since_ms = 0
        self.leaving_until_ms = 0
        #: when a worker last came or went, or a unit was placed because of that: see `balance.py`.
        self.unrest_ms = 0
        self.balance = Balance()
        self.heartbeat_ms = 0
        self.session_key_written: Revision | None = None
        self.session_key_retry_ms = 0
        #: of units that this herder restarted when it led before, until it has read what was told of them since.
        self.accounts_before: dict[UnitId, Account] = {}
        self._next_number = 0

    def reset_reign(self) -> None:
        """Forget everything that belongs to an epoch; calls whose write is under way are seen through without one."""
        units = (unit for connector in self.connectors.values() for unit in connector.units.values())
        begun = {unit.id: unit.account for unit in units if unit.account is not None and unit.account.attempts_ms}
        self.accounts_before.update(begun)
        self._changed_connectors.update(self.connectors)
        self._changed_workers.update(self.members)
        self.members.clear()
        self.steps_told.clear()
        self.departed.clear()
        self.sessions.clear()
        self.connectors.clear()
        self.ops = {number: op for number, op in self.ops.items() if op.kind is OpKind.CALL}
        self.commands.clear()
        self.dirty.clear()
        self.dirty_later.clear()
        self.waiting.clear()
        self._wakeups.clear()
        self.place_again = False
        self.place_names.clear()
        self.awaited.clear()
        self.offsets_left_alone.clear()
        self.left.clear()
        self.assembling_since_ms = self.assembling_until_ms = 0
        self.leaving_since_ms = self.leaving_until_ms = 0
        self.unrest_ms = self.now
        self.balance = Balance()
        self.start_count = self.adopted_count = 0
        self.session_key_written = None
        self.session_key_retry_ms = 0

    # --- out

    def send(self, session: int, message: Message) -> None:
        self.out.append(Send(session, self.epoch, message))

    def tell(self, worker_id: str, message: Message) -> bool:
        """Send to a worker if its stream is open; what it misses, its next hello makes up for."""
        member = self.members.get(worker_id)
        if member is None or member.session is None:
            return False
        self.send(member.session, message)
        return True

    def op(self, op: Op) -> int:
        """A number for a write, under which its answer finds `op`."""
        number = self.next_number()
        self.ops[number] = op
        return number

    def next_number(self) -> int:
        """A number never used before by this process."""
        self._next_number += 1
        return self._next_number

    def flush(self) -> list[Instruction]:
        """The instructions since the last flush."""
        if self._changed_connectors or self._changed_workers:
            self.out.append(ViewsChanged(frozenset(self._changed_connectors), frozenset(self._changed_workers)))
            self._changed_connectors.clear()
            self._changed_workers.clear()
        out, self.out = self.out, []
        return out

    # --- marks

    def touch(self, name: str) -> None:
        """Something about a connector changed: look at all of it again before this event ends."""
        self.dirty[name] = None
        self._changed_connectors.add(name)

    def touch_unit(self, unit: UnitId) -> None:
        """Something about one unit changed: look at it, and at what its connector waits for, before this event ends.
        What happens to each of N tasks would take N x N looks otherwise."""
        tasks = self.dirty.setdefault(unit.connector, set())
        if tasks is not None:
            tasks.add(unit.task)
        self._changed_connectors.add(unit.connector)

    def show(self, name: str) -> None:
        """Only the view of a connector changed."""
        self._changed_connectors.add(name)

    def show_worker(self, worker_id: str) -> None:
        self._changed_workers.add(worker_id)

    def touch_later(self, unit: UnitId) -> None:
        """Look at a unit in the next step, which comes at once."""
        self.dirty_later.add(unit)

    def touch_deferred(self) -> None:
        """A step begins: it is the next."""
        for unit in self.dirty_later:
            self.touch_unit(unit)
        self.dirty_later.clear()

    def wake(self, name: str, at_ms: int) -> None:
        """Look at a connector again at `at_ms`."""
        heapq.heappush(self._wakeups, (at_ms, name, _WHOLE))

    def wake_unit(self, unit: UnitId, at_ms: int) -> None:
        """Look at one unit again at `at_ms`."""
        order = _CONNECTOR if unit.task is None else unit.task
        heapq.heappush(self._wakeups, (at_ms, unit.connector, order))

    def touch_due(self) -> None:
        """Touch what is to be looked at again by now."""
        while self._wakeups and self._wakeups[0][0] <= self.now:
            _, name, order = heapq.heappop(self._wakeups)
            if name not in self.connectors:
                continue
            if order == _WHOLE:
                self.touch(name)
            else:
                self.touch_unit(UnitId(name, None if order == _CONNECTOR else order))

    # --- records

    def connector(self, name: str) -> Connector:
        """The record, made when missing."""
        found = self.connectors.get(name)
        if found is None:
            found = self.connectors[name] = Connector(name, self.entries.get(name))
        return found

    def member_of(self, session: int) -> Member | None:
        """Who speaks on a session; None for one that was replaced or closed."""
        worker_id = self.sessions.get(session)
        return self.members.get(worker_id) if worker_id is not None else None

    def forget_accounts(self, connector: str) -> None:
        """Of a reign before."""
        self.accounts_before = {unit: one for unit, one in self.accounts_before.items() if unit.connector != connector}

    def status_of(self, unit: UnitId) -> StatusEntry | None:
        return self.statuses.get(unit.connector, {}).get(unit.task)

    def lease_lives(self, worker_id: str, incarnation: str) -> bool:
        """True when the status store believes in that life of a worker (any life when `incarnation` is unknown)."""
        lease = self.leases.get(worker_id)
        return lease is not None and lease.live and incarnation in ("", lease.incarnation)

    def applied(self, revision: Revision | None) -> bool:
        """True when the config watch has come to `revision`."""
        if revision is None:
            return True
        return self.config_revision is not None and self.config_revision.includes(revision)

    # --- holds: every change goes through here, so that a member's load is always what the units say

    def take(self, unit: Unit, hold: Hold) -> None:
        """`hold` becomes the unit's one hold."""
        assert unit.hold is None, f"{unit.id} is held already"
        unit.hold = hold
        unit.newest_generation = max(unit.newest_generation, hold.assignment.generation)
        unit.destination = None
        unit.last_worker_id = hold.worker_id
        unit.idle_since_ms = None
        unit.waits_for = ""
        self._load(unit.id, hold.worker_id, +1)

    def stray(self, unit: Unit, hold: Hold) -> None:
        """`hold` is one more place that must stop the unit."""
        hold.stop_sent_ms = self.now
        unit.strays.append(hold)
        self._load(unit.id, hold.worker_id, +1)
        self.wake_unit(unit.id, self.now + self.rules.stop_timeout_ms)
        if unit.id.task is not None:
            self.connectors[unit.id.connector].stray_tasks += 1

    def drop(self, unit: Unit, hold: Hold) -> None:
        """`hold` is over."""
        if unit.hold is hold:
            unit.hold = None
            unit.progress = unit.wait = None
        else:
            unit.strays.remove(hold)
            if unit.id.task is not None:
                self.connectors[unit.id.connector].stray_tasks -= 1
        if unit.hold is None and not unit.strays:
            unit.idle_since_ms = self.now
        self._load(unit.id, hold.worker_id, -1)

    def _load(self, unit: UnitId, worker_id: str, change: int) -> None:
        self.balance.outdated = True
        self._changed_connectors.add(unit.connector)
        self._changed_workers.add(worker_id)
        member = self.members.get(worker_id)
        if member is None:
            return
        count = member.load.get(unit, 0) + change
        if count:
            member.load[unit] = count
        else:
            del member.load[unit]
