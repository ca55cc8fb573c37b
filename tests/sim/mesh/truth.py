"""Displayed states of workers and units against their real states: compared during the whole story.

Owns the promise "status equals truth within a lease": no view shows a dead worker, and a unit shown as RUNNING on a
live, reachable worker is RUNNING there. Each may be wrong for a lease and messages in flight, counted from the
last moment at which the reporting or the displaying process could not do so. `verdict` owns the states of an idle mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdmesh.connect.topics.status_topic import State
from herdmesh.session.model import RunState, UnitId
from herdmesh.session.model import UnitId as Held
from tests.sim.mesh.status_store import LEASE_MS

if TYPE_CHECKING:
    from tests.sim.mesh.herder import HerderProcess
    from tests.sim.mesh.status_store import StatusReplica
    from tests.sim.mesh.worker import WorkerProcess
    from tests.sim.mesh.world import World

#: messages in flight may extend a dead worker's lease once, and the table checks every second.
LEASE_SLACK_MS = 6_000
_LATE_MS = LEASE_MS + LEASE_SLACK_MS
_VIEW_EVERY = 4
CHECK = "status equals truth within a lease"


class Truth:
    """The comparison, made every half second."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: displaying process -> when it last could not.
        self._steady_ms: dict[str, int] = {}
        self._dead_ms: dict[str, int] = {}
        #: worker -> its life, and when a process last could not reach it.
        self._heard_ms: dict[str, tuple[int, int]] = {}
        #: displaying process and wrong display -> since when.
        self._wrong_ms: dict[tuple[str, str, UnitId], int] = {}
        self._looks = 0

    def look(self) -> None:
        """Compare once."""
        world = self._world
        self._looks += 1
        for worker in world.workers:
            self._look_at_worker(worker)
        wrong = self._wrong_ms
        self._wrong_ms = {}
        for replica in world.status:
            if replica.well and replica.claims and replica.log.writer is replica:
                self._look_at_leases(replica)
                self._look_at_statuses(replica, wrong)
            else:
                self._steady_ms[replica.name] = world.now
        for herder in world.herders:
            if not (herder.well and herder.leads):
                self._steady_ms[herder.name] = world.now
            elif world.now - self._steady_ms.get(herder.name, 0) > _LATE_MS:
                self._look_at_workers(herder)
                self._look_at_view(herder, wrong)

    def _look_at_worker(self, worker: WorkerProcess) -> None:
        world, now = self._world, self._world.now
        if worker.alive:
            self._dead_ms.pop(worker.incarnation, None)
        elif worker.life:
            self._dead_ms.setdefault(worker.incarnation, now)
        cut = world.network.some_cut and any(
            world.network.is_cut(worker.name, replica.name) for replica in world.status
        )
        if cut:
            # Messages it sent before it died are held back, and arrive when the link is whole again.
            for incarnation in self._dead_ms:
                if incarnation.rpartition("-")[0] == worker.name:
                    self._dead_ms[incarnation] = now
        unheard = cut or not worker.well or world.broker.away or any(replica.slow_ms for replica in world.status)
        if unheard or self._heard_ms.get(worker.name, (0, 0))[0] != worker.life:
            self._heard_ms[worker.name] = (worker.life, now)

    def _look_at_leases(self, replica: StatusReplica) -> None:
        """Check that a writer that could know shows no long dead worker as alive."""
        if not self._dead_ms:
            return
        now = self._world.now
        # To the lease table a leap of its clock is a stall of its process: a worker that it does not count as dead gets
        # a full lease.
        since_ms = max(self._steady_ms.get(replica.name, 0), replica.leapt_ms)
        for lease in replica.keeper.table.leases():
            dead_ms = self._dead_ms.get(lease.incarnation)
            if dead_ms is None or now - max(since_ms, dead_ms) < _LATE_MS:
                continue
            if lease.live:
                self._world.checker.find(CHECK, f"{lease.incarnation} is dead and its lease lives at {replica.name}")

    def _look_at_statuses(self, replica: StatusReplica, wrong: dict[tuple[str, str, UnitId], int]) -> None:
        """Check that a unit shown as RUNNING, status joined with lease, is RUNNING in the very process it names."""
        workers = {worker.incarnation: worker for worker in self._world.workers if worker.alive}
        for stored in replica.state.statuses():
            status = stored.status
            worker = workers.get(status.worker_incarnation)
            if worker is None or status.state is not State.RUNNING:
                continue
            unit = UnitId(status.connector, stored.task)
            if replica.keeper.table.effective(status)[0] is State.RUNNING and not _runs(worker, unit):
                self._is_wrong(replica.name, unit, worker, wrong)

    def _look_at_workers(self, herder: HerderProcess) -> None:
        dead = {name for name, since_ms in self._dead_ms.items() if self._world.now - since_ms > 12_000}
        if not dead:
            return
        for view in herder.herder.workers():
            if view.incarnation in dead:
                self._world.checker.find(CHECK, f"{herder.name} shows {view.incarnation}, long dead")

    def _look_at_view(self, herder: HerderProcess, wrong: dict[tuple[str, str, UnitId], int]) -> None:
        """Check that a unit a leader shows as RUNNING on a worker in a session with it is RUNNING there."""
        if self._looks % _VIEW_EVERY:
            self._wrong_ms.update((key, since_ms) for key, since_ms in wrong.items() if key[0] == herder.name)
            return
        heard = {worker.name: worker for worker in self._world.workers if self._world.checker.hears(worker, herder)}
        for unit, worker_name in _shown_running(herder):
            worker = heard.get(worker_name)
            if worker is not None and not _runs(worker, unit):
                self._is_wrong(herder.name, unit, worker, wrong)

    def _is_wrong(
        self, who: str, unit: UnitId, worker: WorkerProcess, wrong: dict[tuple[str, str, UnitId], int]
    ) -> None:
        now = self._world.now
        since_ms = self._wrong_ms[who, worker.incarnation, unit] = wrong.get((who, worker.incarnation, unit), now)
        since_ms = max(since_ms, self._steady_ms.get(who, 0), self._heard_ms[worker.name][1])
        if now - since_ms > _LATE_MS:
            self._world.checker.find(CHECK, f"{who} shows {unit} RUNNING on {worker.incarnation}, where it is not")


def _shown_running(herder: HerderProcess) -> Iterator[tuple[UnitId, str]]:
    for name in herder.herder.connector_names():
        view = herder.herder.connector(name)
        if view is None:
            continue
        shown = [(UnitId(name), view.status), *((task.id, task.status) for task in view.tasks)]
        yield from ((unit, one.worker_id) for unit, one in shown if one.state is RunState.RUNNING and one.worker_id)


def _runs(worker: WorkerProcess, unit: UnitId) -> bool:
    """The worker holds the unit, and it does as its status shows or is about to: a start writes no status until it
    runs.
    """
    state = worker.state
    held = (
        state.connectors.get(unit.connector) if unit.task is None else state.tasks.get(Held(unit.connector, unit.task))
    )
    return held is not None and held.state.value in ("RUNNING", "UNASSIGNED")
