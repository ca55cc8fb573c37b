"""Unnecessary restarts: units that are moved although their worker neither leaves nor lacks their plugin.

Owns the rules of a move for balance, from the events and messages of a herder alone: it comes when no worker has joined
or left for a while, a few at a time, it makes loads more even, and it touches no unit that was started a moment ago.
Times are by the herder's own clock, which faults make leap.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from herdmesh.herder.state.model import events as ev
from herdmesh.session.model import UnitId

if TYPE_CHECKING:
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.worker import WorkerProcess
    from tests.sim.mesh.world import World

CHECK = "nobody else's unit is restarted"
LEAVER_CHECK = "a worker that leaves gets no work"


class Disturbed:
    """Moves for balance by herders, and whether they were allowed."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: herder -> when it last learned that a worker joined or left.
        self._unrest_ms: dict[str, int] = {}
        #: herder -> the epoch that it was granted last; the same may be granted again.
        self._epochs: dict[str, int] = {}
        #: herder and worker -> their newest session.
        self._sessions: dict[tuple[str, str], int] = {}
        #: herder and session -> the life of the worker that opened it.
        self._lives: dict[tuple[str, int], str] = {}
        #: herder and life of a worker that reported to it that it leaves.
        self._leaving: set[tuple[str, str]] = set()
        #: life of a worker -> whether the last command was to drain.
        self._draining: dict[str, bool] = {}
        #: unit -> the herder that started it last, and when.
        self._started: dict[UnitId, tuple[str, int]] = {}
        #: epoch -> units that move for balance -> their target worker.
        self._moving: dict[int, dict[UnitId, str]] = {}

    def handed(self, herder: HerderProcess, event: ev.Event) -> None:
        """Handle an event that a herder processes."""
        match event:
            case ev.WorkerHello(incarnation=incarnation, leaving=True):
                self._leaving.add((herder.name, incarnation))
            case ev.WorkerLeft(session=session) | ev.StreamBroken(session=session):
                life = self._lives.get((herder.name, session))
                if life is not None and self._sessions.get((herder.name, life.rpartition("-")[0])) == session:
                    self._unrest_ms[herder.name] = herder.now_ms
                if life is not None and isinstance(event, ev.WorkerLeft):
                    self._leaving.add((herder.name, life))
            case ev.LeadershipGranted(epoch=epoch) if self._epochs.get(herder.name) != epoch:
                self._epochs[herder.name] = epoch
                self._unrest_ms[herder.name] = herder.now_ms
            case _:
                pass

    def welcomed(self, herder: HerderProcess, worker: WorkerProcess, session: int) -> None:
        """Handle a herder's welcome to a worker."""
        self._sessions[herder.name, worker.name] = session
        self._lives[herder.name, session] = worker.incarnation
        self._unrest_ms[herder.name] = herder.now_ms

    def told_draining(self, herder: HerderProcess, worker: WorkerProcess, *, draining: bool) -> None:
        """Handle a herder's command to a worker to drain, or to end the drain."""
        self._draining[worker.incarnation] = draining
        self._unrest_ms[herder.name] = herder.now_ms

    def started(self, herder: HerderProcess, worker: WorkerProcess, unit: UnitId) -> None:
        """Handle a herder's start of a unit."""
        if (herder.name, worker.incarnation) in self._leaving:
            self._world.checker.find(LEAVER_CHECK, f"{herder.name} starts {unit} on {worker.name}, which leaves")
        self._started[unit] = (herder.name, herder.now_ms)
        for moving in self._moving.values():
            moving.pop(unit, None)

    def moved(self, herder: HerderProcess, epoch: int, worker: WorkerProcess, unit: UnitId, reason: str) -> None:
        """Handle a herder's stop of a unit in order to move it."""
        if self._must(worker, unit):
            return
        checker, rules = self._world.checker, self._world.rules("")
        checker.counts["moves for balance"] += 1
        what = f"{herder.name} moves {unit} away from {worker.name}"
        quiet_ms = herder.now_ms - self._unrest_ms.get(herder.name, 0)
        if quiet_ms < rules.balance_delay_ms:
            checker.find(CHECK, f"{what}, {quiet_ms} ms after a worker came or went")
        by, started_ms = self._started.get(unit, ("", 0))
        if by == herder.name and herder.now_ms - started_ms < rules.balance_delay_ms:
            checker.find(CHECK, f"{what}, {herder.now_ms - started_ms} ms after it was started there")
        moving = self._moving.setdefault(epoch, {})
        target = reason.split()[2]
        self._must_gain(what, worker.name, target, moving, is_task=unit.task is not None)
        moving[unit] = target
        if len(moving) > rules.balance_moves_max:
            checker.find(CHECK, f"{what}, and {len(moving)} units move for balance at once")

    def _must(self, worker: WorkerProcess, unit: UnitId) -> bool:
        """Its worker drains or leaves, or lacks its plugin."""
        leaves = any(life == worker.incarnation for _, life in self._leaving)
        if leaves or self._draining.get(worker.incarnation, worker.state.draining):
            return True
        connector = self._world.config_log.state.connectors.get(unit.connector)
        if connector is None or connector.config is None:
            return False
        return all(plugin.class_name != connector.config.get("connector.class") for plugin in worker.plugins)

    def _must_gain(self, what: str, source: str, target: str, moving: dict[UnitId, str], *, is_task: bool) -> None:
        if self._world.uneven:
            return
        loads = Counter[str]()
        for worker in self._world.workers:
            if worker.alive:
                for one in worker.state.held_units():
                    if (one.unit.task is not None) is is_task:
                        loads[moving.get(UnitId(one.unit.connector, one.unit.task), worker.name)] += 1
        if loads[source] - loads[target] < 2:
            self._world.checker.find(CHECK, f"{what} ({loads[source]}) to {target} ({loads[target]}): no gain")
