"""Hedged commands: a command that a worker does not answer in time is sent to others."""

from __future__ import annotations

import pytest

from herdmesh.herder.state.calls.hedged_commands import HEDGE_MS, WORKERS_MAX
from herdmesh.herder.state.model import ClusterLevel
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    GetPlugin,
    PlanConfig,
    Planned,
    PluginDescribed,
    Request,
    UpdateConnector,
    ValidateConfig,
    Validated,
    Written,
)
from herdmesh.rpc.errors import Timeout
from herdmesh.session import messages
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import OffsetEntry, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import SINK, SOURCE


class Asking(World):
    """World that records the commands that each worker got."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def _carry_out(self, instruction: ins.Instruction) -> None:
        match instruction:
            case ins.Send(session=session, message=messages.SendCommand(command=body)):
                worker = next(one.id for one in self.workers.values() if one.session == session)
                self.asked.append((worker, type(body).__name__))
            case _:
                pass
        super()._carry_out(instruction)


@pytest.fixture
def world() -> Asking:
    """A leader, a worker that has another plugin, and five equal ones, of which w1 gets commands first."""
    world = Asking()
    world.lead()
    world.worker("w0", (SOURCE,))
    for number in range(1, 6):
        world.worker(f"w{number}", (SINK,))
    return world


CALLS = [
    (ValidateConfig(sink(1)), Validated, qu.ValidateOnWorker),
    (PlanConfig("a", sink(1)), Planned, qu.ValidateOnWorker),
    (PlanConfig("a", sink(1)), Planned, qu.PlanTaskConfigs),
    (GetPlugin("TestSink"), PluginDescribed, qu.DescribePlugin),
    (CreateConnector("a", sink(1)), Written, qu.ValidateOnWorker),
]


@pytest.mark.parametrize(("request_", "answer", "body"), CALLS)
def test_another_worker_with_the_plugin_gets_the_command_after_two_seconds(
    world: Asking, request_: Request, answer: type, body: type
) -> None:
    world.workers["w1"].deaf_to = body
    number = world.call(request_)
    world.advance(HEDGE_MS - 200)
    assert number not in world.answers
    assert [worker for worker, kind in world.asked if kind == body.__name__] == ["w1"]
    world.advance(400)
    assert isinstance(world.answers[number], answer)
    assert [worker for worker, kind in world.asked if kind == body.__name__] == ["w1", "w2"]


def test_the_first_reply_counts_and_the_late_one_changes_nothing(world: Asking) -> None:
    w1 = world.workers["w1"]
    w1.deaf_to = qu.ValidateOnWorker
    number = world.call(CreateConnector("a", sink(1)))
    world.advance(HEDGE_MS + 200)
    assert isinstance(world.answers[number], Written)
    (late,) = w1.unanswered
    w1.deaf_to = None
    w1.hear(late)
    world.advance(1_000)
    assert len(world.config.entries) == 1
    assert world.config.entries["a"].target in (None, TargetState.STARTED)


def test_a_command_goes_to_three_workers_at_most_once_each(world: Asking) -> None:
    for worker in world.workers.values():
        worker.deaf_to = qu.ValidateOnWorker
    number = world.call(ValidateConfig(sink(1)), timeout_ms=30_000)
    world.advance(30_500)
    assert [worker for worker, _ in world.asked] == ["w1", "w2", "w3"][:WORKERS_MAX]
    assert isinstance(world.answers[number], Timeout)


def test_a_command_is_not_hedged_without_a_second_worker_with_the_plugin() -> None:
    world = Asking()
    world.lead()
    world.worker("w0", (SOURCE,))
    world.worker("w1", (SINK,))
    world.workers["w1"].deaf_to = qu.ValidateOnWorker
    number = world.call(ValidateConfig(sink(1)))
    world.advance(10_000)
    assert world.asked == [("w1", "ValidateOnWorker")]
    assert isinstance(world.answers[number], Timeout)


def test_a_lost_worker_of_a_hedged_command_is_not_replaced_by_a_third(world: Asking) -> None:
    world.workers["w1"].deaf_to = world.workers["w2"].deaf_to = qu.ValidateOnWorker
    number = world.call(ValidateConfig(sink(1)), timeout_ms=10_000)
    world.advance(HEDGE_MS + 100)
    world.kill("w1")
    world.advance(300)
    assert [worker for worker, _ in world.asked] == ["w1", "w2"]
    world.kill("w2")
    world.advance(300)
    assert isinstance(world.answers[number], Validated)


@pytest.mark.parametrize("silent_ms", [0, 2_500])
def test_a_silent_worker_gets_commands_only_when_all_are_silent(world: Asking, silent_ms: int) -> None:
    world.workers["w1"].frozen = True
    world.advance(silent_ms)
    number = world.call(CreateConnector("a", sink(1), None, (OffsetEntry("{}", "{}"),)))
    world.advance(400)
    assert (number in world.answers) is bool(silent_ms)
    assert {worker for worker, _ in world.asked} == ({"w2"} if silent_ms else {"w1"})


def test_an_old_set_is_fenced_by_a_worker_that_is_not_silent(world: Asking) -> None:
    world.ask(CreateConnector("a", sink(3)))
    first = world.worker("v1", (SINK,))  # the first by id, and it holds nothing
    holder = next(one for one in world.workers.values() if one.held and UnitId("a") not in one.held)
    holder.frozen = True
    world.ask(UpdateConnector("a", sink(2)))
    world.advance(3_000)
    first.frozen = True
    world.advance(3_500)  # the holder counts as lost, and has not acknowledged its stop
    assert [worker for worker, kind in world.asked if kind == "FenceTasks"] == ["w1"]


def test_commands_that_change_something_are_not_hedged(world: Asking) -> None:
    """A changed level is sent to each worker once."""
    for worker in world.workers.values():
        worker.deaf_to = qu.SetLogger
    world.post(ev.LoggerRecorded(ClusterLevel("herdmesh", "DEBUG", world.config.next()), None))
    world.advance(5 * HEDGE_MS)
    assert len(world.asked) == len(world.workers)
