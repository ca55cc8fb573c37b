"""Changes of leader in awkward orders: late workers, old leaders, crossing messages, writes in flight. 0 restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.model import Lease
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    Request,
    RestartConnector,
    SetTarget,
    UpdateConnector,
)
from herdmesh.rpc.errors import NoLeader
from herdmesh.session import messages
from herdmesh.session.model import HeldUnit, RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import revision
from services.herder.tests.world_worker import SINK, Held, Worker


@pytest.fixture
def world() -> World:
    """A leader, three workers, and two connectors with four and three tasks."""
    world = World()
    world.lead()
    for name in ("w1", "w2", "w3"):
        world.worker(name)
    world.ask(CreateConnector("a", sink(4)))
    world.ask(CreateConnector("b", sink(3)))
    return world


def owner_of(world: World, unit: UnitId) -> Worker:
    return next(worker for worker in world.workers.values() if unit in worker.held)


def nothing_restarted(world: World, since: int) -> bool:
    return len(world.starts) == since and all(len(hands) == 1 for hands in world.running().values())


@pytest.mark.parametrize("late_ms", [100, 1_000, 3_000, 5_000])
def test_a_worker_that_dials_in_late_is_adopted(world: World, late_ms: int) -> None:
    since = len(world.starts)
    world.kill_herder()
    late = world.workers["w2"]
    late.frozen = True
    world.lead()
    world.advance(late_ms)
    late.thaw()
    world.advance(10_000)
    assert nothing_restarted(world, since)


def test_the_time_of_a_state_is_unknown_after_an_adoption(world: World) -> None:
    before = world.herder.connector("a")
    assert before is not None
    assert [one.since_ms is not None for one in (before.status, before.tasks[0].status)] == [True, True]
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    adopted = world.herder.connector("a")
    assert adopted is not None
    assert [one.since_ms for one in (adopted.status, adopted.tasks[0].status)] == [None, None]
    asked_ms = world.now
    world.ask(SetTarget("a", TargetState.PAUSED))
    paused = world.herder.connector("a")
    assert paused is not None
    assert all((one.since_ms or 0) >= asked_ms for one in (paused.status, paused.tasks[0].status))


def test_a_worker_that_dials_the_old_leader_is_refused_after_the_end_of_its_lease(world: World) -> None:
    """The old leader is cut off from the store, so it serves until its lease ends; then it refuses every request."""
    old = world.herder
    old.handle(ev.LeaseShortened(world.now + 1_000), world.now)
    since = len(world.starts)
    worker = world.workers["w1"]
    world.kill_herder()
    held_units = tuple(HeldUnit(unit, held.assignment, held.state) for unit, held in worker.held.items())
    hello = ev.WorkerHello(900, "w1", worker.incarnation, "w1:1", 8, (SINK,), held_units, epoch_max=1)
    welcomed = [sent.message for sent in old.handle(hello, world.now) if isinstance(sent, ins.Send)]
    assert [len(message.adopted) for message in welcomed if isinstance(message, messages.Welcome)] == [len(held_units)]
    closed = [one for one in old.handle(ev.Tick(), world.now + 1_000) if isinstance(one, ins.CloseSession)]
    assert 900 in {one.session for one in closed}
    refused = old.handle(replace(hello, session=901), world.now + 1_100)
    assert [type(one.error) for one in refused if isinstance(one, ins.CloseSession)] == [NoLeader]
    world.lead()
    world.advance(10_000)
    assert nothing_restarted(world, since)


def test_a_leader_that_reads_of_a_newer_epoch_stops_leading(world: World) -> None:
    """Its machine slept, so its lease seems to hold; its watch works, and brings the commits of the new leader."""
    old = world.herder
    assert old.refusal is None
    block = old.handle(ev.EpochRecorded(1, revision(world.config.offset + 1)), world.now)
    assert old.refusal is None, "its own epoch again: more generations were reserved"
    assert not any(isinstance(one, ins.CloseSession) for one in block)
    told = old.handle(ev.EpochRecorded(2, revision(world.config.offset + 2)), world.now)
    assert len([one for one in told if isinstance(one, ins.CloseSession)]) == len(world.workers)
    assert [one for one in told if isinstance(one, ins.RenewEpoch)] == [ins.RenewEpoch(1, abandon=True)]
    assert isinstance(old.refusal, NoLeader)
    entry = replace(world.config.entries["a"], config={**world.config.entries["a"].config, "file": "other"})
    after = old.handle(ev.ConfigChanged("a", entry, revision(world.config.offset + 3)), world.now)
    assert not any(isinstance(one, ins.Send) for one in after)
    late = ev.LeadershipGranted(1, 1, 1_000, world.now + 60_000, "me", "here:1")
    old.handle(late, world.now)
    assert isinstance(old.refusal, NoLeader), "a grant that was overtaken on its way"


def test_a_worker_that_has_seen_the_new_leader_is_refused_by_the_old_one(world: World) -> None:
    old = world.herder
    world.lead()
    world.advance(1_000)
    worker = world.workers["w1"]
    hello = ev.WorkerHello(900, "w1", worker.incarnation, "w1:1", 8, (SINK,), (), epoch_max=worker.epoch_max)
    answered = old.handle(hello, world.now)
    assert [type(one) for one in answered if not isinstance(one, ins.ViewsChanged)] == [ins.CloseSession]


def test_late_messages_of_an_old_leader_are_ignored(world: World) -> None:
    unit = UnitId("a", 0)
    worker = owner_of(world, unit)
    before = dict(worker.held)
    old_epoch = world.config.epoch
    world.lead()
    world.advance(2_000)
    assert worker.session is not None
    for message in (
        messages.StopUnit(unit, before[unit].assignment, "late"),
        messages.SetUnitTarget(unit, TargetState.PAUSED),
        messages.Welcome((), 6_000, "h0"),
    ):
        worker.hear(ins.Send(worker.session, old_epoch, message))
    world.run()
    assert worker.held == before


@pytest.mark.parametrize("newer_first", [False, True])
def test_the_newer_of_two_claims_to_a_new_leader_wins_in_either_order(world: World, newer_first: bool) -> None:
    unit = UnitId("a", 0)
    newer = owner_of(world, unit)
    older = next(worker for worker in world.workers.values() if worker is not newer)
    mine = newer.held[unit]
    world.kill_herder()
    assignment = replace(mine.assignment, generation=mine.assignment.generation - 1)
    older.held[unit] = Held(assignment, RunState.RUNNING, TargetState.STARTED, 4)
    since = len(world.starts)
    first, second = (newer, older) if newer_first else (older, newer)
    second.frozen = True
    world.lead()
    world.advance(1_500)
    second.thaw()
    world.advance(10_000)
    assert unit not in older.held
    assert newer.held[unit].assignment == mine.assignment
    assert len(world.starts) == since
    assert first.session is not None


def test_a_running_status_of_a_worker_that_never_dials_in_blocks_only_until_the_timeout(world: World) -> None:
    """Its lease stays live: it reaches the status store, and no herder."""
    world.kill_herder()
    lost = world.workers["w2"]
    had = set(lost.held)
    lost.frozen = True
    since = len(world.starts)
    world.lead()
    for _ in range(14):
        world.post(ev.LeasesChanged([Lease(name, world.workers[name].incarnation, True) for name in world.workers]))
        world.advance(500)
    assert {start.unit for _, start in world.starts[since:]} == had
    assert {name for name, _ in world.starts[since:]} == {"w1", "w3"}


def test_units_of_a_lost_worker_wait_for_workers_that_notice_a_frozen_leader_late(world: World) -> None:
    """The leader's epoch ends two seconds before its workers notice. Units given to the first worker to dial in would
    move on to the next.
    """
    had, since = set(world.workers["w3"].held), len(world.starts)
    world.kill_herder()
    world.kill("w3")
    late = world.workers["w2"]
    late.frozen = True
    world.lead()
    for at_ms in range(0, 3_000, 500):
        assert len(world.starts) == since, f"{at_ms} ms after it began to lead"
        lives = {"w1": True, "w2": True, "w3": False}
        world.post(ev.LeasesChanged([Lease(name, world.workers[name].incarnation, lives[name]) for name in lives]))
        world.advance(500)
    late.thaw()
    world.advance(10_000)
    assert Counter(start.unit for _, start in world.starts[since:]) == Counter(had), "each once"


def test_leader_changes_while_workers_dial_in_restart_nothing(world: World) -> None:
    since = len(world.starts)
    world.delay_ms = lambda: 20
    for _ in range(5):
        world.lead()
        world.advance(30)  # hellos are on their way, or their welcomes
    world.advance(10_000)
    assert nothing_restarted(world, since)


def test_a_second_session_before_the_end_of_the_first_restarts_nothing(world: World) -> None:
    since = len(world.starts)
    worker = world.workers["w1"]
    first = worker.session
    assert first is not None
    worker.dial()
    world.run()
    world.post(ev.StreamBroken(first))
    world.advance(5_000)
    assert worker.session != first
    assert nothing_restarted(world, since)


@pytest.mark.parametrize("stage", [ins.CommitTasks, ins.PutTaskCount])
@pytest.mark.parametrize("written", [False, True])
def test_a_leader_that_dies_during_a_task_set_write_starts_each_task_once(stage: type, written: bool) -> None:
    """Whether the write took effect or not, the next leader finishes the set and starts each task once. A set that
    follows a running one is counted in a write of its own.
    """
    world = Writes(stage, written)
    world.lead()
    world.worker("w1")
    world.worker("w2")
    if stage is ins.PutTaskCount:
        world.ask(CreateConnector("a", sink(2)))
    before = len(world.starts)
    world.ask(UpdateConnector("a", sink(4), allow_missing=True))
    assert world.stopped_at is not None
    world.stage = None
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    assert sorted(world.placed().values()) == [2, 2]
    starts = [start.unit for _, start in world.starts[before:]]
    assert len(starts) == len(set(starts)) == 5


class Writes(World):
    """A world in which one kind of write is never answered, whether it took effect or not."""

    def __init__(self, stage: type, written: bool) -> None:
        super().__init__()
        self.stage: type | None = stage
        self.written = written
        self.stopped_at: object = None

    def _carry_out(self, instruction: ins.Instruction) -> None:
        if self.stage is not None and isinstance(instruction, self.stage):
            self.stopped_at = instruction
            if self.written and isinstance(instruction, ins.CommitTasks | ins.PutTaskCount):
                self.config.write(instruction)
            return
        super()._carry_out(instruction)


def test_the_newer_of_two_crossing_grants_counts() -> None:
    herder = Herder(Rules(herder_id="h1"))
    herder.handle(ev.ConfigSnapshot([], revision(5), epoch=4), 0)
    herder.handle(ev.LeadershipGranted(4, 4_000, 5_000, 10**9, "h1", "here:1"), 0)
    assert herder.refusal is None
    herder.handle(ev.LeadershipFollowing("h2", "there:1", 5), 10)
    assert herder.refusal is not None
    herder.handle(ev.EpochRecorded(5, revision(6)), 20)
    assert herder.refusal is not None, "the epoch recorded is another's"


class Story:
    """A story of random events; the invariants are checked after each one."""

    def __init__(self) -> None:
        self.world = World()
        self.world.generations_per_block = 40
        self.world.lead()
        for number in range(3):
            self.world.worker(f"w{number}")
        self.seen = 0
        self.orders: dict[UnitId, tuple[int, int]] = {}

    def check(self) -> None:
        """Every start has a higher order than earlier ones of its unit; of several holders of a task at most one is not
        fenced.
        """
        for _, start in self.world.starts[self.seen :]:
            assert start.assignment.order > self.orders.get(start.unit, (0, 0)), (
                f"{start.unit} started under an old one"
            )
            self.orders[start.unit] = start.assignment.order
        self.seen = len(self.world.starts)
        for unit, names in self.world.running().items():
            if unit.task is None or len(names) < 2:
                continue
            held = sorted((self.world.workers[name].held[unit] for name in names), key=lambda one: one.assignment.order)
            fenced_ms = self.world.fenced_ms.get((unit.connector, unit.task), -1)
            for older in held[:-1]:
                took_over = held[-1].state is RunState.RUNNING
                assert not took_over or older.since_ms <= fenced_ms, f"{unit} has two owners past a fence"


def _actions(story: Story) -> dict[str, Callable[[], object]]:
    world = story.world

    def of(name: str) -> Worker:
        return world.workers[name]

    def call(request: Request) -> Callable[[], object]:
        return lambda: world.call(request, timeout_ms=10_000)

    actions: dict[str, Callable[[], object]] = {
        "lead": world.lead,
        "die": world.kill_herder,
        "create": call(CreateConnector("a", sink(3))),
        "grow": call(UpdateConnector("a", sink(4))),
        "shrink": call(UpdateConnector("a", sink(2))),
        "restart": call(RestartConnector("a", include_tasks=True)),
        "stop": call(SetTarget("a", TargetState.STOPPED)),
        "start": call(SetTarget("a", TargetState.STARTED)),
        "other": call(CreateConnector("b", sink(2))),
    }
    for name in ("w0", "w1", "w2"):
        actions[f"{name} freezes"] = lambda name=name: setattr(of(name), "frozen", True)
        actions[f"{name} thaws"] = lambda name=name: of(name).thaw()
        actions[f"{name} loses its stream"] = lambda name=name: world.hang_up(of(name))
        actions[f"{name} is killed"] = lambda name=name: world.kill(name)
        actions[f"{name} comes back"] = lambda name=name: None if of(name).alive else world.revive(name)
    return actions


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(_actions(Story()))), st.sampled_from([0, 50, 700, 3_000])), max_size=25)
)
def test_generations_never_go_back_and_no_task_has_two_unfenced_owners(steps: list[tuple[str, int]]) -> None:
    story = Story()
    actions = _actions(story)
    for name, wait_ms in [("create", 0), ("other", 500), *steps]:
        actions[name]()
        story.world.advance(wait_ms)
        story.check()
    story.world.advance(5_000)
    story.check()
