"""Plans: the planned effect of a create or an update, compared with its effect when applied."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import Plugin
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DrainWorker,
    PlanAction,
    PlanConfig,
    Planned,
    SetTarget,
    UpdateConnector,
)
from herdmesh.rpc.errors import ConnectorExists, InvalidConfig, NoWorker, Timeout
from herdmesh.session.model import Failure, Properties, TargetState, UnitId
from herdmesh.session.worker_commands import PlanTaskConfigs
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import SINK, SOURCE
from tests.support.sizes import soak_or

#: worker and generation of each unit.
Places = dict[int | None, tuple[str, int]]


@pytest.fixture
def world() -> World:
    """A leader and two workers."""
    return world_with(((SINK, SOURCE), (SINK, SOURCE)))


def world_with(plugins: tuple[tuple[Plugin, ...], ...]) -> World:
    world = World(rules=Rules(herder_id="h1", balance_enabled=False))  # a plan shows nothing that comes later
    world.lead()
    for number, has in enumerate(plugins):
        world.worker(f"w{number + 1}", has)
    return world


def plan(world: World, name: str, config: Properties) -> Planned:
    planned = world.ask(PlanConfig(name, config))
    assert isinstance(planned, Planned)
    return planned


def units(world: World, name: str) -> Places:
    return {
        unit.task: (worker.id, held.assignment.generation)
        for worker in world.workers.values()
        for unit, held in worker.held.items()
        if unit.connector == name
    }


def hands(world: World, but: str) -> dict[str, tuple[str, int]]:
    """Units of other connectors, with their worker and generation."""
    return {
        str(unit): (worker.id, held.assignment.generation)
        for worker in world.workers.values()
        for unit, held in worker.held.items()
        if unit.connector != but
    }


def actions(planned: Planned) -> dict[int | None, PlanAction]:
    return {step.task: step.action for step in planned.steps}


def happened(before: Places, after: Places) -> dict[int | None, PlanAction]:
    found: dict[int | None, PlanAction] = {}
    for task in {*before, *after}:
        was, now = before.get(task), after.get(task)
        if was is None:
            found[task] = PlanAction.START
        elif now is None:
            found[task] = PlanAction.STOP
        else:
            found[task] = PlanAction.KEEP if was == now else PlanAction.RESTART
    return found


def apply(world: World, name: str, config: Properties) -> None:
    world.ask(UpdateConnector(name, config, allow_missing=True))
    world.advance(2_500)


def check(world: World, name: str, config: Properties) -> Planned:
    """Plan, check that nothing changed, apply, compare."""
    stored, before, others = dict(world.config.entries), units(world, name), hands(world, name)
    planned = plan(world, name, config)
    assert (world.config.entries, units(world, name)) == (stored, before), "planning changed something"
    apply(world, name, config)
    after = units(world, name)
    assert actions(planned) == happened(before, after)
    assert {step.task: step.worker_id for step in planned.steps if step.worker_id} == {
        task: worker for task, (worker, _) in after.items()
    }
    moved = sorted(unit for unit, held in hands(world, name).items() if others[unit] != held)
    told = [note.partition("restart: ")[2] for note in planned.notes if note.startswith("For balance")]
    assert told == ([f"{', '.join(moved)}."] if moved else [])
    return planned


# --- one by one


def test_a_create_starts_the_connector_and_its_tasks(world: World) -> None:
    planned = check(world, "a", sink(3))
    assert actions(planned) == dict.fromkeys((None, 0, 1, 2), PlanAction.START)
    assert planned.steps[0].task is None
    assert "it would run on w" in planned.steps[0].reason


def test_a_changed_config_restarts_all_tasks_in_place(world: World) -> None:
    apply(world, "a", sink(2))
    planned = check(world, "a", sink(2, topics="t"))
    assert actions(planned) == dict.fromkeys((None, 0, 1), PlanAction.RESTART)
    assert all("stays on" in step.reason for step in planned.steps)


@pytest.mark.parametrize("target", list(TargetState))
def test_an_equal_config_keeps_everything(world: World, target: TargetState) -> None:
    apply(world, "a", sink(2))
    world.ask(SetTarget("a", target))
    world.advance(500)
    world.task_counts["a"] = 1  # the connector would make other task configs: it is not asked
    planned = check(world, "a", sink(2))
    tasks = () if target is TargetState.STOPPED else (None, 0, 1)
    assert set(actions(planned).values()) <= {PlanAction.KEEP}
    assert {*tasks} <= {*actions(planned)}
    assert planned.notes == ("The stored config is equal: applying it changes nothing.",)


def test_a_plan_shows_added_and_removed_tasks(world: World) -> None:
    apply(world, "a", sink(2))
    more = check(world, "a", sink(3))
    assert actions(more)[2] is PlanAction.START
    assert any("divided again among 3 tasks instead of 2" in note for note in more.notes)
    fewer = check(world, "a", sink(1))
    assert actions(fewer) == {
        None: PlanAction.RESTART, 0: PlanAction.RESTART, 1: PlanAction.STOP, 2: PlanAction.STOP,
    }  # fmt: skip


def test_a_paused_connector_restarts_alone_and_a_stopped_one_has_no_tasks(world: World) -> None:
    apply(world, "a", sink(2))
    world.ask(SetTarget("a", TargetState.PAUSED))
    paused = check(world, "a", sink(3))
    assert actions(paused) == {None: PlanAction.RESTART, 0: PlanAction.KEEP, 1: PlanAction.KEEP}
    assert any(note.startswith("It is PAUSED") for note in paused.notes)
    assert not any(isinstance(asked, PlanTaskConfigs) for asked in world.workers["w1"].answers.asked[1:])
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(500)
    stopped = check(world, "a", sink(1))
    assert actions(stopped) == {None: PlanAction.RESTART}
    assert any(note.startswith("It is STOPPED") for note in stopped.notes)


def test_another_class_moves_the_connector_to_a_worker_that_has_it() -> None:
    world = world_with(((SINK,), (SOURCE,)))
    apply(world, "a", sink(2))
    planned = check(world, "a", {"connector.class": "TestSource", "tasks.max": "1"})
    assert actions(planned) == {None: PlanAction.RESTART, 0: PlanAction.RESTART, 1: PlanAction.STOP}
    assert planned.steps[0].reason.endswith("moves from w1 to w2")
    assert any("a sink's and a source's are kept apart" in note for note in planned.notes)


def test_a_plan_without_a_worker_that_takes_work_starts_nothing(world: World) -> None:
    world.ask(DrainWorker("w1"))
    world.ask(DrainWorker("w2"))
    planned = check(world, "a", sink())
    assert planned.steps == ()
    assert planned.notes[0].startswith("No worker that takes work has TestSink")


def test_a_plan_keeps_the_old_set_when_task_configs_cannot_be_created(world: World) -> None:
    apply(world, "a", sink(2))
    world.task_failures["a"] = Failure("no such table", error_class=ErrorClass.BAD_CONFIG)
    planned = check(world, "a", sink(2, topics="t"))
    assert actions(planned) == {None: PlanAction.RESTART, 0: PlanAction.KEEP, 1: PlanAction.KEEP}
    assert any(note.endswith("no such table") for note in planned.notes)


def test_a_plan_reports_more_tasks_than_tasks_max(world: World) -> None:
    apply(world, "a", sink(2))
    planned = check(world, "a", sink(2, makes="3"))
    assert actions(planned)[0] is PlanAction.KEEP
    assert any("has generated 3 tasks, which is greater than 2" in note for note in planned.notes)
    enforced_no_more = check(world, "a", sink(2, makes="3", **{"tasks.max.enforce": "false"}))
    assert actions(enforced_no_more)[2] is PlanAction.START


def test_a_plan_of_a_refused_config_has_the_validation_and_no_steps(world: World) -> None:
    apply(world, "a", sink(2))
    planned = plan(world, "a", sink(2, wrong="yes"))
    assert [violation.field for violation in planned.validation.violations] == ["wrong"]
    assert planned.steps == ()


def test_a_plan_is_refused_like_the_create(world: World) -> None:
    with pytest.raises(InvalidConfig, match="any class that implements Connector"):
        plan(world, "a", {"connector.class": "Nonsense"})
    with pytest.raises(InvalidConfig, match="doesn't match connector name"):
        plan(world, "a", sink(name="b"))
    with pytest.raises(InvalidConfig, match="may not be empty"):
        plan(world, " ", sink())
    assert actions(plan(world, "", sink(1, name="c")))[0] is PlanAction.START


def test_a_plan_trims_names_like_create_and_apply(world: World) -> None:
    apply(world, "a", sink(1))
    assert actions(plan(world, " a ", sink(1))) == actions(plan(world, "a", sink(1)))
    assert actions(plan(world, "", sink(1, name=" c ")))[0] is PlanAction.START
    with pytest.raises(ConnectorExists):
        world.ask(CreateConnector(" a ", sink(1)))
    with pytest.raises(InvalidConfig, match=r"\( d \) doesn't match connector name in the request \(c\)"):
        world.ask(PlanConfig(" c ", sink(1, name=" d ")))


# --- notes for the operator


def test_a_plan_has_notes_about_a_sinks_offsets(world: World) -> None:
    apply(world, "a", sink(1, topics="t, u"))
    notes = plan(world, "a", sink(1, topics="u,v")).notes
    assert "Offsets: t would no longer be read; the committed offsets stay in group connect-a." in notes
    assert "Offsets: v would be read from the offsets in group connect-a, else from the beginning." in notes
    moved = {"consumer.override.group.id": "g", "consumer.override.auto.offset.reset": "latest"}
    notes = plan(world, "a", sink(1, topics="t,u,v", **moved)).notes
    assert any(note.startswith("Offsets: another consumer group, g") for note in notes)
    assert "Offsets: v would be read from the offsets in group g, else from the end." in notes
    notes = plan(world, "a", sink(1, **{"topics.regex": "t.*"})).notes
    assert any("topics.regex changed" in note for note in notes)


def test_a_plan_has_notes_about_a_sources_offsets(world: World) -> None:
    source = {"connector.class": "TestSource", "table": "x"}
    apply(world, "a", source)
    assert not any("table" in note for note in plan(world, "a", {**source, "tasks.max": "2"}).notes)
    notes = plan(world, "a", {**source, "table": "y"}).notes
    assert any("where table name other ones" in note for note in notes)
    notes = plan(world, "a", {**source, "offsets.storage.topic": "o"}).notes
    assert any("another offsets topic" in note for note in notes)


def test_a_plan_has_notes_about_a_new_name_and_the_restart_policy(world: World) -> None:
    notes = plan(world, "a", sink(1, **{"herdmesh.restart.attempts.max": "3"})).notes
    assert any("an earlier connector of this name left" in note for note in notes)
    assert "Restart policy: at most 3 restarts of a task within 1 h, each 1 s to 5 min after the failure." in notes
    notes = plan(world, "a", sink(1, **{"herdmesh.restart.enabled": "false"})).notes
    assert any(note.startswith("Restart policy: off") for note in notes)


def test_the_planned_restart_policy_is_the_one_in_force(world: World) -> None:
    own = {"herdmesh.restart.attempts.max": "3", "herdmesh.restart.backoff.ms": "7000"}
    planned = check(world, "a", sink(1, **own))
    (note,) = [note for note in planned.notes if note.startswith("Restart policy")]
    task = UnitId("a", 0)
    holder = next(one for one in world.workers.values() if task in one.held)
    world.fail(holder, task, Failure("it broke", error_class=ErrorClass.RETRIABLE))
    view = world.herder.connector("a")
    assert view is not None
    restart = view.tasks[0].status.auto_restart
    assert restart is not None
    assert restart.next_ms is not None
    assert f"at most {restart.attempts_max} restarts of a task" in note
    assert "each 7 s to " in note
    assert 0.8 * 7_000 <= restart.next_ms - world.now <= 7_000, "less what chance takes off"


# --- lost workers


def test_a_plans_command_goes_to_another_worker_when_its_own_dies(world: World) -> None:
    world.workers["w1"].answers.mute = True
    number = world.call(PlanConfig("a", sink(1)))
    world.run()
    assert number not in world.answers
    world.kill("w1")
    world.run()
    planned = world.answers[number]
    assert isinstance(planned, Planned)
    # A plan describes the current state: a worker that may return in a moment is left out.
    assert {step.worker_id for step in planned.steps} == {"w2"}


def test_a_plan_that_times_out_names_its_stage(world: World) -> None:
    world.workers["w1"].answers.mute = True
    number = world.call(PlanConfig("a", sink(1)), timeout_ms=300)
    world.advance(500)
    error = world.answers[number]
    assert isinstance(error, Timeout)
    assert error.metadata["stage"] == "making task configs on a worker"


def test_a_plan_needs_a_worker() -> None:
    world = World()
    world.lead()
    with pytest.raises(NoWorker):
        plan(world, "a", sink())


# --- random stories


@dataclass(frozen=True)
class Story:
    """Workers with their plugins, other connectors, an old config with its target state, and a new config."""

    workers: tuple[tuple[Plugin, ...], ...]
    draining: tuple[bool, ...]
    others: tuple[int, ...]
    old: Properties | None
    target: TargetState
    failure: Failure | None
    new: Properties


@st.composite
def configs(draw: st.DrawFn) -> Properties:
    config = {
        "connector.class": draw(st.sampled_from(("TestSink", "TestSource"))),
        "tasks.max": str(draw(st.integers(1, 4))),
        "topics": draw(st.sampled_from(("t", "u"))),
    }
    if draw(st.booleans()):
        config["makes"] = str(draw(st.integers(0, 5)))
    if draw(st.booleans()):
        config["shape"] = "round"
    if draw(st.booleans()):
        config["tasks.max.enforce"] = "false"
    return config


def failures() -> st.SearchStrategy[Failure | None]:
    broken = st.sampled_from((ErrorClass.BAD_CONFIG, ErrorClass.RETRIABLE, ErrorClass.UNKNOWN))
    return st.none() | broken.map(lambda kind: Failure("it cannot", error_class=kind))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    plugins = st.sampled_from(((SINK, SOURCE), (SINK,), (SOURCE,)))
    workers = tuple(draw(st.lists(plugins, min_size=1, max_size=4)))
    old = draw(st.none() | configs())
    new = draw(configs() if old is None else st.just(old) | configs())
    return Story(
        workers=((SINK, SOURCE), *workers),
        draining=tuple(draw(st.booleans() | st.just(False)) for _ in workers),
        others=tuple(draw(st.lists(st.integers(0, 3), max_size=3))),
        old=old,
        target=draw(st.sampled_from(TargetState)),
        failure=draw(failures()),
        new=new,
    )


@pytest.mark.timeout(soak_or(60, 900))
@settings(max_examples=soak_or(100, 3_000), deadline=None)
@given(stories())
def test_applying_a_config_has_the_planned_effect(story: Story) -> None:
    world = world_with(story.workers)
    for number, count in enumerate(story.others):
        world.ask(CreateConnector(f"other{number}", sink(max(count, 1), makes=str(count))))
    if story.old is not None:
        world.ask(CreateConnector("a", story.old))
        world.advance(1_000)
        world.ask(SetTarget("a", story.target))
    world.advance(1_000)
    for number, draining in enumerate(story.draining):
        if draining:
            world.ask(DrainWorker(f"w{number + 2}"))
    world.advance(3_000)
    if story.failure is not None:
        world.task_failures["a"] = story.failure
    check(world, "a", story.new)
    assert UnitId("a") in {unit for worker in world.workers.values() for unit in worker.held}
