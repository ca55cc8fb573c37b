"""Scenarios of Connect's `DistributedHerderTest` about requests (docs/reference/connect/herder.md, section 10),
restated for the herder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from herdmesh.herder.state.calls.connector_names import NAME_BYTES_MAX
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    PatchConnector,
    SetTarget,
    UpdateConnector,
    Written,
)
from herdmesh.herder.state.views.views import ConnectorView
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    InvalidConfig,
    NotLeader,
    StoreUnauthorized,
)
from herdmesh.session.model import Properties, RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import Outcome, revision

STARTED, PAUSED, STOPPED = TargetState.STARTED, TargetState.PAUSED, TargetState.STOPPED


@pytest.fixture
def world() -> World:
    """A leader and one worker; each message takes 1 ms."""
    world = World(delay_ms=lambda: 1)
    world.lead()
    world.worker("w1")
    world.advance(20)
    return world


def ask(world: World, request: object) -> object:
    """Like `World.ask`, with time for the effects after the answer."""
    number = world.call(request)  # type: ignore[arg-type]
    world.advance(50)
    answer = world.answers[number]
    if isinstance(answer, Exception):
        raise answer
    return answer


def view(world: World, name: str = "a") -> ConnectorView:
    found = world.herder.connector(name)
    assert found is not None
    return found


def states(world: World, name: str = "a") -> list[RunState]:
    shown = view(world, name)
    return [shown.status.state, *(task.status.state for task in shown.tasks)]


def held(world: World) -> dict[UnitId, RunState]:
    return {unit: one.state for unit, one in world.workers["w1"].held.items()}


def put_by_java(world: World, name: str) -> None:
    """Store the config of a connector that Java's PUT has created under this very name."""
    config = sink(1, name=name)
    made = ConnectorEntry(name, config=config, config_revision=world.config.next(), incarnation="java")
    world.config.entries[name] = made
    world.post(ev.ConfigChanged(name, made, made.config_revision))
    world.advance(50)


def failing_store(world: World, kind: type) -> None:
    """Have the store refuse writes of a kind, for a reason that no retry helps."""
    write = world.config.write

    def refuse(wanted: ins.Write) -> Outcome:
        if isinstance(wanted, kind):
            raise StoreUnauthorized("write", "topic connect-configs")
        return write(wanted)

    world.config.write = refuse  # type: ignore[method-assign]


def test_create_connector(world: World) -> None:
    """The answer comes before there are tasks. (The stages: `test_calls_bounds.py`.)"""
    number = world.call(CreateConnector("a", sink(2)))
    while number not in world.answers:
        world.advance(1)
    answer = world.answers[number]
    assert isinstance(answer, Written)
    assert answer.created
    assert view(world).tasks == ()
    world.advance(50)
    assert states(world) == [RunState.RUNNING] * 3


@pytest.mark.parametrize(
    ("initial", "expected"),
    [
        (None, [RunState.RUNNING] * 3),
        (STARTED, [RunState.RUNNING] * 3),
        (PAUSED, [RunState.PAUSED]),
        (STOPPED, [RunState.STOPPED]),
    ],
)
def test_create_connector_with_initial_state(
    world: World, initial: TargetState | None, expected: list[RunState]
) -> None:
    """PAUSED and STOPPED connectors create no task configs before they are resumed, as in Connect."""
    ask(world, CreateConnector("a", sink(2), initial))
    assert states(world) == expected
    assert world.config.entries["a"].target is initial
    ask(world, SetTarget("a", STARTED))
    assert states(world) == [RunState.RUNNING] * 3


def test_create_connector_config_backing_store_error(world: World) -> None:
    failing_store(world, ins.PutConfig)
    with pytest.raises(StoreUnauthorized, match="kafka-acls"):
        ask(world, CreateConnector("a", sink(2)))
    assert world.herder.connector_names() == []


def test_create_connector_failed_validation(world: World) -> None:
    with pytest.raises(InvalidConfig) as refused:
        ask(world, CreateConnector("a", sink(2, wrong="yes")))
    assert [violation.field for violation in refused.value.violations] == ["wrong"]
    assert world.config.entries == {}


def test_create_connector_already_exists(world: World) -> None:
    ask(world, CreateConnector("a", sink(2)))
    with pytest.raises(ConnectorExists):
        ask(world, CreateConnector("a", sink(3)))
    with pytest.raises(ConnectorExists):
        ask(world, CreateConnector("  a\t", sink(3)))
    with pytest.raises(InvalidConfig):  # errors of the config come first, as in Connect
        ask(world, CreateConnector("a", sink(3, wrong="yes")))
    assert view(world).entry.config["tasks.max"] == "2"


def test_one_of_two_concurrent_creates_is_refused(world: World) -> None:
    numbers = [world.call(CreateConnector("a", sink(tasks))) for tasks in (1, 2)]
    world.advance(50)
    first, second = (world.answers[number] for number in numbers)
    assert isinstance(first, Written)
    assert isinstance(second, ConnectorExists)
    assert len(view(world).tasks) == 1


def test_destroy_connector(world: World) -> None:
    ask(world, CreateConnector("a", sink(2)))
    ask(world, CreateConnector("b", sink(1)))
    answer = ask(world, DeleteConnector("a"))
    assert isinstance(answer, Written)
    world.advance(5_000)
    assert world.herder.connector("a") is None
    assert {unit.connector for unit in held(world)} == {"b"}
    assert {unit.connector for unit in world.statuses} == {"b"}, "statuses (and topics) are gone with it"
    with pytest.raises(ConnectorNotFound):
        ask(world, DeleteConnector("a"))


def test_connector_config_update(world: World) -> None:
    """All units of that connector start again, and none of another."""
    ask(world, CreateConnector("a", sink(2)))
    ask(world, CreateConnector("b", sink(2)))
    before = len(world.starts)
    ask(world, UpdateConnector("a", sink(2, note="new")))
    started = [start.unit for _, start in world.starts[before:]]
    assert sorted(started, key=lambda unit: unit.order) == [UnitId("a"), UnitId("a", 0), UnitId("a", 1)]
    assert {start.connector_config.get("note") for _, start in world.starts[before:]} == {"new"}


def test_put_connector_config(world: World) -> None:
    with pytest.raises(ConnectorNotFound):
        ask(world, UpdateConnector("a", sink(1)))
    created = ask(world, UpdateConnector("a", sink(1), allow_missing=True))
    updated = ask(world, UpdateConnector("a", sink(2), allow_missing=True))
    assert isinstance(created, Written)
    assert isinstance(updated, Written)
    assert (created.created, updated.created) == (True, False)
    assert states(world) == [RunState.RUNNING] * 3


def test_connector_paused_and_resumed(world: World) -> None:
    ask(world, CreateConnector("a", sink(2)))
    begun = len(world.starts)
    ask(world, SetTarget("a", PAUSED))
    assert states(world) == [RunState.PAUSED] * 3
    ask(world, SetTarget("a", STARTED))
    assert states(world) == [RunState.RUNNING] * 3
    assert len(world.starts) == begun, "in place"
    world.task_counts["a"] = 1
    ask(world, SetTarget("a", PAUSED))
    ask(world, SetTarget("a", STARTED))
    assert len(view(world).tasks) == 1, "a resumed connector is asked for task configs"


def test_connector_stopped(world: World) -> None:
    ask(world, CreateConnector("a", sink(2)))
    ask(world, SetTarget("a", STOPPED))
    assert held(world) == {UnitId("a"): RunState.STOPPED}
    ask(world, SetTarget("a", STARTED))
    assert states(world) == [RunState.RUNNING] * 3


def test_stop_connector(world: World) -> None:
    """The tasks are stopped, and the committed set is empty as in Connect, so that a Java cluster would find it so."""
    ask(world, CreateConnector("a", sink(2)))
    ask(world, SetTarget("a", STOPPED))
    entry = world.config.entries["a"]
    assert (entry.target, entry.tasks, entry.task_count) == (STOPPED, (), 0)
    assert view(world).tasks == ()
    commits = len(world.config.commits)
    ask(world, SetTarget("a", STOPPED))
    assert len(world.config.commits) == commits, "stopping twice changes nothing"
    with pytest.raises(ConnectorNotFound):
        ask(world, SetTarget("b", STOPPED))


def test_stop_connector_fail_to_write_task_configs(world: World) -> None:
    """Here the target state is written first and the empty set follows: its write is retried until it succeeds."""
    ask(world, CreateConnector("a", sink(2)))
    write = world.config.write
    failing_store(world, ins.CommitTasks)
    ask(world, SetTarget("a", STOPPED))
    assert held(world) == {UnitId("a"): RunState.STOPPED}
    assert len(world.config.entries["a"].tasks) == 2
    world.config.write = write  # type: ignore[method-assign]
    world.advance(5_000)
    assert world.config.entries["a"].tasks == ()


def test_unknown_connector_paused(world: World) -> None:
    """A request for it is refused; a target state in the topic without a config is ignored."""
    for target in TargetState:
        with pytest.raises(ConnectorNotFound):
            ask(world, SetTarget("b", target))
    orphan = ConnectorEntry("b", has_config=False, target=PAUSED, target_revision=revision(1))
    world.post(ev.ConfigChanged("b", orphan, revision(99)))
    world.advance(50)
    assert world.herder.connector("b") is None
    assert held(world) == {}


@pytest.mark.parametrize("target", [PAUSED, STARTED])
def test_connector_paused_and_resumed_running_task_only(world: World, target: TargetState) -> None:
    """A worker that holds only a task gets the target too; a worker without any unit of the connector gets nothing."""
    world.worker("w2")
    world.worker("w3", ())
    ask(world, CreateConnector("a", sink(1)))
    if target is STARTED:
        ask(world, SetTarget("a", PAUSED))
    ask(world, SetTarget("a", target))
    wanted = RunState.PAUSED if target is PAUSED else RunState.RUNNING
    assert [one.state for name in ("w1", "w2") for one in world.workers[name].held.values()] == [wanted] * 2
    assert not any(line.startswith("stop") for line in world.workers["w2"].log)


def test_patch_connector_config(world: World) -> None:
    ask(world, CreateConnector("a", sink(2, file="x", mode="y")))
    ask(world, PatchConnector("a", {"file": None, "mode": "z", "more": "1", "never": None}))
    assert world.config.entries["a"].config == {**sink(2), "name": "a", "mode": "z", "more": "1"}
    with pytest.raises(InvalidConfig) as refused:
        ask(world, PatchConnector("a", {"wrong": "yes"}))
    assert [violation.field for violation in refused.value.violations] == ["wrong"]
    with pytest.raises(InvalidConfig) as renamed:
        ask(world, PatchConnector("a", {"name": "b"}))
    assert [violation.field for violation in renamed.value.violations] == ["name"]


def test_patch_connector_config_not_found(world: World) -> None:
    with pytest.raises(ConnectorNotFound):
        ask(world, PatchConnector("a", {"more": "1"}))


@pytest.mark.parametrize(
    "request_",
    [
        CreateConnector("a", sink(1)),
        UpdateConnector("a", sink(1)),
        PatchConnector("a", {"more": "1"}),
        DeleteConnector("a"),
        *(SetTarget("a", target) for target in TargetState),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_follower_refuses_requests_and_names_the_leader(world: World, request_: object) -> None:
    world.post(ev.LeadershipFollowing("h2", "there:2", 2))
    world.advance(10)
    with pytest.raises(NotLeader) as refused:
        ask(world, request_)
    assert refused.value.leader_address == "there:2"
    assert world.config.entries == {}


def test_accessors(world: World) -> None:
    """Configs are returned as they were written: nothing resolved, nothing rewritten."""
    config = sink(1, password="${file:/secrets:key}", flag=" true ", empty="", **{"tasks.max": "01"})
    ask(world, CreateConnector("a", config))
    ask(world, CreateConnector("b", sink(2)))
    assert world.herder.connector_names() == ["a", "b"]
    assert view(world).entry.config == {**config, "name": "a"}
    assert [task.id for task in view(world, "b").tasks] == [UnitId("b", 0), UnitId("b", 1)]
    assert [task.config for task in view(world, "b").tasks] == list(world.config.entries["b"].tasks)
    assert world.herder.connector("c") is None


def test_request_processing_order(world: World) -> None:
    """Requests are handled in the order of arrival; one that has to wait does not delay those after it."""
    ask(world, CreateConnector("a", sink(1)))
    numbers = [world.call(SetTarget("a", target)) for target in (PAUSED, STOPPED, STARTED)]
    world.advance(50)
    assert all(isinstance(world.answers[number], Written) for number in numbers)
    assert world.config.entries["a"].target is STARTED
    world.workers["w1"].frozen = True
    waits = world.call(CreateConnector("b", sink(1)))
    quick = world.call(SetTarget("a", PAUSED))
    world.advance(50)
    assert waits not in world.answers
    assert isinstance(world.answers[quick], Written)


@pytest.mark.parametrize("make", [CreateConnector, partial(UpdateConnector, allow_missing=True)])
@pytest.mark.parametrize(
    ("given", "stored"),
    [("a", "a"), (" \t a b\n", "a b"), ("\x01a\x1f", "a"), ("\u00a0a", "\u00a0a"), ("a/b?c", "a/b?c"), ("ä漢", "ä漢")],
)
def test_create_and_update_give_a_new_connector_the_same_name(
    world: World, given: str, stored: str, make: Callable[[str, Properties], CreateConnector | UpdateConnector]
) -> None:
    """Trimmed as by Java's POST."""
    ask(world, make(given, sink(1, name=given)))
    assert world.herder.connector_names() == [stored]
    assert world.config.entries[stored].config["name"] == stored


@pytest.mark.parametrize("name", ["a\nb", "a\x7f", "\x85a\x9fb", "a\0b"])
def test_names_with_control_characters_are_refused(world: World, name: str) -> None:
    request = UpdateConnector(name, sink(1), allow_missing=True)
    with pytest.raises(InvalidConfig) as refused:
        ask(world, request)
    assert [violation.field for violation in refused.value.violations] == ["name"]


def test_a_name_that_differs_from_the_configs_name_is_refused(world: World) -> None:
    for request in (CreateConnector("a", sink(1, name="b")), UpdateConnector("a", sink(1, name="b"), True)):
        with pytest.raises(InvalidConfig, match=r"\(b\) doesn't match connector name in the request \(a\)"):
            ask(world, request)


def test_a_connector_that_java_named_with_blanks_can_be_addressed(world: World) -> None:
    """PUT in Connect does not trim."""
    put_by_java(world, " a ")
    ask(world, UpdateConnector(" a ", sink(1, topics="u")))
    assert world.config.entries[" a "].config["name"] == " a "
    ask(world, CreateConnector("a", sink(1)))
    ask(world, DeleteConnector(" a "))
    assert world.herder.connector_names() == ["a"]


def test_each_request_finds_a_connector_by_its_name_with_blanks(world: World) -> None:
    ask(world, CreateConnector(" a ", sink(1)))
    ask(world, PatchConnector("a ", {"topics": "u"}))
    ask(world, SetTarget("\ta", TargetState.PAUSED))
    assert world.herder.name_of(" a") == "a"
    ask(world, DeleteConnector(" a"))
    assert world.herder.connector_names() == []


def test_a_name_too_long_for_kafkas_ids_is_refused_with_the_limit(world: World) -> None:
    ask(world, CreateConnector("n" * NAME_BYTES_MAX, sink(1)))
    for request in (CreateConnector("漢" * 334, sink(1)), UpdateConnector("漢" * 334, sink(1), allow_missing=True)):
        with pytest.raises(InvalidConfig, match=r"at most 1000 bytes .* has 1002: choose a shorter one"):
            ask(world, request)
