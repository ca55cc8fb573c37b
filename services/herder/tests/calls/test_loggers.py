"""Logger levels: listed from every worker, set on one, set in the cluster, and sent to workers that dial in."""

from __future__ import annotations

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model import ClusterLevel
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    GetLoggers,
    LoggersListed,
    LoggersSet,
    SetLoggers,
    WriteOptions,
)
from herdmesh.rpc.errors import (
    LoggerNotFound,
    NoLeader,
    NoWorker,
    RequestInvalid,
    Timeout,
    WorkerNotFound,
)
from herdmesh.session.model import Failure, TargetState
from herdmesh.session.worker_commands import SetLogger
from services.herder.tests.world import World, sink

DEBUG = SetLoggers("org.foo", "debug")


@pytest.fixture
def world() -> World:
    """A leader and two workers, of which one has a logger of its own."""
    world = World()
    world.lead()
    world.worker("w1").answers.levels["org.foo"] = "WARN"
    world.worker("w2")
    return world


def levels(world: World, worker: str) -> dict[str, str]:
    return world.workers[worker].answers.levels


def told(world: World, worker: str) -> list[tuple[str, str]]:
    asked = world.workers[worker].answers.asked
    return [(body.logger, body.level) for body in asked if isinstance(body, SetLogger)]


def listed(world: World, logger: str = "") -> list[tuple[str, str, str]]:
    answer = world.ask(GetLoggers(logger))
    assert isinstance(answer, LoggersListed)
    return [(entry.logger, worker, entry.level) for worker, entry in answer.loggers]


def affected(world: World, request: SetLoggers) -> tuple[str, ...]:
    answer = world.ask(request)
    assert isinstance(answer, LoggersSet)
    return answer.affected


def test_loggers_of_every_worker_sorted_by_name(world: World) -> None:
    assert listed(world) == [("org.foo", "w1", "WARN"), ("root", "w1", "INFO"), ("root", "w2", "INFO")]
    assert listed(world, "org") == [("org.foo", "w1", "WARN")]


def test_an_unknown_logger_is_not_found(world: World) -> None:
    with pytest.raises(LoggerNotFound):
        listed(world, "com.bar")


def test_loggers_need_a_worker() -> None:
    world = World()
    world.lead()
    with pytest.raises(NoWorker):
        listed(world)


def test_a_bad_level_names_the_field_and_the_levels(world: World) -> None:
    with pytest.raises(RequestInvalid) as refused:
        world.ask(SetLoggers("org.foo", "LOUD"))
    assert [violation.field for violation in refused.value.violations] == ["level"]
    assert refused.value.message == (
        "invalid log level 'LOUD': use one of OFF, FATAL, ERROR, WARN, INFO, DEBUG, TRACE, ALL"
    )
    with pytest.raises(RequestInvalid):
        world.ask(SetLoggers(" ", "INFO"))


def test_a_level_for_one_worker_is_sent_to_no_other(world: World) -> None:
    assert affected(world, SetLoggers("org", "DEBUG")) == ("org", "org.foo")
    assert affected(world, SetLoggers("org", "INFO", "w2")) == ("org",)
    assert affected(world, SetLoggers("org", "DEBUG", "w1")) == ()
    assert levels(world, "w2")["org"] == "INFO", "it is nobody's but its own"


def test_setting_a_level_on_one_worker_returns_the_changed_loggers(world: World) -> None:
    assert affected(world, SetLoggers("org", "debug", "w1")) == ("org", "org.foo")
    assert levels(world, "w1") == {"root": "INFO", "org": "DEBUG", "org.foo": "DEBUG"}
    assert levels(world, "w2") == {"root": "INFO"}
    with pytest.raises(WorkerNotFound):
        world.ask(SetLoggers("org", "debug", "w9"))


def test_a_cluster_level_reaches_every_worker(world: World) -> None:
    assert affected(world, DEBUG) == ("org.foo",)
    assert levels(world, "w1")["org.foo"] == levels(world, "w2")["org.foo"] == "DEBUG"


def test_a_cluster_level_recorded_by_another_client_reaches_every_worker(world: World) -> None:
    world.post(ev.LoggerRecorded(ClusterLevel("org.foo", "ERROR", world.config.next()), None))
    world.run()
    assert levels(world, "w1")["org.foo"] == levels(world, "w2")["org.foo"] == "ERROR"


def test_setting_a_cluster_level_again_changes_nothing(world: World) -> None:
    assert affected(world, DEBUG) == ("org.foo",)
    assert affected(world, DEBUG) == ()


def test_a_retry_gets_the_first_changes(world: World) -> None:
    for request in (SetLoggers("org.foo", "DEBUG"), SetLoggers("org.foo", "ERROR", "w1")):
        options = WriteOptions(request_id=f"r-{request.level}")
        first = world.ask(request, options)
        assert first == LoggersSet(("org.foo",))
        assert world.ask(request, options) == first
    assert levels(world, "w2")["org.foo"] == "DEBUG"


def test_a_worker_that_joins_later_gets_the_cluster_levels(world: World) -> None:
    """Unlike in Connect, where a level set before a worker joined never applies to it
    (docs/reference/connect/config-topic.md, section 4.8)."""
    world.ask(DEBUG)
    world.ask(SetLoggers("root", "WARN"))
    world.worker("w3")
    assert levels(world, "w3") == {"root": "WARN", "org.foo": "DEBUG"}
    world.kill("w1")
    world.run()
    world.revive("w1")
    world.run()
    assert levels(world, "w1") == {"root": "WARN", "org.foo": "DEBUG"}


def test_a_level_of_one_worker_overrides_an_older_cluster_level(world: World) -> None:
    world.ask(DEBUG)
    world.ask(SetLoggers("org.foo", "ERROR", "w1"))
    world.advance(1_000)
    world.hang_up(world.workers["w1"])
    world.advance(1_000)
    assert levels(world, "w1")["org.foo"] == "ERROR"
    world.lead()
    world.advance(2_000)
    assert levels(world, "w1")["org.foo"] == "ERROR"


def test_a_worker_that_returns_gets_the_levels_it_missed(world: World) -> None:
    worker = world.workers["w1"]
    world.advance(600)
    world.hang_up(worker)
    world.run()
    world.ask(DEBUG)
    assert levels(world, "w1")["org.foo"] == "WARN"
    world.advance(1_000)
    assert levels(world, "w1")["org.foo"] == "DEBUG"
    assert len(told(world, "w1")) == 1


@pytest.mark.parametrize("heard_ms", [0, 10_000], ids=["its first leader", "long connected"])
def test_a_worker_that_returns_to_another_leader_gets_the_levels_it_missed(world: World, heard_ms: int) -> None:
    """The level was acknowledged while the worker's stream was broken, and that leader dies before the worker is back.
    The worker has an older level of its own.
    """
    world.advance(heard_ms + 600)
    world.ask(SetLoggers("root", "WARN"))
    world.ask(SetLoggers("org.foo", "ERROR", "w1"))
    world.hang_up(world.workers["w1"])
    world.run()
    assert affected(world, DEBUG) == ("org.foo",)
    world.lead()
    world.advance(1_000)
    assert levels(world, "w1")["org.foo"] == "DEBUG"
    assert told(world, "w1") == [("root", "WARN"), ("org.foo", "ERROR"), ("org.foo", "DEBUG")]
    assert told(world, "w2") == [("root", "WARN"), ("org.foo", "DEBUG")], "it heard both from the leader before"


def test_a_level_that_the_next_leader_reads_late_is_not_sent_again(world: World) -> None:
    """The previous leader sent it; the worker's own level, set since, stays in force."""
    world.ask(DEBUG)
    level = world.config.loggers["org.foo"]
    world.lead()
    world.advance(1_000)
    world.ask(SetLoggers("org.foo", "ERROR", "w1"))
    world.post(ev.LoggerRecorded(level, None))
    world.run()
    assert levels(world, "w1")["org.foo"] == "ERROR"


@pytest.mark.parametrize("leader_lost", [False, True], ids=["same leader", "next leader"])
@pytest.mark.parametrize("worker", ["", "w1"], ids=["cluster", "one worker"])
@pytest.mark.parametrize("later", ["", "w1"], ids=["then cluster", "then one worker"])
def test_a_retry_reverts_nothing_and_gets_the_first_changes(
    world: World, worker: str, later: str, leader_lost: bool
) -> None:
    request, options = SetLoggers("org", "DEBUG", worker), WriteOptions("r1")
    first = world.ask(request, options)
    assert first == LoggersSet(("org", "org.foo"))
    for logger in ("org.foo", "org"):
        world.ask(SetLoggers(logger, "ERROR", later))
    if leader_lost:
        world.kill_herder()
        world.lead()
        world.advance(1_000)
    assert world.ask(request, options) == first
    assert (levels(world, "w1")["org"], levels(world, "w1")["org.foo"]) == ("ERROR", "ERROR")


def test_a_request_id_that_a_worker_used_for_another_level_is_refused(world: World) -> None:
    world.workers["w1"].answers.level_failure = Failure("r1 was used for root=INFO", error_class=ErrorClass.BAD_CONFIG)
    with pytest.raises(RequestInvalid, match="r1 was used for root=INFO") as refused:
        world.ask(SetLoggers("org.foo", "DEBUG", "w1"), WriteOptions("r1"))
    assert [violation.field for violation in refused.value.violations] == ["request_id"]


def test_a_restarted_worker_is_sent_its_level_again(world: World) -> None:
    """Its levels and its memory of them ended with its process."""
    request, options = SetLoggers("org.foo", "DEBUG", "w1"), WriteOptions("r1")
    world.ask(request, options)
    world.kill("w1")
    world.revive("w1")
    world.run()
    assert world.ask(request, options) == LoggersSet(("org.foo",))
    assert levels(world, "w1")["org.foo"] == "DEBUG"


def test_a_follower_remembers_levels_for_its_own_leadership(world: World) -> None:
    """Also levels recorded since the snapshot."""
    world.kill_herder()
    world.herder.handle(ev.LoggerRecorded(ClusterLevel("org.foo", "DEBUG", world.config.next()), None), world.now)
    herder = world.herder
    world.lead()
    world.herder = herder
    world.run()
    world.worker("w3")
    assert levels(world, "w3") == {"root": "INFO", "org.foo": "DEBUG"}


def test_cluster_levels_outlive_every_herder(world: World) -> None:
    world.ask(DEBUG)
    world.ask(SetLoggers("root", "ERROR"))
    world.ask(DEBUG)
    world.ask(SetLoggers("org.foo", "WARN", "w1"))
    world.kill_herder()
    world.lead()
    world.advance(10_000)
    before = len(told(world, "w1")), len(told(world, "w2"))
    world.worker("w3")
    assert told(world, "w3") == [("root", "ERROR"), ("org.foo", "DEBUG")], "as they were set"
    world.advance(5_000)
    assert (len(told(world, "w1")), len(told(world, "w2"))) == before, "who heard it from the leader before is let be"
    assert levels(world, "w1")["org.foo"] == "WARN"


def test_a_level_in_a_new_snapshot_is_sent_once(world: World) -> None:
    world.ask(DEBUG)
    world.advance(1_000)
    world.config.put_logger("org.bar", "TRACE")
    entries, loggers = list(world.config.entries.values()), list(world.config.loggers.values())
    for _ in range(2):
        world.post(ev.ConfigSnapshot(entries, world.config.next(), world.config.epoch, None, loggers))
        world.run()
    assert told(world, "w1") == [("org.foo", "DEBUG"), ("org.bar", "TRACE")]


def test_a_lost_worker_is_left_out_of_the_list(world: World) -> None:
    world.workers["w2"].answers.mute = True
    number = world.call(GetLoggers(""))
    world.run()
    assert number not in world.answers
    world.kill("w2")
    world.run()
    answer = world.answers[number]
    assert isinstance(answer, LoggersListed)
    assert {worker for worker, _ in answer.loggers} == {"w1"}


def test_a_worker_lost_before_it_set_its_level_is_reported_as_no_worker(world: World) -> None:
    world.workers["w2"].answers.mute = True
    number = world.call(SetLoggers("root", "DEBUG", "w2"))
    world.run()
    world.kill("w2")
    world.run()
    assert isinstance(world.answers[number], NoWorker)


def test_a_worker_that_does_not_reply_ends_the_call_at_its_deadline(world: World) -> None:
    world.workers["w2"].answers.mute = True
    number = world.call(GetLoggers(""), timeout_ms=300)
    world.advance(400)
    error = world.answers[number]
    assert isinstance(error, Timeout)
    assert error.metadata["stage"] == "reading the loggers of the workers"


def test_a_cluster_level_that_not_all_workers_have_is_sent_by_the_next_leader(world: World) -> None:
    world.workers["w2"].answers.mute = True
    options = WriteOptions("r1")
    number = world.call(DEBUG, options)
    world.run()
    assert number not in world.answers
    world.post(ev.LeadershipLost("another one leads"))
    world.run()
    assert isinstance(world.answers[number], NoLeader)
    world.workers["w2"].answers.mute = False
    world.lead()
    assert world.ask(DEBUG, options) == LoggersSet(()), "nobody is there yet"
    world.advance(1_000)
    assert levels(world, "w1")["org.foo"] == levels(world, "w2")["org.foo"] == "DEBUG"


@pytest.mark.parametrize(
    "later", [SetLoggers("org.foo", "WARN"), SetLoggers("org", "WARN")], ids=lambda one: one.logger
)
def test_a_level_sent_again_reverts_no_later_level(world: World, later: SetLoggers) -> None:
    options = WriteOptions("r1")
    world.ask(DEBUG, options)
    world.ask(later)
    world.kill_herder()
    world.lead()
    world.ask(DEBUG, options)
    world.advance(1_000)
    world.ask(DEBUG, options)
    world.worker("w3")
    world.kill_herder()
    world.lead()
    world.advance(1_000)
    world.ask(DEBUG, options)
    assert {levels(world, name).get("org.foo", "WARN") for name in world.workers} == {"WARN"}
    assert {levels(world, name)[later.logger] for name in world.workers} == {"WARN"}


def test_setting_levels_restarts_no_unit(world: World) -> None:
    world.ask(CreateConnector("a", sink(2), TargetState.STARTED))
    starts = len(world.starts)
    world.ask(DEBUG)
    world.advance(500)
    assert len(world.starts) == starts
