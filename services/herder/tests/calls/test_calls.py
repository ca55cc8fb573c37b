"""Calls: order of checks, errors of refusals, read-your-writes, and deadlines with the stage of the call."""

from __future__ import annotations

import pytest

from herdmesh.connect.topics.lag import NOT_KNOWN, Lag
from herdmesh.herder.state.model import ConnectorType, TaskProgress
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    PatchConnector,
    RestartConnector,
    SetTarget,
    UpdateConnector,
    ValidateConfig,
    Validated,
    WriteOptions,
    Written,
)
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    HerdmeshError,
    InvalidConfig,
    NoLeader,
    NoWorker,
    RequestIdExpired,
    RevisionMismatch,
    Timeout,
)
from herdmesh.session.model import RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import revision
from services.herder.tests.world_worker import SINK


@pytest.fixture
def world() -> World:
    """A leader and one worker."""
    world = World()
    world.lead()
    world.worker("w1")
    return world


def error_of(world: World, number: int) -> HerdmeshError:
    answer = world.answers[number]
    assert isinstance(answer, HerdmeshError)
    return answer


def test_a_create_without_a_worker_is_refused_with_no_worker() -> None:
    world = World()
    world.lead()
    with pytest.raises(NoWorker):
        world.ask(CreateConnector("a", sink()))
    assert world.config.entries == {}


def test_a_request_without_a_leader_is_refused() -> None:
    with pytest.raises(NoLeader):
        World().ask(CreateConnector("a", sink()))


def test_an_unknown_class_lists_the_known_ones(world: World) -> None:
    with pytest.raises(InvalidConfig) as refused:
        world.ask(CreateConnector("a", {"connector.class": "Nonsense"}))
    (violation,) = refused.value.violations
    assert violation.field == "connector.class"
    assert violation.message == (
        "Failed to find any class that implements Connector and which name matches Nonsense; "
        "available connectors are: herdmesh.TestSink, org.example.TestSource"
    )


def test_a_misspelt_class_is_answered_with_the_meant_one_alone(world: World) -> None:
    for name, meant in (("Testink", "TestSink"), ("org.example.TestSuorce", "org.example.TestSource")):
        with pytest.raises(InvalidConfig) as refused:
            world.ask(CreateConnector("a", {"connector.class": name}))
        (violation,) = refused.value.violations
        assert violation.message == (
            f"Failed to find any class that implements Connector and which name matches {name}; did you mean {meant}?"
        )


def test_a_connector_class_that_is_a_reference_is_refused(world: World) -> None:
    with pytest.raises(InvalidConfig) as refused:
        world.ask(CreateConnector("a", {"connector.class": "${env:SINK}"}))
    (violation,) = refused.value.violations
    assert violation.field == "connector.class"
    assert violation.message.startswith("${env:SINK} is a reference, ")


def test_an_unknown_class_is_no_worker_while_workers_may_dial_in(world: World) -> None:
    world.ask(CreateConnector("a", sink()))
    world.kill_herder()
    world.workers["w1"].frozen = True
    world.lead()
    world.worker("w2", (SINK,))
    with pytest.raises(NoWorker):
        world.ask(ValidateConfig({"connector.class": "TestSource"}))


@pytest.mark.parametrize(
    ("name", "config", "field"),
    [
        ("", {}, "name"),
        ("  ", sink(), "name"),
        ("a\nb", sink(), "name"),
        ("a", {"tasks.max": "1"}, "connector.class"),
        ("a", {"connector.class": " "}, "connector.class"),
        ("a", sink(1, name="b"), "name"),
        ("a", sink(1, wrong="yes"), "wrong"),
    ],
)
def test_bad_configs_name_the_field(world: World, name: str, config: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        world.ask(CreateConnector(name, config))
    assert [violation.field for violation in refused.value.violations] == [field]
    assert world.config.entries == {}


def test_names_are_trimmed_or_taken_from_the_config(world: World) -> None:
    world.ask(CreateConnector(" a ", sink(1)))
    world.ask(CreateConnector("", sink(1, name="b")))
    assert world.herder.connector_names() == ["a", "b"]
    assert world.config.entries["a"].config["name"] == "a"


def test_existence_is_decided_by_the_store(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    with pytest.raises(ConnectorExists):
        world.ask(CreateConnector("a", sink(1)))
    for request in (
        UpdateConnector("b", sink(1)),
        PatchConnector("b", {}),
        DeleteConnector("b"),
        SetTarget("b", TargetState.PAUSED),
        RestartConnector("b"),
    ):
        with pytest.raises(ConnectorNotFound):
            world.ask(request)
    created = world.ask(UpdateConnector("b", sink(1), allow_missing=True))
    assert isinstance(created, Written)
    assert created.created


def test_expected_revision_is_passed_to_the_store(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    stored = world.config.entries["a"].config_revision
    with pytest.raises(RevisionMismatch):
        world.ask(UpdateConnector("a", sink(2)), WriteOptions(expected_revision=revision(999)))
    world.ask(UpdateConnector("a", sink(2)), WriteOptions(expected_revision=stored))


def test_a_patch_merges_and_null_removes_a_key(world: World) -> None:
    world.ask(CreateConnector("a", sink(2, file="x", mode="y")))
    world.ask(PatchConnector("a", {"file": None, "mode": "z", "more": "1"}))
    assert world.config.entries["a"].config == {**sink(2), "name": "a", "mode": "z", "more": "1"}


def test_a_patch_that_loses_a_race_is_merged_again(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    patch = world.call(PatchConnector("a", {"from": "patch"}))
    # Before the patch is written, another writer's update reaches the store.
    world.post(ev.ConfigProgress(None))
    entry = world.config.entries["a"]
    other = {**entry.config, "from": "other", "also": "other"}
    world.config.entries["a"] = entry.__class__("a", config=other, config_revision=world.config.next())
    world.post(ev.ConfigChanged("a", world.config.entries["a"], revision(world.config.offset)))
    world.run()
    assert isinstance(world.answers[patch], Written)
    assert world.config.entries["a"].config == {**other, "from": "patch"}


def test_validate_answers_with_the_result(world: World) -> None:
    config = sink(1, wrong="yes")
    answer = world.ask(ValidateConfig(config))
    assert isinstance(answer, Validated)
    assert [violation.field for violation in answer.validation.violations] == ["wrong"]
    assert answer.validation.wire == config


def test_a_validation_is_sent_to_another_worker_when_its_worker_dies(world: World) -> None:
    world.worker("w2")
    world.workers["w1"].frozen = True
    number = world.call(CreateConnector("a", sink(1)), timeout_ms=20_000)
    world.run()
    assert number not in world.answers
    world.kill("w1")
    world.run()
    assert isinstance(world.answers[number], Written)


def test_a_write_is_answered_after_it_was_read_back(world: World) -> None:
    answer = world.ask(CreateConnector("a", sink(1)))
    assert isinstance(answer, Written)
    assert answer.revision is not None
    view = world.herder.connector("a")
    assert view is not None
    assert view.type is ConnectorType.SINK


def test_a_timeout_names_the_stage(world: World) -> None:
    world.store_down = True
    number = world.call(CreateConnector("a", sink(1)), timeout_ms=1_000)
    world.advance(900)
    assert number not in world.answers
    world.advance(200)
    error = error_of(world, number)
    assert isinstance(error, Timeout)
    assert error.stage == "writing to the config store"
    world.workers["w1"].frozen = True
    number = world.call(ValidateConfig(sink(1)), timeout_ms=1_000)
    world.advance(1_200)
    error = error_of(world, number)
    assert isinstance(error, Timeout)
    assert error.stage == "validating the config on a worker"


def test_a_leader_that_steps_down_completes_writes_and_refuses_other_calls(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    writing = world.call(SetTarget("a", TargetState.PAUSED), timeout_ms=60_000)
    world.workers["w1"].frozen = True
    validating = world.call(CreateConnector("b", sink(1)), timeout_ms=60_000)
    world.post(ev.LeadershipLost("resigned"))
    world.run()
    assert isinstance(error_of(world, validating), NoLeader)
    assert isinstance(world.answers[writing], Written)
    view = world.herder.connector("a")
    assert view is not None
    assert view.entry.target is TargetState.PAUSED
    assert [condition.type for condition in view.status.conditions] == ["NO_LEADER"]


def test_a_write_that_outlives_the_leadership_keeps_its_deadline(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    world.store_down = True
    writing = world.call(SetTarget("a", TargetState.PAUSED), timeout_ms=2_000)
    world.post(ev.LeadershipLost("resigned"))
    world.advance(2_500)
    error = error_of(world, writing)
    assert isinstance(error, Timeout)
    assert error.stage == "writing to the config store"


def test_a_cancelled_call_is_not_answered(world: World) -> None:
    world.store_down = True
    number = world.call(CreateConnector("a", sink(1)))
    world.post(ev.RequestCancelled(number))
    world.advance(10_000)
    assert number not in world.answers


def test_an_expired_request_id_is_not_reported_as_refused(world: World) -> None:
    """A refusal by the current state would say nothing about the outcome of the first request."""
    world.ask(CreateConnector("a", sink()))
    world.ask(RestartConnector("a"), WriteOptions("r1"))
    world.ask(DeleteConnector("a"))
    world.config.expired.add("r1")
    with pytest.raises(RequestIdExpired):
        world.ask(RestartConnector("a"), WriteOptions("r1"))


def test_a_restart_retried_under_its_request_id_is_done_once(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    starts = len(world.starts)
    first = world.ask(RestartConnector("a", include_tasks=True), WriteOptions("r1"))
    assert world.ask(RestartConnector("a", include_tasks=True), WriteOptions("r1")) == first
    assert len(world.starts) == starts + 2


def test_a_restart_recorded_by_another_client_is_carried_out(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    starts = len(world.starts)
    world.post(ev.RestartRecorded("a", include_tasks=True, only_failed=False, revision=None))
    world.run()
    assert len(world.starts) == starts + 2


def test_lag_is_the_sum_of_what_running_tasks_report(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    worker = world.workers["w1"]
    assert worker.session is not None
    view = world.herder.connector("a")
    assert view is not None
    assert view.lag == NOT_KNOWN
    for task in (0, 1):
        worker.say(ev.WorkerHeartbeat(worker.session, (TaskProgress(UnitId("a", task), Lag(10 + task, 3)),)))
    world.run()
    view = world.herder.connector("a")
    assert view is not None
    assert view.lag == Lag(21, 6)
    for target in (TargetState.PAUSED, TargetState.STARTED):
        world.ask(SetTarget("a", target))
        view = world.herder.connector("a")
        assert view is not None
        known = Lag(21, 6) if target is TargetState.STARTED else NOT_KNOWN
        assert view.lag == known, "a paused task looks at nothing"
    world.ask(RestartConnector("a", include_tasks=True))
    view = world.herder.connector("a")
    assert view is not None
    assert view.lag == NOT_KNOWN, "what an earlier start reported says nothing of this one"
    assert [task.status.state for task in view.tasks] == [RunState.RUNNING] * 2


def test_an_unknown_java_class_is_refused_with_its_replacement(world: World) -> None:
    config = {"connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector"}
    with pytest.raises(InvalidConfig, match="its equivalent here is PostgresSink"):
        world.ask(CreateConnector("a", config))
