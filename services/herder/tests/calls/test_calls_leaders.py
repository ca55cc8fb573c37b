"""Calls in flight while the leader changes: every operation, cut off after every message on its way.

Three ways to lose a leader: its process dies and its sent messages are lost with it; it dies and its messages to the
config store arrive all the same, later than the next leader; it steps down and lives on. The caller retries its request
under the same id, as every client of ours does, until it gets an answer other than "try again". In every case that
answer is right, the request is in effect, and it was carried out once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    Answer,
    CreateConnector,
    DeadLettersAnswer,
    DeleteConnector,
    Draining,
    DrainWorker,
    GetLoggers,
    GetOffsets,
    GetPlugin,
    ListDeadLetters,
    LoggersListed,
    LoggersSet,
    OffsetEntry,
    OffsetsAnswer,
    PatchConnector,
    PlanAction,
    PlanConfig,
    Planned,
    PluginDescribed,
    ReplayDeadLetters,
    Request,
    RestartConnector,
    Restarting,
    RestartTask,
    SetLoggers,
    SetTarget,
    UndrainWorker,
    UpdateConnector,
    ValidateConfig,
    Validated,
    WriteOptions,
    Written,
)
from herdmesh.rpc.errors import HerdmeshError, NotLeader, NoWorker, Unavailable, WorkerNotFound
from herdmesh.session.model import RunState, TargetState, UnitId
from herdmesh.session.worker_commands import ReplayOnWorker
from services.herder.tests.world import BROKEN, World, sink

#: more messages than any call needs until its answer.
MESSAGES_MAX = 9
RETRIES_MAX = 30
AGAIN = (Unavailable, NotLeader)


class Loss(Enum):
    """Ways to lose the leader."""

    DIES = "dies"
    DIES_SENT = "dies, what it sent arrives"
    STEPS_DOWN = "steps down"


@dataclass(frozen=True)
class Operation:
    """A request, its preparation, and the check of its outcome."""

    request: Request
    right: Callable[[World, Answer], bool]
    #: exactly the units that it starts again.
    restarts: tuple[UnitId, ...] = ()
    before: Callable[[World], object] = lambda _: None
    written: bool = True


def _config(world: World, name: str) -> dict[str, object]:
    return dict(world.config.entries[name].config)


def _target(world: World) -> TargetState | None:
    return world.config.entries["a"].target


def _restarted(_world: World, answer: Answer) -> bool:
    return isinstance(answer, Restarting) and any(item.restarted for item in answer.items)


def _replays(world: World) -> set[object]:
    asked = (body for worker in world.workers.values() for body in worker.answers.asked)
    return {body.wire for body in asked if isinstance(body, ReplayOnWorker)}


def _fail_a_task(world: World) -> None:
    world.fail(next(one for one in world.workers.values() if A1 in one.held), A1, BROKEN)


A, A0, A1 = UnitId("a"), UnitId("a", 0), UnitId("a", 1)
B, B0 = UnitId("b"), UnitId("b", 0)
AT_7 = (OffsetEntry('{"filename":"a.txt"}', '{"position":7}'),)
OPERATIONS: dict[str, Operation] = {
    "create": Operation(
        CreateConnector("b", sink(1)),
        lambda world, answer: isinstance(answer, Written) and answer.created and _config(world, "b")["name"] == "b",
        restarts=(B, B0),
    ),
    "create stopped": Operation(
        CreateConnector("b", sink(1), TargetState.STOPPED),
        lambda world, answer: isinstance(answer, Written) and world.config.entries["b"].target is TargetState.STOPPED,
        restarts=(B,),
    ),
    "create with offsets": Operation(
        CreateConnector("b", sink(1), initial_offsets=AT_7),
        lambda world, answer: isinstance(answer, Written) and answer.created and set(world.offsets["b"]) == {AT_7},
        restarts=(B, B0),
    ),
    "update": Operation(
        UpdateConnector("a", sink(2, note="new")),
        lambda world, answer: (
            isinstance(answer, Written) and not answer.created and _config(world, "a")["note"] == "new"
        ),
        restarts=(A, A0, A1),
    ),
    "update or create": Operation(
        UpdateConnector("b", sink(1), allow_missing=True),
        lambda _, answer: isinstance(answer, Written) and answer.created,
        restarts=(B, B0),
    ),
    "patch": Operation(
        PatchConnector("a", {"note": "patched", "file": None}),
        lambda world, answer: (
            isinstance(answer, Written)
            and _config(world, "a").get("note") == "patched"
            and "file" not in _config(world, "a")
        ),
        restarts=(A, A0, A1),
    ),
    "delete": Operation(
        DeleteConnector("a"),
        lambda world, answer: isinstance(answer, Written) and not world.config.entries["a"].has_config,
    ),
    "pause": Operation(
        SetTarget("a", TargetState.PAUSED),
        lambda world, answer: isinstance(answer, Written) and _target(world) is TargetState.PAUSED,
    ),
    "resume": Operation(
        SetTarget("a", TargetState.STARTED),
        lambda world, answer: isinstance(answer, Written) and _target(world) is TargetState.STARTED,
        before=lambda world: world.ask(SetTarget("a", TargetState.PAUSED)),
    ),
    "stop": Operation(
        SetTarget("a", TargetState.STOPPED),
        lambda world, answer: isinstance(answer, Written) and _target(world) is TargetState.STOPPED,
    ),
    "restart the connector": Operation(RestartConnector("a"), _restarted, restarts=(A,)),
    "restart all": Operation(RestartConnector("a", include_tasks=True), _restarted, restarts=(A, A0, A1)),
    "restart what failed": Operation(
        RestartConnector("a", include_tasks=True, only_failed=True), _restarted, restarts=(A1,), before=_fail_a_task
    ),
    "restart a task": Operation(RestartTask("a", 0), _restarted, restarts=(A0,)),
    "validate": Operation(ValidateConfig(sink(1)), lambda _, answer: isinstance(answer, Validated), written=False),
    "plan": Operation(
        PlanConfig("a", sink(2, note="new")),
        lambda _, answer: (
            isinstance(answer, Planned) and {step.action for step in answer.steps} == {PlanAction.RESTART}
        ),
        written=False,
    ),
    "drain": Operation(
        DrainWorker("w3"),
        lambda world, answer: isinstance(answer, Draining) and world.workers["w3"].draining,
    ),
    "undrain": Operation(
        UndrainWorker("w3"),
        lambda world, answer: isinstance(answer, Draining) and not world.workers["w3"].draining,
        before=lambda world: world.ask(DrainWorker("w3")),
    ),
    "set a level": Operation(
        SetLoggers("org.foo", "DEBUG"),
        lambda world, answer: (
            isinstance(answer, LoggersSet)
            and all(worker.answers.levels.get("org.foo") == "DEBUG" for worker in world.workers.values())
        ),
    ),
    "set a level of one worker": Operation(
        SetLoggers("org.foo", "DEBUG", "w3"),
        lambda world, answer: (
            answer == LoggersSet(("org.foo",)) and world.workers["w3"].answers.levels.get("org.foo") == "DEBUG"
        ),
        written=False,
    ),
    "list dead letters": Operation(
        ListDeadLetters("a", "which"), lambda _, answer: answer == DeadLettersAnswer("told of which"), written=False
    ),
    # A worker recognises an earlier replay by the id in the request: each worker gets the request unchanged.
    "replay dead letters": Operation(
        ReplayDeadLetters("a", "which"),
        lambda world, answer: answer == DeadLettersAnswer("told of which") and _replays(world) == {"which"},
        written=False,
    ),
    "get offsets": Operation(
        GetOffsets("a"),
        lambda _, answer: answer == OffsetsAnswer(AT_7),
        before=lambda world: world.offsets.update(a=[AT_7]),
        written=False,
    ),
    "get a plugin": Operation(
        GetPlugin("TestSink"),
        lambda _, answer: isinstance(answer, PluginDescribed) and answer.fields == ("fields of TestSink",),
        written=False,
    ),
    "get levels": Operation(
        GetLoggers("root"),
        lambda _, answer: (
            isinstance(answer, LoggersListed)
            and [(worker_id, level.level) for worker_id, level in answer.loggers]
            == [("w1", "INFO"), ("w2", "INFO"), ("w3", "INFO")]
        ),
        written=False,
    ),
}


def prepared(operation: Operation) -> World:
    """Two workers that share connector `a` of two tasks, a third that can run none of it; each message takes 1 ms."""
    world = World(delay_ms=lambda: 1)
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.worker("w3", ())
    world.advance(50)
    number = world.call(CreateConnector("a", sink(2, file="x")))
    world.advance(100)
    assert isinstance(world.answers[number], Written)
    world.delay_ms = lambda: 0
    operation.before(world)
    world.run()
    world.delay_ms = lambda: 1
    return world


def lose_leader(world: World, loss: Loss) -> None:
    """End the leader, elect another, and let the workers dial in to it."""
    world.writes_outlive = loss is Loss.DIES_SENT
    if loss is Loss.STEPS_DOWN:
        world.post(ev.LeadershipLost("it was told to"))
        world.advance(30)
    world.lead()
    world.advance(600)


def answered(world: World, operation: Operation, number: int) -> Answer:
    """The final answer, to the first call or to a retry of it."""
    for _ in range(RETRIES_MAX):
        answer = world.answers.get(number)
        if answer is not None and not isinstance(answer, HerdmeshError):
            return answer
        assert answer is None or isinstance(answer, AGAIN), f"not to be tried again: {answer!r}"
        number = world.call(operation.request, WriteOptions("id"))
        world.advance(200)
    raise AssertionError("no answer")


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name.lower())
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_cut_off_by_a_leader_change_is_carried_out_once(name: str, loss: Loss) -> None:
    operation = OPERATIONS[name]
    for messages in range(MESSAGES_MAX + 1):
        world = prepared(operation)
        world.writes_outlive = loss is Loss.DIES_SENT
        begun = len(world.starts)
        number = world.call(operation.request, WriteOptions("id"), timeout_ms=60_000)
        world.advance(messages)
        lose_leader(world, loss)
        answer = answered(world, operation, number)
        world.advance(300)
        where = f"{name}, {loss.value} after {messages} messages"
        assert operation.right(world, answer), f"{where}: {answer}"
        assert world.config.applied.count("id") == operation.written, where
        # Units without a worker at the change go to the first worker to dial in, and may be moved for balance.
        started = Counter((start.unit, worker) for worker, start in world.starts[begun:])
        assert {unit for unit, _ in started} == set(operation.restarts), f"{where}: {started}"
        assert set(started.values()) <= {1}, f"{where}: {started}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_without_a_leader_change_needs_no_retry(name: str) -> None:
    operation = OPERATIONS[name]
    world = prepared(operation)
    begun = len(world.starts)
    number = world.call(operation.request, WriteOptions("id"))
    world.advance(MESSAGES_MAX)
    answer = world.answers[number]
    assert not isinstance(answer, HerdmeshError)
    assert operation.right(world, answer)
    world.advance(200)
    assert Counter(start.unit for _, start in world.starts[begun:]) == Counter(operation.restarts)


def test_a_retry_gets_the_first_outcome_after_later_changes() -> None:
    """A new leader queries the store before it refuses a request by its own checks."""
    done: list[tuple[str, Request]] = [
        ("create", CreateConnector("b", sink(1))),
        ("update", UpdateConnector("a", sink(2, note="new"))),
        ("patch", PatchConnector("a", {"note": "newer"})),
        ("restart", RestartConnector("a", include_tasks=True)),
        ("task", RestartTask("a", 1)),
        ("pause", SetTarget("a", TargetState.PAUSED)),
        ("delete", DeleteConnector("b")),
    ]
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(2)))
    first = {request_id: world.ask(request, WriteOptions(request_id)) for request_id, request in done}
    world.ask(DeleteConnector("a"))
    world.advance(5_000)
    world.kill("w1")
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    begun, applied = len(world.starts), list(world.config.applied)
    for request_id, request in done:
        again = world.ask(request, WriteOptions(request_id))
        if isinstance(again, Written):
            before = first[request_id]
            assert isinstance(before, Written)
            assert (again.name, again.created) == (before.name, before.created)
        else:
            assert again == first[request_id]
    assert (len(world.starts), world.config.applied) == (begun, applied), "nothing was done again"
    for request_id, request in done:
        with pytest.raises(HerdmeshError):
            world.ask(request, WriteOptions(f"{request_id}, asked anew"))


def test_an_answered_restart_is_carried_out_by_the_next_leader() -> None:
    """The caller has the answer, and no worker has a command yet."""
    world = prepared(OPERATIONS["restart all"])
    held = {unit: held.starts for one in world.workers.values() for unit, held in one.held.items()}
    number = world.call(RestartConnector("a", include_tasks=True))
    for worker in world.workers.values():
        worker.frozen = True  # messages to it are lost with the stream from here
    world.advance(MESSAGES_MAX)
    assert isinstance(world.answers[number], Restarting)
    for worker in world.workers.values():
        worker.frozen = False
        worker.backlog.clear()
    begun = len(world.starts)
    world.kill_herder()
    world.lead()
    world.advance(1_500)
    assert Counter(start.unit for _, start in world.starts[begun:]) == Counter(held)
    world.kill_herder()
    world.lead()
    world.advance(1_500)
    assert len(world.starts) == begun + 3, "a third leader has nothing left to do"
    view = world.herder.connector("a")
    assert view is not None
    assert [view.status.state, *(task.status.state for task in view.tasks)] == [RunState.RUNNING] * 3


def test_a_drain_retried_after_its_undrain_drains_nothing() -> None:
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.ask(DrainWorker("w1"), WriteOptions("d1"))
    world.ask(UndrainWorker("w1"), WriteOptions("u1"))
    world.ask(DrainWorker("w1"), WriteOptions("d1"))
    assert not world.workers["w1"].draining
    world.kill_herder()
    world.lead()
    world.advance(1_000)
    world.ask(DrainWorker("w1"), WriteOptions("d1"))
    view = world.herder.worker("w1")
    assert view is not None
    assert view.state == "CONNECTED"
    world.ask(DrainWorker("w1"), WriteOptions("d2"))
    assert world.workers["w1"].draining


def test_a_restart_under_an_outdated_epoch_is_refused_as_retriable() -> None:
    world = prepared(OPERATIONS["restart all"])
    begun = len(world.starts)
    world.config.epoch += 1  # another herder was elected, and this one does not know yet
    number = world.call(RestartConnector("a", include_tasks=True), WriteOptions("id"))
    world.advance(20)
    assert isinstance(world.answers[number], AGAIN)
    assert len(world.starts) == begun
    assert world.config.entries["a"].restarts == {}


def test_a_patch_that_loses_its_race_and_its_leader_is_refused_as_retriable() -> None:
    """Nothing was written, and the caller gave no revision that could mismatch."""
    world = prepared(OPERATIONS["patch"])
    number = world.call(PatchConnector("a", {"note": "patched"}))
    world.advance(3)
    entry = world.config.entries["a"]
    world.config.entries["a"] = replace(entry, config_revision=world.config.next())
    world.post(ev.LeadershipLost("it was told to"))
    world.advance(20)
    assert isinstance(world.answers[number], AGAIN)


def test_a_drain_is_refused_as_retriable_until_its_worker_has_dialled_in() -> None:
    world = prepared(OPERATIONS["drain"])
    world.kill_herder()
    world.lead()
    world.run()
    for name, refused in (("w3", NoWorker), ("w4", WorkerNotFound)):
        number = world.call(DrainWorker(name), WriteOptions(name))
        world.advance(3)
        assert isinstance(world.answers[number], refused), name
    world.advance(600)
    number = world.call(DrainWorker("w3"), WriteOptions("w3"))
    world.advance(10)
    assert world.workers["w3"].draining
    assert isinstance(world.answers[number], Draining)
