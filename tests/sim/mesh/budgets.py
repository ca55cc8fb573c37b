"""Restarts by policy against the budget that each unit has for them.

Owns which account a restart is of, and what gives a new one, both as anybody can see them: what was started is in the
assignment that is told to stop, what was written is in the config topic. A plan, a pause, a patch that was refused or a
move renews nothing.

Invariant: one failure is restarted once, however often that is said: a stop that was lost with its session is said
again, and by the next leader too. A restart counts while who began it leads, and from then on that a status tells of
it: of what nobody could write, no later leader can know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herdmesh.configstore.state.connector import ConnectorState
from herdmesh.connect.config_records import TargetState
from herdmesh.connect.status_topic import State
from herdmesh.herder.state.model import Assignment, UnitId
from herdmesh.herder.wire.restart_notes import RESTARTS
from herdmesh.statusstore.state.statuses import StoredStatus

if TYPE_CHECKING:
    from tests.sim.mesh.world import World

#: A unit, the life of its connector, and the config (of a connector) or the committed task it was started with.
Subject = tuple[UnitId, str, str]


@dataclass
class _Restart:
    at_ms: int
    #: of who began it last.
    epoch: int
    #: a status tells of it.
    told: bool = False


class Budgets:
    """Every unit's restarts."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: subject -> order of what failed -> its restart.
        self._restarts: dict[Subject, dict[tuple[int, int], _Restart]] = {}
        #: unit and account, as statuses name it -> how many restarts they tell of.
        self._told: Counter[tuple[UnitId, str]] = Counter()
        #: new accounts that were given besides the first.
        self._renewed: Counter[Subject] = Counter()
        self._before: dict[str, ConnectorState] = {}

    def written(self, connector: str) -> None:
        """Something of a connector was written. Another config or task set is another subject; what renews the account
        of the same one is a restart that was asked for and, of the connector itself, a stop."""
        after = self._world.config_log.state.connectors.get(connector)
        before = self._before.pop(connector, None)
        if after is None:
            return
        self._before[connector] = after
        asked: Mapping[int, int] = before.restarts if before is not None else {}
        for task, generation in after.restarts.items():
            if generation != asked.get(task):
                self._renewed[_stored(after, None if task < 0 else task)] += 1
        stopped = TargetState.STOPPED
        if after.target_state is stopped and (before is None or before.target_state is not stopped):
            self._renewed[_stored(after, None)] += 1

    def restarted(self, unit: UnitId, assignment: Assignment, epoch: int) -> str:
        """A herder restarts what failed, by itself. Tells what is wrong with that, "" = nothing."""
        policy, now = self._world.restart_policy, self._world.now
        subject = _started(unit, assignment)
        restarts = self._restarts.setdefault(subject, {})
        restarts.setdefault(assignment.order, _Restart(now, epoch)).epoch = epoch
        within = [one for one in restarts.values() if one.at_ms > now - policy.window_ms]
        times = sum(1 for one in within if one.told or one.epoch == epoch)
        self._world.checker.counts["restarts no later leader was told of"] += times < len(within)
        allowed = policy.attempts_max * (1 + self._renewed[subject])
        return "" if times <= allowed else f"{unit} was restarted {times} times, {allowed} are allowed"

    def told(self, stored: StoredStatus) -> None:
        """A status is in its topic. If it says that there were more restarts than was told of that account before,
        these are the last ones."""
        status = stored.status
        account = next((one.message for one in status.conditions if one.type == RESTARTS), "")
        if not account:
            return
        unit, words = UnitId(status.connector, stored.task), account.split(":")[0].split()
        count, tag = int(words[0]), words[-1]
        more = count - self._told[unit, tag]
        if more <= 0:
            return
        self._told[unit, tag] = count
        # While a restart is under way its status is of what failed, later ones are of what was started then.
        last = status.generation if status.state is State.RESTARTING else status.generation - 1
        untold = [
            (order, restart)
            for (restarted, _, _), restarts in self._restarts.items()
            if restarted == unit
            for order, restart in restarts.items()
            if order[1] <= last and not restart.told
        ]
        for _, restart in sorted(untold, key=lambda one: one[0])[-more:]:
            restart.told = True


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
