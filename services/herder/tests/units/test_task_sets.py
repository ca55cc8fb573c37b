"""Task sets from a connector's configs to running tasks: created, compared, committed, fenced, counted; each step at
its time, and once.

The user's view of a set (restarts, pauses, deletions) is in `test_lifecycle`; the effects of leaders and workers that
come and go are in `test_workers`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, SetTarget, UpdateConnector
from herdmesh.herder.state.units import task_sets
from herdmesh.herder.state.views.views import ConnectorView
from herdmesh.rpc.errors import HerdmeshError, RevisionMismatch, StaleEpoch, Unreachable
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import Failure, RunState, TargetState, UnitId
from services.herder.tests.world import World, sink
from services.herder.tests.world_worker import Worker

AWAY = Failure("the database is away", error_class=ErrorClass.RETRIABLE)


@pytest.fixture
def world() -> World:
    world = World()
    world.lead()
    world.worker("w1")
    world.worker("w2")
    return world


def seen(world: World, name: str = "a") -> ConnectorView:
    view = world.herder.connector(name)
    assert view is not None
    return view


def states(world: World) -> list[RunState]:
    view = seen(world)
    return [view.status.state, *(task.status.state for task in view.tasks)]


def holder(world: World, unit: UnitId) -> Worker:
    return next(worker for worker in world.workers.values() if worker.alive and unit in worker.held)


def refuse_commits(world: World, error: HerdmeshError) -> list[int]:
    """Have the config store refuse task sets; returns the times of the attempts."""
    asked: list[int] = []
    write = world.config.write

    def refusing(wanted: ins.Write) -> object:
        if isinstance(wanted, ins.CommitTasks):
            asked.append(world.now)
            raise error
        return write(wanted)

    world.config.write = refusing  # type: ignore[method-assign,assignment]  # pyright: ignore[reportAttributeAccessIssue]
    return asked


def accept_commits(world: World) -> None:
    del world.config.write


# --- creation


def test_task_configs_come_from_the_worker_that_runs_the_connector(world: World) -> None:
    world.ask(CreateConnector("a", sink(3)))
    assert len(world.asked_ms["a"]) == 1
    assert world.config.commits == ["a"]
    where = holder(world, UnitId("a"))
    other = next(worker for worker in world.workers.values() if worker is not where)
    assert other.session is not None
    held = where.held[UnitId("a")]
    made = ev.TaskConfigsMade(other.session, "a", held.assignment, ({"part": "stranger"},))
    world.post(made)
    world.run()
    assert world.config.commits == ["a"], "nobody else makes a connector's task configs"


def test_a_task_starts_with_the_revision_that_its_leader_had_read(world: World) -> None:
    """A run reads the config topic from there on: its set is in force there, whichever leader starts it and why."""
    world.ask(CreateConnector("a", sink(2)))
    world.ask(CreateConnector("b", sink(1)))
    world.ask(UpdateConnector("a", sink(3)))
    world.kill(holder(world, UnitId("a", 0)).id)
    world.advance(10_000)
    commits = {name: entry.config_revision for name, entry in world.config.entries.items()}
    for _, start in world.starts:
        if start.unit.task is None:
            assert start.revision is None, "nothing of it runs in a process of its own"
            continue
        assert start.revision is not None
        assert start.assignment.config_revision is not None
        assert start.revision.includes(start.assignment.config_revision)
        assert start.revision != start.assignment.config_revision, "its set was committed after its connector's config"
    last = [start.revision for _, start in world.starts if start.unit.connector == "a" and start.unit.task is not None]
    assert last[-1] is not None
    assert all(revision is not None and last[-1].includes(revision) for revision in [*last, *commits.values()])


def test_task_reconfiguration_retries_with_connector_task_configs_exception(world: World) -> None:
    """250 ms x 2^n, a minute at most, until it succeeds; then the count of failures begins anew."""
    world.task_failures["a"] = AWAY
    world.ask(CreateConnector("a", sink(1)))
    world.advance(200_000)
    asked = world.asked_ms["a"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    wanted = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert len(pauses) == len(wanted)
    assert all(0 <= pause - want < 200 for pause, want in zip(pauses, wanted, strict=True)), pauses
    view = seen(world)
    assert view.status.state is RunState.RUNNING, "the instance runs; its question failed"
    assert [one.message for one in view.status.conditions if one.type == "TASK_CONFIGS"] == ["the database is away"]
    del world.task_failures["a"]
    world.advance(60_000)
    assert states(world) == [RunState.RUNNING] * 2
    assert seen(world).status.conditions == ()
    world.task_failures["a"] = AWAY
    world.ask(UpdateConnector("a", sink(1, file="other")))
    before = len(world.asked_ms["a"])
    world.advance(400)
    assert len(world.asked_ms["a"]) == before + 1, "250 ms again"


def test_task_reconfiguration_retries_with_leader_request_forwarding_exception(world: World) -> None:
    """Java forwards the set to the leader; here the leader commits it. It retries, with a new task-config request."""
    asked = refuse_commits(world, Unreachable("the config store is away"))
    world.ask(CreateConnector("a", sink(1)))
    world.advance(2_000)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert [round(pause, -2) for pause in pauses[:2]] in ([300, 500], [200, 500], [300, 600])
    assert "the config store is away" in seen(world).status.conditions[0].message
    accept_commits(world)
    world.advance(5_000)
    assert states(world) == [RunState.RUNNING] * 2
    assert world.config.commits == ["a"]


def test_task_reconfiguration_no_retry_with_too_many_tasks(world: World) -> None:
    world.task_counts["a"] = 3
    world.ask(CreateConnector("a", sink(2)))
    world.advance(120_000)
    assert len(world.asked_ms["a"]) == 1
    assert world.config.commits == []
    assert states(world) == [RunState.FAILED]
    stored = world.statuses[UnitId("a")]
    assert stored.state is RunState.FAILED, "status watchers see it too, though its worker knows nothing of it"
    assert stored.trace is not None
    assert "has generated 3 tasks, which is greater than 2" in stored.trace


def test_more_tasks_than_tasks_max_are_allowed_where_it_is_not_enforced(world: World) -> None:
    world.task_counts["a"] = 3
    world.ask(CreateConnector("a", sink(2, **{"tasks.max.enforce": "false"})))
    assert states(world) == [RunState.RUNNING] * 4


@pytest.mark.parametrize("error_class", [ErrorClass.BAD_CONFIG, ErrorClass.FATAL])
def test_a_final_failure_of_task_configs_fails_the_connector(world: World, error_class: ErrorClass) -> None:
    world.task_failures["a"] = Failure("no such table", "Traceback", error_class)
    world.ask(CreateConnector("a", sink(1)))
    world.advance(120_000)
    assert len(world.asked_ms["a"]) == 1
    view = seen(world)
    assert view.status.state is RunState.FAILED
    assert view.status.failure is not None
    assert view.status.failure.message == "no such table"


def test_a_paused_connector_gets_no_task_config_request_until_it_resumes(world: World) -> None:
    world.ask(CreateConnector("a", sink(1), TargetState.PAUSED))
    world.advance(5_000)
    assert "a" not in world.asked_ms
    world.ask(SetTarget("a", TargetState.STARTED))
    assert len(world.asked_ms["a"]) == 1
    world.ask(SetTarget("a", TargetState.PAUSED))
    world.ask(SetTarget("a", TargetState.STARTED))
    assert len(world.asked_ms["a"]) == 2, "resume triggers a reconfiguration, as in Connect"
    assert world.config.commits == ["a"], "and what is the same is not written again"


def test_task_configs_that_fail_after_the_stop_leave_the_connector_stopped(world: World) -> None:
    world.ask(CreateConnector("a", sink(1)))
    worker = holder(world, UnitId("a"))
    assert worker.session is not None
    assignment = worker.held[UnitId("a")].assignment
    world.ask(SetTarget("a", TargetState.STOPPED))
    late = Failure("no such table", "Traceback", ErrorClass.BAD_CONFIG)
    world.post(ev.TaskConfigsMade(worker.session, "a", assignment, (), late))
    world.run()
    assert seen(world).status.state is RunState.STOPPED
    world.ask(SetTarget("a", TargetState.STARTED))
    assert states(world) == [RunState.RUNNING] * 2


# --- comparison


def test_unchanged_task_configs_are_not_written(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    starts = len(world.starts)
    ask_for_reconfiguration(world, ({"task.class": "x", "part": "0"}, {"task.class": "x", "part": "1"}))
    assert world.config.commits == ["a"]
    assert len(world.starts) == starts


@pytest.mark.parametrize(
    "tasks",
    [
        ({"task.class": "x", "part": "0"},),
        ({"task.class": "x", "part": "0"}, {"task.class": "x", "part": "other"}),
        tuple({"task.class": "x", "part": str(task)} for task in range(3)),
    ],
    ids=["fewer", "one changed", "more"],
)
def test_a_connector_may_request_a_new_set_itself(world: World, tasks: tuple[dict[str, str], ...]) -> None:
    """`requestTaskReconfiguration`: every task starts again, the connector and others do not."""
    world.ask(CreateConnector("a", sink(3)))
    world.ask(CreateConnector("b", sink(2)))
    ask_for_reconfiguration(world, ({"task.class": "x", "part": "0"}, {"task.class": "x", "part": "1"}))
    starts = len(world.starts)
    ask_for_reconfiguration(world, tasks)
    assert [str(start.unit) for _, start in world.starts[starts:]] == [f"a-{task}" for task in range(len(tasks))]
    assert states(world) == [RunState.RUNNING] * (1 + len(tasks))
    assert world.config.counts[-1] == ("a", len(tasks))


def ask_for_reconfiguration(world: World, tasks: tuple[dict[str, str], ...]) -> None:
    worker = holder(world, UnitId("a"))
    assert worker.session is not None
    world.post(ev.TaskConfigsMade(worker.session, "a", worker.held[UnitId("a")].assignment, tasks))
    world.run()


def test_a_set_that_shrinks_to_nothing_leaves_no_status(world: World) -> None:
    world.ask(CreateConnector("a", sink(2)))
    ask_for_reconfiguration(world, ())
    world.advance(5_000)
    assert states(world) == [RunState.RUNNING]
    assert {unit.task for unit in world.statuses if unit.connector == "a"} == {None}
    ask_for_reconfiguration(world, ({"task.class": "x", "part": "0"},))
    assert states(world) == [RunState.RUNNING] * 2


# --- commit


def test_a_set_is_committed_in_one_write_under_the_leaders_epoch(world: World) -> None:
    written: list[ins.CommitTasks] = []
    write = world.config.write

    def noting(wanted: ins.Write) -> object:
        if isinstance(wanted, ins.CommitTasks):
            written.append(wanted)
        return write(wanted)

    world.config.write = noting  # type: ignore[method-assign,assignment]  # pyright: ignore[reportAttributeAccessIssue]
    world.ask(CreateConnector("a", sink(3)))
    world.lead()
    world.advance(1_000)
    world.ask(UpdateConnector("a", sink(2)))
    assert [(len(one.tasks), one.epoch) for one in written] == [(3, 1), (2, 2)]
    assert all(one.config_revision is not None for one in written), "of the config they were made from, and no other"


def test_a_leader_under_an_outdated_epoch_commits_nothing(world: World) -> None:
    """The store refuses its epoch; its task configs are created again under the next leader."""
    refuse_commits(world, StaleEpoch("epoch 1 is over"))
    world.ask(CreateConnector("a", sink(1)))
    world.advance(1_000)
    assert world.config.commits == []
    accept_commits(world)
    world.lead()
    world.advance(3_000)
    assert states(world) == [RunState.RUNNING] * 2
    assert world.config.commits == ["a"]


# --- fence (docs/reference/connect/herder.md, sections 5 and 10)


def test_external_zombie_fencing_request_for_already_fenced_connector(world: World) -> None:
    """Nothing is pending: a restart of the tasks, or of the herder, fences and counts nothing."""
    world.ask(CreateConnector("a", sink(2)))
    counts = list(world.config.counts)
    world.lead()
    world.advance(10_000)
    assert world.config.counts == counts
    assert [worker.fences for worker in world.workers.values()] == [[], []]


def test_external_zombie_fencing_request_for_fresh_connector(world: World) -> None:
    """No set ran before: the count is recorded, no task is fenced."""
    world.ask(CreateConnector("a", sink(2)))
    assert world.config.counts == [("a", 2)]
    assert [worker.fences for worker in world.workers.values()] == [[], []]


@pytest.mark.parametrize(("old", "new", "writes"), [(0, 3, 1), (1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 2)])
def test_a_set_is_counted_with_its_commit_when_nothing_must_be_fenced(
    world: World, old: int, new: int, writes: int
) -> None:
    """No task ran, or task 0 alone did and alone will: one write. Otherwise running tasks are stopped in between."""
    if old:
        world.ask(CreateConnector("a", sink(old)))
    seen_writes: list[ins.Write] = []
    write = world.config.write

    def noting(wanted: ins.Write) -> object:
        if isinstance(wanted, ins.CommitTasks | ins.PutTaskCount):
            seen_writes.append(wanted)
        return write(wanted)

    world.config.write = noting  # type: ignore[method-assign,assignment]  # pyright: ignore[reportAttributeAccessIssue]
    world.ask(UpdateConnector("a", {**sink(new), "changed": "yes"}, allow_missing=True))
    world.advance(1_000)
    assert len(seen_writes) == writes
    assert world.config.counts[-1] == ("a", new)
    assert states(world) == [RunState.RUNNING] * (1 + new)


def test_an_abandoned_commit_that_took_effect_is_detected(world: World) -> None:
    """1. A commit is written, but its outcome stays unknown; 2. the same set is committed again before the watch
    shows the first: the store refuses it, for tasks of the first may run; 3. the watch has it, and they do."""
    refuse_commits(world, RevisionMismatch("", "another task set is in force now"))
    world.ask(CreateConnector("a", sink(2)))
    world.advance(1_000)
    assert states(world) == [RunState.RUNNING]
    accept_commits(world)
    world.advance(1_000)
    assert states(world) == [RunState.RUNNING] * 3
    assert world.config.commits == ["a"]


def lose_a_task(world: World, tasks: int) -> Worker:
    """A connector whose task on w2 may run on: w2 receives nothing and has acknowledged no stop. Returns the other
    worker.
    """
    world.ask(CreateConnector("a", sink(tasks)))
    keeper, lost = world.workers["w1"], world.workers["w2"]
    if not any(unit.task is not None for unit in lost.held):
        keeper, lost = lost, keeper
    lost.frozen = True
    return keeper


def test_external_zombie_fencing_request_for_single_task_connector(world: World) -> None:
    """1 -> 1: the new task takes over the id of the old one; that is the fence."""
    keeper = lose_a_task(world, 1)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(1_000)
    assert states(world) == [RunState.RUNNING] * 2
    assert keeper.fences == []
    assert world.config.counts == [("a", 1), ("a", 1)], "recorded for the new set, too"


def test_external_zombie_fencing_request_immediate_completion(world: World) -> None:
    """Two ran, two are to run: both ids are fenced by one command, then the count is recorded, then tasks start."""
    keeper = lose_a_task(world, 2)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(1_000)
    assert keeper.fences == [("a", 2)]
    assert states(world) == [RunState.RUNNING] * 3


@pytest.mark.parametrize("error_class", [ErrorClass.RETRIABLE, ErrorClass.UNKNOWN])
def test_external_zombie_fencing_request_asynchronous_failure(world: World, error_class: ErrorClass) -> None:
    """(and ...synchronous_failure): nothing starts, the explanation gives the reason, and the fence is retried with a
    backoff.
    """
    keeper = lose_a_task(world, 2)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.fence_failure = Failure("the broker is away", error_class=error_class)
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(1_000)
    assert 2 <= len(keeper.fences) <= 4, "250, 500, 1000 ms"
    assert not any(unit.task is not None for unit in keeper.held)
    assert world.config.counts == [("a", 2)], "of the set before"
    told = [one.message for one in seen(world).status.conditions]
    assert any("could not be fenced: the broker is away" in message for message in told)
    keeper.fence_failure = None
    world.advance(5_000)
    assert states(world) == [RunState.RUNNING] * 3


def test_external_zombie_fencing_request_delayed_completion(world: World) -> None:
    """However many tasks wait, one fence is under way per connector; none of them starts before it has ended."""
    keeper = lose_a_task(world, 3)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.deaf_to = qu.FenceTasks
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(4_000)
    assert len(keeper.unanswered) == 1
    assert not any(unit.task is not None for unit in keeper.held)
    keeper.deaf_to = None
    keeper.hear(keeper.unanswered[0])
    world.run()
    assert keeper.fences == [("a", 3)]
    assert states(world) == [RunState.RUNNING] * 4


def test_the_fence_of_a_worker_that_dies_is_sent_to_another(world: World) -> None:
    keeper = lose_a_task(world, 2)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.deaf_to = qu.FenceTasks
    world.ask(SetTarget("a", TargetState.STARTED))
    other = world.worker("w3")
    world.kill(keeper.id)
    world.advance(3_000)
    assert other.fences == [("a", 2)]
    assert states(world) == [RunState.RUNNING] * 3


def test_the_fence_of_a_worker_that_leaves_is_sent_to_another(world: World) -> None:
    """It is released as soon as it holds nothing, whatever commands it has."""
    keeper = lose_a_task(world, 2)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.deaf_to = qu.FenceTasks
    world.ask(SetTarget("a", TargetState.STARTED))
    other = world.worker("w3")
    assert keeper.session is not None
    keeper.say(ev.WorkerLeft(keeper.session))
    world.advance(3_000)
    assert keeper.released
    assert other.fences == [("a", 2)]
    assert states(world) == [RunState.RUNNING] * 3


def test_a_fence_does_not_cover_a_task_lost_after_its_command(world: World) -> None:
    """1. A fence is sent; 2. the lost worker returns with its old task, and is lost again; 3. the reply arrives: the
    task may have taken its id back in between, so it is fenced again.
    """
    keeper = lose_a_task(world, 2)
    lost = next(worker for worker in world.workers.values() if worker is not keeper)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.deaf_to = qu.FenceTasks
    world.ask(SetTarget("a", TargetState.STARTED))
    lost.frozen, lost.session, lost.stop_silently = False, None, True
    lost.keeps_all = True
    lost.dial()
    world.run()
    lost.frozen = True
    world.advance(7_000)
    keeper.deaf_to = None
    keeper.hear(keeper.unanswered[0])
    world.advance(1_000)
    assert keeper.fences == [("a", 2), ("a", 2)]
    assert states(world) == [RunState.RUNNING] * 3


def test_a_set_committed_during_a_fence_is_counted_once(world: World) -> None:
    """Java answers 409 "because a new set of task configs was generated"; here the fence continues and serves both."""
    keeper = lose_a_task(world, 2)
    world.ask(SetTarget("a", TargetState.STOPPED))
    world.advance(7_000)
    keeper.deaf_to = qu.FenceTasks
    world.ask(SetTarget("a", TargetState.STARTED))
    world.ask(UpdateConnector("a", sink(4)))
    keeper.deaf_to = None
    keeper.hear(keeper.unanswered[0])
    world.advance(1_000)
    assert world.config.counts[-1] == ("a", 4)
    assert states(world) == [RunState.RUNNING] * 5


def test_the_next_incarnation_of_a_name_waits_for_the_fence_of_the_last(world: World) -> None:
    keeper = lose_a_task(world, 3)
    world.ask(DeleteConnector("a"))
    world.advance(7_000)
    world.ask(CreateConnector("a", sink(1)))
    world.advance(1_000)
    assert keeper.fences == [("a", 3)], "the record of the deleted one stays, and so does who may run on"
    assert states(world) == [RunState.RUNNING] * 2


def test_an_incarnation_that_begins_paused_keeps_no_statuses_of_earlier_tasks(world: World) -> None:
    """Their worker was unreachable when the connector was deleted, so that their statuses could not be removed."""
    keeper = lose_a_task(world, 3)
    lost = next(worker for worker in world.workers.values() if worker is not keeper)
    world.ask(DeleteConnector("a"))
    assert any(unit.task is not None for unit in world.statuses), "nothing to remove: the test is void"
    world.ask(CreateConnector("a", sink(1), TargetState.PAUSED))
    world.advance(20_000)
    assert set(world.statuses) == {UnitId("a")}
    lost.frozen = False
    world.advance(10_000)
    assert set(world.statuses) == {UnitId("a")}, "nor what the worker says of them when it is back"
    world.ask(SetTarget("a", TargetState.STARTED))
    world.advance(1_000)
    assert states(world) == [RunState.RUNNING] * 2


def test_deletion_clears_statuses_and_topics_in_one_write(world: World) -> None:
    """Offsets stay: no record of ours names them."""
    sent: list[ins.DeleteStatuses] = []
    handle = world.herder.handle

    def noting(event: ev.Event, now: int) -> list[ins.Instruction]:
        out = handle(event, now)
        sent.extend(one for one in out if isinstance(one, ins.DeleteStatuses))
        return out

    world.ask(CreateConnector("a", sink(2)))
    world.herder.handle = noting  # type: ignore[method-assign]
    world.ask(DeleteConnector("a"))
    world.advance(3_000)
    # Without a first task number, so including topics; see tests/integration/test_herder_wire.py.
    assert [(one.connector, one.tasks_from) for one in sent] == [("a", None)]
    assert sent[0].generation_below == max(start.assignment.generation for _, start in world.starts) + 1
    assert world.statuses == {}


def test_task_set_backoff_doubles_up_to_a_minute() -> None:
    assert [task_sets.backoff_ms(attempt) for attempt in (0, 1, 2, 7, 8, 50)] == [
        250,
        500,
        1_000,
        32_000,
        60_000,
        60_000,
    ]


def test_an_inconsistent_set_is_created_anew(world: World) -> None:
    """A set left incomplete by compaction or by a crashed Java worker starts no task until it is committed as ours."""
    world.ask(CreateConnector("a", sink(2)))
    world.kill_herder()
    world.config.entries["a"] = replace(world.config.entries["a"], inconsistent=True)
    world.config.next()
    world.lead()
    world.advance(10_000)
    assert world.config.commits == ["a", "a"]
    assert states(world) == [RunState.RUNNING] * 3
