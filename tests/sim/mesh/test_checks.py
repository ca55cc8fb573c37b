"""Details of the stories' checks that no mutant distinguishes: the worker life to which a drain applies and the leaders
that cannot know of it, the end of a lease, the statuses of removed tasks that may stay, and the renewal of a restart
budget.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    Draining,
    DrainWorker,
    PlanConfig,
    Request,
    RestartConnector,
    SetTarget,
    UpdateConnector,
)
from herdmesh.session import messages
from herdmesh.session.messages import SendCommand
from herdmesh.session.model import Assignment, TargetState, UnitId
from herdmesh.session.worker_commands import SetDraining
from herdmesh.topicstore.contract import Revision
from herdmesh.worker.state import events
from tests.sim.mesh import verdict
from tests.sim.mesh.clients import Client, Operation, Outcome
from tests.sim.mesh.mutants import MUTANTS
from tests.sim.mesh.status_store import LEASE_MS
from tests.sim.mesh.story import quiet
from tests.sim.mesh.worker import WorkerProcess
from tests.sim.mesh.world import World, simulated


def _drain(worker: WorkerProcess) -> events.Command:
    return events.Command(worker.state.epoch_max, SendCommand("SetDraining-1", SetDraining(draining=True)))


@pytest.mark.parametrize("recorded_late", [False, True])
@pytest.mark.parametrize("noted", ["before it was asked", "in the life before", "in this life", "never"])
def test_a_drain_applies_to_the_worker_life_that_received_it_during_the_request(
    noted: str, recorded_late: bool
) -> None:
    """Whenever the request began, and also when the record waited until that life was over."""
    quiet()
    with simulated():
        world = World(0)
        worker, checker = world.workers[0], world.checker

        def note(at: str) -> None:
            if noted == at:
                checker.commanded(worker, _drain(worker))

        world.begin()
        world.advance(1_000)
        note("before it was asked")
        world.advance(1_000)
        operation = Operation("client-1-0", DrainWorker(worker.name), begun_ms=world.now)
        note("in the life before")
        if not recorded_late:
            checker._applied(operation.id, "RecordDrain")  # pyright: ignore[reportPrivateUsage]
        worker.kill()
        world.restart(worker)
        note("in this life")
        if recorded_late:
            checker._applied(operation.id, "RecordDrain")  # pyright: ignore[reportPrivateUsage]
        operation.outcome, operation.answer = Outcome.ACKNOWLEDGED, Draining(worker.name)
        checker.answered(operation)
    assert (worker.incarnation in checker.drained) == (noted == "in this life")
    wrong = noted in ("before it was asked", "never")
    assert [found.check for found in checker.violations] == ["acknowledged, not in effect"] * wrong


def test_an_acknowledged_drain_that_was_never_recorded_is_a_violation() -> None:
    """Although the worker received the drain: the caller's retry would not find it."""
    quiet()
    with simulated():
        world = World(0)
        worker, checker = world.workers[0], world.checker
        world.begin()
        operation = Operation("client-1-0", DrainWorker(worker.name), begun_ms=world.now)
        checker.commanded(worker, _drain(worker))
        operation.outcome, operation.answer = Outcome.ACKNOWLEDGED, Draining(worker.name)
        checker.answered(operation)
    assert [found.check for found in checker.violations] == ["acknowledged, not in effect"]


@pytest.mark.parametrize("of", ["the leader before", "the leader that was asked"])
@pytest.mark.parametrize("over", ["the stream before", "its stream"])
def test_only_an_old_leader_over_an_abandoned_stream_may_start_a_unit_on_a_drained_worker(of: str, over: str) -> None:
    """Its machine sleeps with a new connector not yet read, and its successor drains all workers. It wakes up and
    starts that connector before it reads of the newer epoch; no worker gets the start. Any other start is a violation.
    """
    quiet()
    with simulated():
        world = World(0)
        client, checker = Client("client-0", world), world.checker
        world.begin()
        world.network.heal_all()
        world.advance(8_000)
        sleeper = world.leader()
        assert sleeper is not None
        created = client.ask(CreateConnector("a", {"connector.class": "Sink"}))
        while not checker.applied[created.id]:
            world.advance(1)
        sleeper.freeze()
        left = {worker: worker.session.stream for worker in world.workers}
        world.advance(20_000)
        leader, drainer = world.leader(), Client("client-1", world)
        assert leader is not None
        drainer._follow(leader.address)  # pyright: ignore[reportPrivateUsage]
        drains = [drainer.ask(DrainWorker(worker.name)) for worker in world.workers]
        world.advance(1_000)
        assert all(drain.outcome is Outcome.ACKNOWLEDGED for drain in drains)
        begun = len(checker.starts[UnitId("a")])
        sleeper.thaw(clock_stood_still=True)
        (start,) = checker.starts[UnitId("a")][begun:]
        world.advance(5_000)
        assert start.herder_id == sleeper.herder_id
        assert not checker.violations
        worker = next(worker for worker in world.workers if worker.name == start.worker)
        herder = sleeper if of == "the leader before" else leader
        stream = left[worker] if over == "the stream before" else worker.session.stream
        assert stream is not None
        epoch = start.order[0] if herder is sleeper else worker.state.epoch_max
        again = messages.StartUnit(UnitId("a"), Assignment(epoch, 1), {}, None, TargetState.STARTED, 0, 1, None, None)
        checker.sent(herder, ins.Send(0, epoch, again), stream)
    found = {violation.check for violation in checker.violations}
    excused = (of, over) == ("the leader before", "the stream before")
    assert ("drained worker gets no work" in found) == (not excused)


@pytest.mark.parametrize("mutant", [None, "lease never ends"])
def test_a_leap_of_the_writers_clock_extends_the_lease_of_a_dead_worker_only_once(mutant: str | None) -> None:
    """A new writer grants a lease to workers that were alive to the last one; its clock leaps, and it grants another
    one, as after a stall. That one ends, or the check finds it.
    """
    quiet()
    with simulated(), MUTANTS[mutant]() if mutant else nullcontext():
        world = World(0)
        worker, (first, second) = world.workers[0], world.status
        world.begin()
        world.network.heal_all()
        world.advance(3_000)
        world.down |= {worker, first}
        first.kill()
        worker.kill()
        world.advance(5_000)
        assert second.claims
        second.jump(5_000)
        world.advance(10_500)
        # In its second lease.
        (lease,) = (one for one in second.keeper.table.leases() if one.worker_id == worker.name)
        assert lease.live
        assert not world.checker.violations
        world.advance(3_500)
        (lease,) = (one for one in second.keeper.table.leases() if one.worker_id == worker.name)
    assert lease.live == (mutant is not None)
    found = {violation.check for violation in world.checker.violations}
    assert found == ({"status equals truth within a lease"} if mutant else set())


@pytest.mark.parametrize("mutant", [None, "statuses of deleted connectors stay"])
@pytest.mark.parametrize("before", [TargetState.PAUSED, TargetState.STOPPED])
def test_the_status_of_a_removed_task_stays_only_while_a_task_or_its_connector_waits_for_a_worker(
    before: TargetState, mutant: str | None
) -> None:
    """A later task, which after a stop exists only once its connector runs, must get the removed task's commit scope,
    and every worker drains. After that the status is deleted, or the check finds it.
    """
    quiet()
    with simulated(), MUTANTS[mutant]() if mutant else nullcontext():
        world = World(0)
        client, worker = Client("client-0", world), world.workers[0]

        def ask(request: Request) -> None:
            operation = client.ask(request)
            world.advance(5_000)
            assert operation.outcome is Outcome.ACKNOWLEDGED

        world.begin()
        world.network.heal_all()
        world.advance(8_000)
        ask(CreateConnector("a", {"connector.class": "Sink", "tasks.max": "2"}))
        ask(SetTarget("a", before))
        ask(UpdateConnector("a", {"connector.class": "Sink", "tasks.max": "1"}))
        for one in world.workers:
            ask(DrainWorker(one.name))
        if before is TargetState.STOPPED:
            ask(RestartConnector("a"))  # else the worker that has it keeps it
        ask(SetTarget("a", TargetState.STARTED))
        world.advance(20_000)
        assert set(verdict.holdings(world)) == ({UnitId("a")} if before is TargetState.PAUSED else set())
        assert not verdict.problems(world)
        worker.kill()
        world.restart(worker)
        world.advance(20_000)
        assert UnitId("a", 0) in verdict.holdings(world)
        assert verdict.problems(world) == ["a status of a-1 is left"] * (mutant is not None)
        assert not world.checker.violations


@pytest.mark.parametrize("renewed_by", [None, RestartConnector("a"), UpdateConnector("a", {"connector.class": "Sink"})])
def test_only_a_requested_restart_or_another_config_renews_the_restart_budget(renewed_by: Request | None) -> None:
    """Once a connector has spent it, a plan, a pause with its resume, and a refused update renew nothing: one
    more restart is a violation. A requested restart allows as many again, another config has its own budget.
    """
    quiet()
    with simulated():
        world = World(0)
        client, checker = Client("client-0", world), world.checker
        world.begin()
        world.network.heal_all()
        world.advance(8_000)

        def ask(request: Request, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
            operation = client.ask(request)
            world.advance(5_000)
            assert operation.outcome is outcome

        def restart(number: int) -> None:
            """A herder's restart of the assignment that runs now, or of the one that would run after another
            failure.
            """
            worker, holding = verdict.holdings(world)[unit][0]
            leader, stream = world.leader(), worker.session.stream
            assert leader is not None
            assert stream is not None
            one = holding.assignment
            revision = Revision("config", (world.config_log.state.connectors["a"].config_revision,))
            failed = Assignment(one.epoch, one.generation + number, one.incarnation, revision, one.task_digest)
            checker.sent(leader, ins.Send(0, one.epoch, messages.StopUnit(unit, failed, "it failed")), stream)

        unit = UnitId("a")
        ask(CreateConnector("a", {"connector.class": "Sink", "tasks.max": "1"}))
        for number in range(world.restart_policy.attempts_max):
            restart(number)
            restart(number)  # sent again: its session was lost
        assert not checker.violations
        ask(PlanConfig("a", {"connector.class": "Sink", "tasks.max": "1"}))
        ask(SetTarget("a", TargetState.PAUSED))
        ask(SetTarget("a", TargetState.STARTED))
        ask(UpdateConnector("a", {"connector.class": "Sink", "wrong": "yes"}), Outcome.REFUSED)
        if renewed_by is not None:
            ask(renewed_by)
        restart(world.restart_policy.attempts_max)
    found = [violation.check for violation in checker.violations]
    assert found == ["restart budget kept"] * (renewed_by is None)


@pytest.mark.parametrize("mutant", [None, "UNASSIGNED never written"])
def test_a_released_task_is_not_shown_as_running_for_longer_than_a_lease(mutant: str | None) -> None:
    """Its connector is stopped, which keeps the tasks' statuses, and the verdict on an idle mesh does not check
    those.
    """
    quiet()
    with simulated(), MUTANTS[mutant]() if mutant else nullcontext():
        world = World(0)
        client = Client("client-0", world)
        world.begin()
        world.network.heal_all()
        world.advance(8_000)
        for request in (
            CreateConnector("a", {"connector.class": "Sink", "tasks.max": "1"}),
            SetTarget("a", TargetState.STOPPED),
        ):
            client.ask(request)
            world.advance(5_000)
        assert not world.checker.violations
        world.advance(10_000)
        assert not verdict.problems(world)
    found = {violation.check for violation in world.checker.violations}
    assert found == ({"status equals truth within a lease"} if mutant else set())


def test_a_task_silently_lost_by_its_worker_is_found_at_the_store_and_at_the_leader() -> None:
    """Both show it as RUNNING for longer than a lease; the checks report neither before."""
    quiet()
    with simulated():
        world = World(0)
        client, unit = Client("client-0", world), UnitId("a", 0)
        world.begin()
        world.network.heal_all()
        world.advance(8_000)
        client.ask(CreateConnector("a", {"connector.class": "Sink", "tasks.max": "1"}))
        world.advance(10_000)
        worker, held = verdict.holdings(world)[unit][0]
        del worker.state.tasks._tasks[held.unit]  # pyright: ignore[reportPrivateUsage]
        world.advance(LEASE_MS)
        assert not world.checker.violations
        world.advance(LEASE_MS + 4_000)
        leader = world.leader()
        assert leader is not None
    shown_by = {violation.text.partition(" ")[0] for violation in world.checker.violations}
    assert shown_by == {leader.name, next(one.name for one in world.status if one.claims)}
    assert {violation.check for violation in world.checker.violations} == {"status equals truth within a lease"}
