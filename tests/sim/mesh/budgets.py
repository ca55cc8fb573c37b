"""Restarts by policy against the restart budget of each unit.

Owns the mapping of restarts to budgets, and the events that renew a budget, both from outside: the assignment in a stop
command shows which unit was started how, the config topic shows the writes. A plan, a pause, a refused patch or a
move renews nothing.

Invariant: one failure is restarted once, however often the stop is sent: a stop that was lost with its session is sent
again, also by the next leader. A restart counts for the herder that began it, and for each herder that learned of it
from a status, as it began to lead or later. No later leader can know of a restart that was not written, or whose record
was overwritten before it was delivered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.topics.config_records import TargetState
from herdmesh.herder.state.model import StatusEntry
from herdmesh.herder.state.model.events import Event, StatusDeleted, StatusPut, StatusSnapshot
from herdmesh.session.model import Assignment, UnitId

if TYPE_CHECKING:
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.world import World

#: A unit, the life of its connector, and the config (of a connector) or the committed task it was started with.
Subject = tuple[UnitId, str, str]


@dataclass
class _Restart:
    at_ms: int
    #: times at which it was begun, by the clock of each herder that believed it began it.
    moments: set[int] = field(default_factory=set[int])


@dataclass
class _Knowledge:
    """Restarts that one herder's process knows of."""

    #: restarts in each unit's status.
    newest: dict[UnitId, frozenset[int]] = field(default_factory=dict[UnitId, frozenset[int]])
    #: restarts of each unit learned while it leads, and those it began itself.
    heard: dict[UnitId, set[int]] = field(default_factory=dict[UnitId, set[int]])
    leads: bool = False


class Budgets:
    """Every unit's restarts."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: subject -> order of the failed assignment -> its restart.
        self._restarts: dict[Subject, dict[tuple[int, int], _Restart]] = {}
        #: by herder's process.
        self._known: defaultdict[str, _Knowledge] = defaultdict(_Knowledge)
        #: renewed budgets besides the first.
        self._renewed: Counter[Subject] = Counter()
        self._before: dict[str, ConnectorState] = {}
        #: Connect's records of restarts, by connector, and how many there were when a unit was restarted for one.
        self._recorded: Counter[str] = Counter()
        self._asked: Counter[UnitId] = Counter()

    def written(self, connector: str) -> None:
        """Handle a write to a connector. Another config or task set is another subject; the budget of the same one is
        renewed by a requested restart and, for the connector itself, by a stop.
        """
        after = self._world.config_log.state.connectors.get(connector)
        before = self._before.pop(connector, None)
        if after is None:
            return
        self._before[connector] = after
        asked: Mapping[int, int] = before.restarts if before is not None else {}
        for task, generation in after.restarts.items():
            if generation != asked.get(task):
                number = None if task < 0 else task
                self._renewed[_stored(after, number)] += 1
                self._asked[UnitId(connector, number)] = self._recorded[connector]
        stopped = TargetState.STOPPED
        if after.target_state is stopped and (before is None or before.target_state is not stopped):
            self._renewed[_stored(after, None)] += 1

    def restart_recorded(self, connector: str) -> None:
        """Handle Connect's own record of a restart in its topic."""
        self._recorded[connector] += 1

    def restart_asked(self, unit: UnitId, assignment: Assignment) -> None:
        """Handle a herder's restart of a unit on request. Without a generation of its own (a unit being restarted
        already counts as requested, as in Connect) it is for a record of Connect's, once for each.
        """
        if self._asked[unit] < self._recorded[unit.connector]:
            self._asked[unit] = self._recorded[unit.connector]
            self._renewed[_started(unit, assignment)] += 1

    def restarted(self, herder: HerderProcess, unit: UnitId, assignment: Assignment) -> str:
        """Handle a herder's automatic restart of a failed unit. Returns the violation, "" = none."""
        policy, now = self._world.restart_policy, self._world.now
        subject = _started(unit, assignment)
        restarts = self._restarts.setdefault(subject, {})
        restarts.setdefault(assignment.order, _Restart(now)).moments.add(herder.now_ms)
        heard = self._known[herder.herder_id].heard.setdefault(unit, set())
        heard.add(herder.now_ms)
        within = [one for one in restarts.values() if one.at_ms > now - policy.window_ms]
        times = sum(1 for one in within if one.moments & heard)
        self._world.checker.counts["restarts no later leader was told of"] += times < len(within)
        allowed = policy.attempts_max * (1 + self._renewed[subject])
        return "" if times <= allowed else f"{unit} was restarted {times} times, {allowed} are allowed"

    def handed(self, herder: HerderProcess, event: Event) -> None:
        """Handle an event that a herder is about to process."""
        known = self._known[herder.herder_id]
        if herder.leads and not known.leads:
            for unit, moments in known.newest.items():
                known.heard.setdefault(unit, set()).update(moments)
        known.leads = herder.leads
        match event:
            case StatusSnapshot(statuses=statuses):
                known.newest.clear()
                for status in statuses:
                    self._told(known, status)
            case StatusPut(status=status):
                self._told(known, status)
            case StatusDeleted(unit=unit):
                known.newest.pop(unit, None)
            case _:
                pass

    @staticmethod
    def _told(known: _Knowledge, status: StatusEntry) -> None:
        moments = frozenset(status.note.attempts_ms if status.note is not None else ())
        known.newest[status.unit] = moments
        if known.leads:
            known.heard.setdefault(status.unit, set()).update(moments)


def _stored(state: ConnectorState, task: int | None) -> Subject:
    unit = UnitId(state.name, task)
    if task is None:
        return unit, state.incarnation, str(state.config_revision)
    digest = state.tasks[task].digest if task < len(state.tasks) else ""
    return unit, state.incarnation, f"{state.task_config_generation}:{digest}"


def _started(unit: UnitId, assignment: Assignment) -> Subject:
    if unit.task is not None:
        return unit, assignment.incarnation, assignment.task_digest
    revision = assignment.config_revision
    return unit, assignment.incarnation, str(revision.next_offsets[0] if revision is not None else 0)
