"""Order of checks: a request that is wrong in several ways gets the error that Connect would give
(docs/reference/connect/herder.md, section 4.1), each with a reason of its own.

Owns the order only; the text of each refusal is tested where the rule is. Departs from Connect in one thing: a follower
names the leader before anything is validated, because only the leader has workers to validate on.
"""

from __future__ import annotations

import pytest

from herdmesh.herder.state.model import Validation
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeleteConnector,
    PatchConnector,
    PlanConfig,
    Request,
    RestartConnector,
    RestartTask,
    SetTarget,
    UpdateConnector,
    ValidateConfig,
    WriteOptions,
)
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    HerdmeshError,
    InvalidConfig,
    NotLeader,
    NoWorker,
    RequestInvalid,
    RevisionMismatch,
    StatusNotFound,
    TaskNotFound,
)
from herdmesh.session.model import TargetState, UnitId
from herdmesh.session.worker_commands import ValidateOnWorker, WorkerCommand
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import revision

WRONG = sink(1, wrong="yes")
NOT_THE_REVISION = WriteOptions(expected_revision=revision(999))
#: Each is wrong in every way that its kind can be.
ALL_WRONG: tuple[Request, ...] = (
    CreateConnector("", WRONG),
    UpdateConnector("", WRONG),
    PatchConnector("", WRONG),
    PlanConfig("", WRONG),
    ValidateConfig({}),
    DeleteConnector(""),
    *(SetTarget("", target) for target in TargetState),
    RestartConnector("", include_tasks=True),
    RestartTask("", -1),
)


@pytest.fixture
def world() -> World:
    """A leader, one worker and connector `a`."""
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(1)))
    return world


def refused(world: World, request: Request, options: WriteOptions | None = None) -> HerdmeshError:
    before = dict(world.config.entries)
    with pytest.raises(HerdmeshError) as error:
        world.ask(request, options)
    assert world.config.entries == before, "what is refused changes nothing"
    return error.value


@pytest.mark.parametrize("request_", ALL_WRONG, ids=lambda one: type(one).__name__)
def test_leadership_is_checked_before_anything_else(world: World, request_: Request) -> None:
    world.post(ev.LeadershipFollowing("h2", "there:2", 2))
    error = refused(world, request_, NOT_THE_REVISION)
    assert isinstance(error, NotLeader)
    assert error.leader_address == "there:2"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # name, validation, existence
        (CreateConnector("a\nb", WRONG), "name"),
        (CreateConnector("a", {**WRONG, "name": "b"}), "name"),
        (CreateConnector("a", WRONG), "wrong"),
        (CreateConnector("a", sink(1)), ConnectorExists),
        (ValidateConfig(WRONG, "a\nb"), "name"),
        (ValidateConfig({**WRONG, "name": "b"}, "a"), "name"),
        (ValidateConfig(WRONG, ""), "name"),
        # name, validation, existence, revision
        (UpdateConnector("b", {**WRONG, "name": "c"}), "name"),
        (UpdateConnector("b", WRONG), "wrong"),
        (UpdateConnector("b", sink(1)), ConnectorNotFound),
        (UpdateConnector("a", sink(1)), RevisionMismatch),
        # name, existence, merged config, revision
        (PatchConnector("", WRONG), RequestInvalid),
        (PatchConnector("b", {**WRONG, "name": "c"}), ConnectorNotFound),
        (PatchConnector("a", {"wrong": "yes", "name": "c"}), "name"),
        (PatchConnector("a", {"wrong": "yes"}), "wrong"),
        (PatchConnector("a", {"file": "x"}), RevisionMismatch),
        # name, existence (a revision that is not the stored one: config-store's test_requests.py)
        (DeleteConnector(""), RequestInvalid),
        (DeleteConnector("b"), ConnectorNotFound),
        (SetTarget("", TargetState.STOPPED), RequestInvalid),
        (SetTarget("b", TargetState.STOPPED), ConnectorNotFound),
        # name, existence, task
        (RestartConnector("", include_tasks=True), RequestInvalid),
        (RestartConnector("b", include_tasks=True), ConnectorNotFound),
        (RestartTask("", 9), RequestInvalid),
        (RestartTask("b", 9), ConnectorNotFound),
        (RestartTask("a", 9), TaskNotFound),
    ],
)
def test_the_first_failing_check_is_reported(
    world: World, request_: Request, expected: str | type[HerdmeshError]
) -> None:
    error = refused(world, request_, NOT_THE_REVISION)
    if isinstance(expected, str):
        assert isinstance(error, InvalidConfig)
        assert [violation.field for violation in error.violations] == [expected]
    else:
        assert type(error) is expected


def test_a_restart_plan_needs_a_status(world: World) -> None:
    world.kill("w1")
    world.advance(10_000)
    world.statuses.clear()
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    assert type(refused(world, RestartConnector("b", only_failed=True))) is ConnectorNotFound
    assert type(refused(world, RestartConnector("a", only_failed=True))) is StatusNotFound
    assert type(refused(world, RestartTask("a", 9))) is TaskNotFound, "a task needs no status"


@pytest.mark.parametrize(
    "request_",
    [
        PatchConnector("b", WRONG), DeleteConnector("b"), SetTarget("b", TargetState.PAUSED), RestartConnector("b"),
        RestartTask("b", 0), CreateConnector("a\nb", WRONG), UpdateConnector("a", {**WRONG, "name": "b"}),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_requests_refused_without_a_worker_send_no_command(
    world: World, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[WorkerCommand] = []
    answer = world.workers["w1"]._answer  # pyright: ignore[reportPrivateUsage]

    def listen(reply: ev.CommandReplied, body: WorkerCommand) -> ev.CommandReplied | None:
        asked.append(body)
        return answer(reply, body)

    monkeypatch.setattr(world.workers["w1"], "_answer", listen)
    refused(world, request_)
    assert asked == []
    refused(world, CreateConnector("a", WRONG))
    assert [type(body) for body in asked] == [ValidateOnWorker]


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("b", CreateConnector("b", sink(1), verdict=Validation())),
        ("a", UpdateConnector("a", sink(2), verdict=Validation())),
    ],
)
def test_a_config_with_a_verdict_is_not_validated_again(world: World, name: str, request_: Request) -> None:
    world.kill("w1")
    world.advance(10_000)
    world.ask(request_)
    assert world.config.entries[name].config["name"] == name


def test_only_validated_requests_need_a_worker(world: World) -> None:
    world.kill("w1")
    world.advance(10_000)
    for request in (CreateConnector("a", sink(1)), UpdateConnector("a", sink(1)), PatchConnector("a", {"x": "y"})):
        assert type(refused(world, request)) is NoWorker
    for request in (
        *(SetTarget("a", target) for target in TargetState),
        RestartConnector("a"),
        DeleteConnector("a"),
    ):
        world.ask(request)
    assert UnitId("a") not in world.running()
