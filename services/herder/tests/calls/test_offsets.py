"""Offsets listed in any state and changed while a connector is stopped: Connect's checks in their order
(docs/reference/connect/offsets-topic.md, section 10.3; docs/reference/connect/herder.md, section 10), the waits and
fences before a change, the calls that wait for it, and its effects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    ChangeOffsets,
    CreateConnector,
    DeleteConnector,
    GetOffsets,
    OffsetsAnswer,
    PatchConnector,
    RestartConnector,
    SetTarget,
    WriteOptions,
    Written,
)
from herdmesh.rpc.errors import (
    ConnectorNotFound,
    ConnectorNotStopped,
    HerdmeshError,
    InvalidConfig,
    NoLeader,
    NotLeader,
    NoWorker,
    OffsetsRefused,
    RequestInvalid,
    Timeout,
    Unreachable,
    WriteOutcomeUnknown,
)
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import Failure, OffsetEntry, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_commands import AWAY, REFUSED

AT_7 = OffsetEntry('{"filename":"a.txt"}', '{"position":7}')
FORGET = OffsetEntry('{"filename":"a.txt"}')
QuestionT = TypeVar("QuestionT", bound=qu.WorkerCommand)
ALTER = ChangeOffsets("a", (AT_7,))
RESET = ChangeOffsets("a", reset=True)
REWIND = ChangeOffsets("a", rewind_to_ms=5_000)


@pytest.fixture
def world() -> World:
    """A leader, two workers, and a connector of two tasks that runs."""
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    world.advance(4_000)
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    assert len(world.running()) == 3
    return world


@pytest.fixture
def stopped(world: World) -> World:
    """The same, stopped."""
    stop(world)
    world.advance(1_000)
    return world


def stop(world: World) -> None:
    world.ask(SetTarget("a", TargetState.STOPPED))


def questions(world: World, kind: type[QuestionT]) -> list[QuestionT]:
    return [one for worker in world.workers.values() for one in worker.answers.asked if isinstance(one, kind)]


def fences(world: World) -> list[tuple[str, int]]:
    return [fence for worker in world.workers.values() for fence in worker.fences]


def commit(world: World) -> None:
    """Write statuses of the tasks that have a commit."""
    for unit in [unit for unit in world.statuses if unit.task is not None]:
        world.statuses[unit] = replace(world.statuses[unit], commit_scope=CommitScope("connect-a", ("t",)))
        world.post(ev.StatusPut(world.statuses[unit]))
    world.run()


# --- listing


def test_offsets_are_listed_while_the_connector_runs_and_while_it_is_stopped(world: World) -> None:
    world.offsets["a"] = [(AT_7,)]
    assert world.ask(GetOffsets("a")) == OffsetsAnswer((AT_7,))
    stop(world)
    assert world.ask(GetOffsets("a")) == OffsetsAnswer((AT_7,))
    [first, _] = questions(world, qu.ReadOffsets)
    assert first == qu.ReadOffsets("a", world.config.entries["a"].config)


def test_offsets_of_an_unknown_connector_are_refused(world: World) -> None:
    for request in (GetOffsets("b"), replace(ALTER, name="b"), replace(RESET, name="b"), replace(REWIND, name="b")):
        with pytest.raises(ConnectorNotFound):
            world.ask(request)
    assert questions(world, qu.ReadOffsets) == questions(world, qu.AlterOffsets) == []


def test_offsets_are_read_by_a_second_worker_when_the_first_does_not_answer(world: World) -> None:
    for worker in world.workers.values():
        worker.answers.mute = True
    number = world.call(GetOffsets("a"))
    world.run()
    for worker in world.workers.values():
        worker.answers.mute = False
    world.advance(3_000)
    assert isinstance(world.answers[number], OffsetsAnswer)


def test_unreadable_offsets_are_refused_or_retriable_by_error_class(world: World) -> None:
    for worker in world.workers.values():
        worker.answers.read_failure = AWAY
    with pytest.raises(NoWorker, match="could not read the offsets: Kafka does not answer; try again"):
        world.ask(GetOffsets("a"))
    for worker in world.workers.values():
        worker.answers.read_failure = REFUSED
    with pytest.raises(OffsetsRefused, match="were not read"):
        world.ask(GetOffsets("a"))


# --- checks before a change, in order


def test_a_follower_names_the_leader_to_an_offset_request(stopped: World) -> None:
    stopped.post(ev.LeadershipFollowing("h2", "127.0.0.1:9", 7))
    stopped.run()
    for request in (GetOffsets("a"), ALTER, RESET, REWIND):
        with pytest.raises(NotLeader):
            stopped.ask(request)


def test_an_empty_change_is_refused_before_other_checks(world: World) -> None:
    with pytest.raises(RequestInvalid, match="Partitions / offsets need to be provided") as refused:
        world.ask(ChangeOffsets("b"))
    assert [violation.field for violation in refused.value.violations] == ["offsets"]


@pytest.mark.parametrize("target", [TargetState.STARTED, TargetState.PAUSED])
@pytest.mark.parametrize("request_", [ALTER, RESET, REWIND, replace(ALTER, dry_run=True)])
def test_a_change_of_a_connector_that_is_not_stopped_is_refused(
    world: World, target: TargetState, request_: ChangeOffsets
) -> None:
    world.ask(SetTarget("a", target))
    with pytest.raises(ConnectorNotStopped, match="stop it first"):
        world.ask(request_)
    assert questions(world, qu.AlterOffsets) == []


def test_a_change_waits_until_the_tasks_have_stopped(world: World) -> None:
    for worker in world.workers.values():
        worker.stop_silently = True
    stop(world)
    number = world.call(ALTER, timeout_ms=20_000)
    late = world.call(ALTER, timeout_ms=500)
    world.advance(1_000)
    assert number not in world.answers
    error = world.answers[late]
    assert isinstance(error, Timeout)
    assert error.metadata["stage"] == "waiting for the connector's tasks to stop"
    assert questions(world, qu.AlterOffsets) == []
    for worker in world.workers.values():
        worker.stop_silently = False
        for unit in [unit for unit in worker.held if unit.task is not None]:
            world.release(worker, unit)
    world.advance(500)
    assert world.answers[number] == OffsetsAnswer((AT_7,), "done")


def test_a_change_goes_to_one_worker_with_the_revision_that_stops_a_late_one(stopped: World) -> None:
    assert stopped.ask(ALTER) == OffsetsAnswer((AT_7,), "done")
    [asked] = questions(stopped, qu.AlterOffsets)
    entry = stopped.config.entries["a"]
    assert (asked.config, asked.offsets, asked.incarnation) == (entry.config, (AT_7,), entry.incarnation)
    assert asked.incarnation
    assert asked.revision is not None
    stopped.ask(REWIND)
    stopped.ask(replace(RESET, dry_run=True))
    told = [(one.reset, one.rewind_to_ms, one.dry_run) for one in questions(stopped, qu.AlterOffsets)]
    assert sorted(told, key=str) == sorted([(False, None, False), (False, 5_000, False), (True, None, True)], key=str)


def test_tasks_that_may_run_on_a_lost_worker_are_fenced_first(world: World) -> None:
    """Connect: testModifyOffsetsSourceConnectorExactlyOnceEnabled."""
    holder = next(worker for worker in world.workers.values() if UnitId("a", 1) in worker.held)
    holder.frozen = True
    stop(world)
    world.advance(8_000)
    world.ask(replace(ALTER, dry_run=True))
    assert fences(world) == [], "a dry run changes nothing"
    world.ask(ALTER)
    assert ("a", 2) in fences(world)
    assert world.offsets == {"a": [(AT_7,)]}


def test_a_failed_fence_leaves_the_offsets_unchanged(world: World) -> None:
    """Connect: testModifyOffsetsSourceConnectorExactlyOnceEnabledZombieFencingFailure."""
    next(worker for worker in world.workers.values() if UnitId("a", 1) in worker.held).frozen = True
    stop(world)
    world.advance(8_000)
    for worker in world.workers.values():
        worker.fence_failure = AWAY
    with pytest.raises(NoWorker, match=r"could not fence the earlier tasks: .*; nothing was changed, try again"):
        world.ask(ALTER)
    assert world.offsets == {}


def test_a_new_leader_fences_earlier_tasks_and_waits_for_workers(stopped: World) -> None:
    stopped.kill_herder()
    stopped.lead()
    stopped.advance(4_000)
    stopped.ask(ALTER)
    assert fences(stopped) == [("a", 2)]


def test_a_change_for_a_class_that_no_worker_has_is_refused(stopped: World) -> None:
    entry = stopped.config.entries["a"]
    stopped.config.entries["a"] = gone = replace(entry, config={**entry.config, "connector.class": "Gone"})
    stopped.post(ev.ConfigChanged("a", gone, None))
    stopped.run()
    for request in (GetOffsets("a"), ALTER):
        with pytest.raises(InvalidConfig, match="Gone"):
            stopped.ask(request)


# --- workers' replies


def fail(world: World, *, outcome_unknown: bool) -> None:
    for worker in world.workers.values():
        worker.answers.offset_failure = AWAY if outcome_unknown else REFUSED
        worker.answers.offset_uncertain = outcome_unknown


def test_a_connectors_refusal_is_passed_on_with_its_message(stopped: World) -> None:
    fail(stopped, outcome_unknown=False)
    with pytest.raises(OffsetsRefused, match="were not changed: The value for the 'position' key"):
        stopped.ask(ALTER)


def test_an_unknown_outcome_at_the_worker_has_its_own_error(stopped: World) -> None:
    fail(stopped, outcome_unknown=True)
    with pytest.raises(WriteOutcomeUnknown, match="does not know whether the offsets of a were changed"):
        stopped.ask(ALTER)
    for worker in stopped.workers.values():
        worker.answers.offset_uncertain = False
    with pytest.raises(NoWorker, match=r"could not change the offsets: .*; nothing was changed"):
        stopped.ask(ALTER)


def test_a_change_is_sent_to_another_worker_when_the_first_is_lost(stopped: World) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    number = stopped.call(ALTER, timeout_ms=30_000)
    stopped.run()
    first = next(worker for worker in stopped.workers.values() if worker.answers.asked)
    other = next(worker for worker in stopped.workers.values() if worker is not first)
    stopped.kill(first.id)
    stopped.advance(3_000)
    assert isinstance(other.answers.asked[-1], qu.AlterOffsets)
    stopped.kill(other.id)
    stopped.advance(10_000)
    error = stopped.answers[number]
    assert isinstance(error, WriteOutcomeUnknown)
    assert "disconnected while it changed the offsets of a" in error.message


@pytest.mark.parametrize("failure", [AWAY, REFUSED])
def test_a_second_workers_failure_leaves_the_outcome_unknown(stopped: World, failure: Failure) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    number = stopped.call(ALTER, timeout_ms=30_000)
    stopped.run()
    first = next(worker for worker in stopped.workers.values() if worker.answers.asked)
    for worker in stopped.workers.values():
        worker.answers.mute = False
        worker.answers.offset_failure = failure
    stopped.kill(first.id)
    stopped.advance(3_000)
    error = stopped.answers[number]
    assert isinstance(error, WriteOutcomeUnknown)
    assert f"worker {first.id} disconnected while it changed the offsets of a" in error.message


def test_a_class_lost_with_the_worker_that_changed_the_offsets_is_an_unknown_outcome(stopped: World) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    number = stopped.call(ALTER, timeout_ms=30_000)
    stopped.run()
    entry = stopped.config.entries["a"]
    stopped.config.entries["a"] = gone = replace(entry, config={**entry.config, "connector.class": "Gone"})
    stopped.post(ev.ConfigChanged("a", gone, None))
    stopped.run()
    stopped.kill(next(worker for worker in stopped.workers.values() if worker.answers.asked).id)
    stopped.advance(3_000)
    error = stopped.answers[number]
    assert isinstance(error, WriteOutcomeUnknown)
    assert "Failed to find any class" in error.message


@pytest.mark.parametrize(("dry_run", "told"), [(True, NoLeader), (False, WriteOutcomeUnknown)])
def test_a_leader_that_steps_down_redirects_the_caller_or_answers_outcome_unknown(
    stopped: World, told: type[HerdmeshError], *, dry_run: bool
) -> None:
    """A worker that got the command may have written."""
    for worker in stopped.workers.values():
        worker.answers.mute = True
    number = stopped.call(replace(ALTER, dry_run=dry_run))
    stopped.run()
    stopped.post(ev.LeadershipLost("another one leads"))
    stopped.run()
    assert isinstance(stopped.answers[number], told)


# --- a retry


def test_a_retried_change_gets_the_first_outcome(stopped: World) -> None:
    stopped.offsets["a"] = [(AT_7,)]
    retry = WriteOptions(request_id="r1")
    before = stopped.ask(RESET, retry)
    assert before == OffsetsAnswer((AT_7,), "done")
    asked = len(questions(stopped, qu.AlterOffsets))
    stopped.ask(SetTarget("a", TargetState.STARTED))
    assert stopped.ask(RESET, retry) == before, "also when the connector runs again"
    assert len(questions(stopped, qu.AlterOffsets)) == asked
    with pytest.raises(RequestInvalid, match="another change of offsets"):
        stopped.ask(ALTER, retry)


def test_a_change_with_an_unknown_outcome_can_be_retried(stopped: World) -> None:
    fail(stopped, outcome_unknown=True)
    with pytest.raises(WriteOutcomeUnknown):
        stopped.ask(ALTER, WriteOptions(request_id="r1"))
    for worker in stopped.workers.values():
        worker.answers.offset_failure = None
    assert isinstance(stopped.ask(ALTER, WriteOptions(request_id="r1")), OffsetsAnswer)


# --- other changes of the connector wait


@pytest.mark.parametrize(
    "request_",
    [
        SetTarget("a", TargetState.STARTED),
        DeleteConnector("a"),
        PatchConnector("a", {"note": "x"}),
        RestartConnector("a"),
    ],
)
def test_other_changes_of_a_connector_wait_for_the_change_of_its_offsets(
    stopped: World, request_: SetTarget | DeleteConnector | PatchConnector | RestartConnector
) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    first = stopped.call(ALTER, timeout_ms=2_000)
    stopped.run()
    entry = stopped.config.entries["a"]
    second = stopped.call(request_, timeout_ms=10_000)
    stopped.advance(1_500)
    assert second not in stopped.answers
    assert stopped.config.entries["a"] == entry
    stopped.advance(1_000)
    assert isinstance(stopped.answers[first], WriteOutcomeUnknown)
    assert second in stopped.answers


def test_a_change_of_offsets_waits_for_a_write_under_way(stopped: World) -> None:
    stopped.store_down = True
    stopped.call(SetTarget("a", TargetState.STARTED), timeout_ms=10_000)
    stopped.run()
    altered = stopped.call(ALTER, timeout_ms=1_000)
    stopped.advance(1_200)
    error = stopped.answers[altered]
    assert isinstance(error, Timeout)
    assert error.metadata["stage"] == "waiting for another change of the connector, or of its offsets, to end"
    assert questions(stopped, qu.AlterOffsets) == []


def test_two_changes_of_offsets_run_one_after_the_other(stopped: World) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    stopped.call(ALTER, timeout_ms=1_000)
    stopped.run()
    second = stopped.call(RESET, timeout_ms=10_000)
    stopped.advance(500)
    assert [one.reset for one in questions(stopped, qu.AlterOffsets)] == [False]
    for worker in stopped.workers.values():
        worker.answers.mute = False
    stopped.advance(1_000)
    assert isinstance(stopped.answers[second], OffsetsAnswer)


# --- effects: statuses record commits, and a run takes missing offsets for lost


@pytest.mark.parametrize(
    ("request_", "forgets"),
    [
        (RESET, True),
        (ChangeOffsets("a", (FORGET, AT_7)), True),
        (ALTER, False),
        (REWIND, False),
        (replace(RESET, dry_run=True), False),
    ],
)
def test_tasks_start_without_commits_after_their_offsets_were_deleted(
    stopped: World, request_: ChangeOffsets, forgets: bool
) -> None:
    commit(stopped)
    stopped.ask(request_)
    stopped.starts.clear()
    stopped.ask(SetTarget("a", TargetState.STARTED))
    stopped.advance(1_000)
    scopes = [start.commit_scope for _, start in stopped.starts if start.unit.task is not None]
    assert len(scopes) == 2
    assert [scope is None for scope in scopes] == [forgets] * 2


def test_statuses_that_cannot_be_deleted_are_an_unknown_outcome_until_the_retry(stopped: World) -> None:
    commit(stopped)
    stopped.status_store_error = Unreachable("the status store is away")
    with pytest.raises(WriteOutcomeUnknown, match="the tasks' statuses still record earlier commits"):
        stopped.ask(RESET, WriteOptions(request_id="r1"))
    stopped.status_store_error = None
    stopped.ask(RESET, WriteOptions(request_id="r1"))
    assert {unit.task for unit in stopped.statuses} == {None}


def test_a_cancelled_change_frees_the_connector(stopped: World) -> None:
    for worker in stopped.workers.values():
        worker.answers.mute = True
    number = stopped.call(ALTER)
    stopped.run()
    stopped.post(ev.RequestCancelled(number))
    stopped.run()
    assert isinstance(stopped.ask(SetTarget("a", TargetState.STARTED)), Written)
