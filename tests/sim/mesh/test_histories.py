"""Disturbance of other units, history by history: one change of members, and exactly the units that start because of
it.

Each history is one change of members or leaders on an otherwise healthy mesh. Every start is counted: it is of a unit
of a worker that left, or of one that a leader moved for balance, which comes later, in small waves, and improves it.
The checks of the simulator also run (`disturbed.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, DrainWorker, Request
from herdmesh.session import messages
from herdmesh.session.model import UnitId
from herdmesh.worker.state import events
from tests.sim.mesh import verdict
from tests.sim.mesh.clients import Client, Outcome
from tests.sim.mesh.herder import HerderProcess
from tests.sim.mesh.mutants import MUTANTS
from tests.sim.mesh.network import Stream
from tests.sim.mesh.story import quiet
from tests.sim.mesh.worker import OTHER_PLUGIN, PLUGIN, WorkerProcess
from tests.sim.mesh.world import World, simulated
from tests.support.sizes import soak_or

NAMES = ("a", "b", "c", "d", "e")
TASKS = 3
UNITS = len(NAMES) * (1 + TASKS)
#: of `World.rules`: no balance comes sooner, and no wave is larger.
BALANCE_DELAY_MS, WAVE_MAX = 4_000, 3
SEEDS = range(soak_or(1, 100))

Holders = Mapping[UnitId, str]


class Mesh:
    """A healthy mesh with some connectors, and its herders' messages to workers."""

    def __init__(self, seed: int, workers: int, plugins: Mapping[int, Any] | None = None) -> None:
        self.world = world = World(seed)
        world.network.heal_all()  # healthy from the beginning
        world.uneven = plugins is not None
        of = plugins or {}
        world.workers = [
            WorkerProcess(f"worker-{number}", world, of.get(number, (PLUGIN, OTHER_PLUGIN)))
            for number in range(1, workers + 1)
        ]
        self._client = Client("client-0", world)
        self.starts = Counter[UnitId]()
        self.started_on: dict[UnitId, str] = {}
        #: moves for balance, by the time of their command.
        self.balance_ms: list[int] = []
        self.balanced = Counter[UnitId]()
        check = world.checker.sent

        def listen(herder: HerderProcess, sent: ins.Send, stream: Stream) -> None:
            self._heard(sent, stream.near.process.name)
            check(herder, sent, stream)

        world.checker.sent = listen
        world.begin()
        self.advance(2_000)

    def _heard(self, message: ins.Send, worker: str) -> None:
        match message.message:
            case messages.StartUnit(unit=unit):
                self.starts[unit] += 1
                self.started_on[unit] = worker
            case messages.StopUnit(unit=unit, reason=reason) if reason.endswith("for balance"):
                self.balanced[unit] += 1
                self.balance_ms.append(self.world.now)
            case _:
                pass

    def advance(self, ms: int) -> None:
        self.world.advance(ms)
        assert not self.world.checker.violations, "\n".join(map(str, self.world.checker.violations))

    def ask(self, request: Request) -> None:
        """Send the request, and wait until it is acknowledged."""
        operation = self._client.ask(request)
        for _ in range(100):
            self.advance(100)
            if not self._client.busy:
                break
        assert operation.outcome is Outcome.ACKNOWLEDGED, operation

    def create(self, names: Iterable[str] = NAMES, class_name: str = "Sink") -> None:
        for name in names:
            config = {"name": name, "connector.class": class_name, "tasks.max": str(TASKS), "topics": "t"}
            self.ask(CreateConnector(name, config))
        self.until_calm()

    def until_calm(self, *, balanced: bool = False) -> None:
        """Wait until everything is in its requested state, with its share everywhere if `balanced`."""
        for _ in range(300):
            self.advance(500)
            leader = self.world.leader()
            if leader is None:
                continue
            uneven = any("than its share" in view.reason for view in leader.herder.workers())
            if not verdict.problems(self.world) and not (balanced and uneven):
                return
        raise AssertionError(verdict.problems(self.world) or "balance does not end")

    def forget(self) -> None:
        """Restart the counting."""
        self.starts.clear()
        self.balanced.clear()
        self.balance_ms.clear()

    def holders(self) -> Holders:
        return {unit: places[0][0].name for unit, places in verdict.holdings(self.world).items()}

    def worker(self, number: int) -> WorkerProcess:
        return self.world.workers[number - 1]

    def kill(self, *nodes: Any) -> None:
        for node in nodes:
            self.world.down.add(node)
            node.kill()

    def revive(self, *nodes: Any) -> None:
        for node in nodes:
            self.world.down.discard(node)
            self.world.restart(node)

    def leave(self, worker: WorkerProcess) -> None:
        """Stop a worker cleanly, and wait until the process is over."""
        self.world.down.add(worker)
        worker.handle(events.LeaveRequested())
        for _ in range(200):
            self.advance(100)
            if not worker.alive:
                return
        raise AssertionError(f"{worker.name} does not end")

    def leader(self) -> HerderProcess:
        leader = self.world.leader()
        assert leader is not None
        return leader

    # --- promises

    def only(self, units: Collection[UnitId], *, times: int = 1) -> None:
        """Since `forget` these units were started, at most so often each, and no other; nothing moved for balance."""
        assert not self.balanced, f"too early: {self.balanced}"
        others = {unit: count for unit, count in self.starts.items() if unit not in units}
        assert not others, f"nobody needed {others}"
        often = {unit: count for unit, count in self.starts.items() if count > times}
        assert not often, f"more than {times} times: {often}"

    def balance(self, moves_max: int, *, since_ms: int) -> None:
        """Since `forget` only balance started anything: each unit once, in waves, not too early, and no more than
        needed.
        """
        self.until_calm(balanced=True)
        assert self.starts == self.balanced
        assert max(self.balanced.values(), default=0) <= 1, "a move was undone"
        assert self.balanced.total() <= moves_max
        assert all(at_ms >= since_ms + BALANCE_DELAY_MS for at_ms in self.balance_ms)
        assert max(Counter(self.balance_ms).values(), default=0) <= 2 * WAVE_MAX

    def of(self, holders: Holders, *workers: int) -> set[UnitId]:
        names = {f"worker-{number}" for number in workers}
        return {unit for unit, name in holders.items() if name in names}


def _mesh(seed: int, workers: int) -> Mesh:
    mesh = Mesh(seed, workers)
    mesh.create()
    mesh.until_calm(balanced=True)
    mesh.forget()
    return mesh


def two_workers_are_killed_at_once_and_return(seed: int) -> None:
    mesh = _mesh(seed, 4)
    its = mesh.of(mesh.holders(), 1, 2)
    mesh.kill(mesh.worker(1), mesh.worker(2))
    mesh.advance(9_000)
    mesh.only(its)
    assert set(mesh.starts) == its
    mesh.forget()
    mesh.revive(mesh.worker(1), mesh.worker(2))
    since_ms = mesh.world.now
    mesh.advance(3_000)
    mesh.only(set())
    mesh.balance(UNITS // 2 + 2, since_ms=since_ms)


def a_worker_flaps(seed: int) -> None:
    mesh = _mesh(seed, 3)
    its = mesh.of(mesh.holders(), 1)
    deaths = 6
    for _ in range(deaths):
        mesh.kill(mesh.worker(1))
        mesh.advance(1_500)
        mesh.revive(mesh.worker(1))
        mesh.advance(1_500)
    mesh.only(its, times=deaths)
    mesh.forget()
    mesh.balance(UNITS // 3 + 2, since_ms=mesh.world.now - 1_500)


def a_stream_flaps(seed: int) -> None:
    mesh = _mesh(seed, 3)
    for _ in range(10):
        for stream in list(mesh.world.network.streams):
            if stream.near.process is mesh.worker(2):
                stream.snap()
        mesh.advance(700)
    mesh.only(set())


def a_worker_drains_while_balance_is_under_way(seed: int) -> None:
    mesh = _mesh(seed, 3)
    mesh.kill(mesh.worker(1))
    mesh.advance(9_000)
    mesh.revive(mesh.worker(1))
    for _ in range(200):
        mesh.advance(100)
        if mesh.balanced:
            break
    assert mesh.balanced, "balance has begun"
    moving = set(mesh.balanced)
    its = mesh.of(mesh.holders(), 2)
    mesh.forget()
    since_ms = mesh.world.now
    mesh.ask(DrainWorker("worker-2"))
    mesh.advance(3_000)
    mesh.only(its | moving, times=2)
    assert not mesh.of(mesh.holders(), 2)
    mesh.forget()
    mesh.balance(UNITS // 2 + 2, since_ms=since_ms)


def two_workers_become_four(seed: int) -> None:
    mesh = _mesh(seed, 2)
    since_ms = mesh.world.now
    for number in (3, 4):
        worker = WorkerProcess(f"worker-{number}", mesh.world, (PLUGIN, OTHER_PLUGIN))
        mesh.world.workers.append(worker)
        worker.begin()
    mesh.advance(3_000)
    mesh.only(set())
    mesh.balance(UNITS // 2 + 2, since_ms=since_ms)
    loads = Counter(mesh.holders().values())
    assert max(loads.values()) - min(loads.values()) <= 2, "connectors and tasks are balanced apart"


def all_workers_are_restarted_one_after_the_other(seed: int) -> None:
    mesh = _mesh(seed, 3)
    for number in (1, 2, 3):
        its = mesh.of(mesh.holders(), number)
        mesh.leave(mesh.worker(number))
        mesh.revive(mesh.worker(number))
        mesh.advance(2_000)
        mesh.only(its)
        mesh.forget()
    since_ms = mesh.world.now - 2_500
    mesh.balance(UNITS, since_ms=since_ms)


def two_workers_leave_together(seed: int) -> None:
    """As when one of two machines is shut down: nothing starts on the other leaving worker either."""
    mesh = _mesh(seed, 4)
    its = mesh.of(mesh.holders(), 1, 2)
    for number in (1, 2):
        mesh.world.down.add(mesh.worker(number))
        mesh.worker(number).handle(events.LeaveRequested())
        mesh.advance(200)
    mesh.advance(10_000)
    mesh.only(its)
    assert set(mesh.starts) == its
    assert not {"worker-1", "worker-2"} & {mesh.started_on[unit] for unit in its}


def the_leader_dies_in_the_middle_of_a_move(seed: int) -> None:
    mesh = _mesh(seed, 3)
    its = mesh.of(mesh.holders(), 1)
    mesh.ask(DrainWorker("worker-1"))
    mesh.kill(mesh.leader())
    mesh.advance(12_000)
    mesh.only(its, times=2)
    assert not mesh.of(mesh.holders(), 1)


def the_leader_dies_in_the_middle_of_a_balance(seed: int) -> None:
    mesh = _mesh(seed, 3)
    mesh.kill(mesh.worker(1))
    mesh.advance(9_000)
    mesh.revive(mesh.worker(1))
    for _ in range(200):
        mesh.advance(100)
        if mesh.balanced:
            break
    moving = set(mesh.balanced)
    mesh.forget()
    killed_ms = mesh.world.now
    mesh.kill(mesh.leader())
    mesh.advance(6_000)  # less than an election and the delay of a balance together
    mesh.only(moving)
    mesh.forget()
    mesh.balance(UNITS // 3 + 2, since_ms=killed_ms)


def a_worker_stands_still_for_a_moment(seed: int) -> None:
    mesh = _mesh(seed, 3)
    mesh.worker(1).freeze()
    mesh.advance(2_000)
    mesh.worker(1).thaw()
    mesh.advance(3_000)
    mesh.only(set())


def a_worker_stands_still_until_it_is_lost_and_goes_on(seed: int) -> None:
    mesh = _mesh(seed, 3)
    its = mesh.of(mesh.holders(), 1)
    mesh.worker(1).freeze()
    mesh.advance(15_000)
    mesh.only(its)
    assert set(mesh.starts) == its
    mesh.forget()
    mesh.worker(1).thaw()
    since_ms = mesh.world.now
    mesh.advance(3_000)
    mesh.only(set())
    mesh.balance(UNITS // 3 + 2, since_ms=since_ms)


def a_connector_is_deleted_while_it_moves(seed: int) -> None:
    mesh = _mesh(seed, 3)
    its = mesh.of(mesh.holders(), 1)
    mesh.ask(DrainWorker("worker-1"))
    mesh.ask(DeleteConnector("b"))
    mesh.until_calm()
    mesh.only(its)
    assert all(unit.connector != "b" for unit in mesh.holders())


def unequal_workers_lose_one(seed: int) -> None:
    """Worker 1 has one plugin only; worker 3, which has both, is killed and returns."""
    mesh = Mesh(seed, 3, {1: (PLUGIN,)})
    mesh.create(("a", "b", "c"))
    mesh.create(("d", "e"), "Source")
    mesh.until_calm(balanced=True)
    mesh.forget()
    before = mesh.holders()
    its = mesh.of(before, 3)
    mesh.kill(mesh.worker(3))
    mesh.advance(9_000)
    mesh.only(its)
    assert set(mesh.starts) == its
    assert all(mesh.started_on[unit] == "worker-2" for unit in its if unit.connector in "de")
    mesh.forget()
    mesh.revive(mesh.worker(3))
    since_ms = mesh.world.now
    mesh.advance(3_000)
    mesh.only(set())
    mesh.balance(UNITS // 2 + 2, since_ms=since_ms)


def a_worker_dies_and_the_stores_writers_with_it(seed: int) -> None:
    mesh = _mesh(seed, 3)
    its = mesh.of(mesh.holders(), 2)
    writers = [replica for replica in mesh.world.stores if replica.alive and replica.claims]
    mesh.kill(mesh.worker(2), *writers)
    mesh.advance(4_000)
    mesh.revive(*writers)
    mesh.advance(10_000)
    mesh.only(its)
    assert set(mesh.starts) == its


HISTORIES: tuple[Callable[[int], None], ...] = (
    two_workers_are_killed_at_once_and_return,
    a_worker_flaps,
    a_stream_flaps,
    a_worker_drains_while_balance_is_under_way,
    two_workers_become_four,
    all_workers_are_restarted_one_after_the_other,
    two_workers_leave_together,
    the_leader_dies_in_the_middle_of_a_move,
    the_leader_dies_in_the_middle_of_a_balance,
    a_worker_stands_still_for_a_moment,
    a_worker_stands_still_until_it_is_lost_and_goes_on,
    a_connector_is_deleted_while_it_moves,
    unequal_workers_lose_one,
    a_worker_dies_and_the_stores_writers_with_it,
)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_a_change_of_members_restarts_no_other_unit(history: Callable[[int], None]) -> None:
    quiet()
    for seed in SEEDS:
        with simulated():
            history(seed)


@pytest.mark.parametrize(
    ("mutant", "history"),
    [
        ("units move for balance at once", two_workers_become_four),
        ("all units move for balance together", two_workers_become_four),
        ("units move to workers that leave next", two_workers_leave_together),
        ("new leader does not wait for workers", the_leader_dies_in_the_middle_of_a_move),
    ],
)
def test_a_history_finds_the_mutant(mutant: str, history: Callable[[int], None]) -> None:
    quiet()
    with MUTANTS[mutant](), simulated(), pytest.raises(AssertionError):
        history(0)
