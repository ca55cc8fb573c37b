"""Dead letter requests: the worker that gets the command, and the answer when it fails, or is lost."""

from __future__ import annotations

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DeadLettersAnswer,
    ListDeadLetters,
    ReplayDeadLetters,
    WriteOptions,
)
from herdmesh.rpc.errors import ConnectorNotFound, DeadLettersRefused, NoWorker, RequestInvalid, Timeout
from herdmesh.session.model import Failure
from herdmesh.session.worker_commands import ListDeadLettersOnWorker, ReplayOnWorker
from services.herder.tests.world import World, sink
from services.herder.tests.world_commands import AWAY
from services.herder.tests.world_worker import SINK, SOURCE

QUESTIONS = ListDeadLettersOnWorker | ReplayOnWorker


@pytest.fixture
def world() -> World:
    """A leader, a worker that can load the sink, and one that cannot; a connector."""
    world = World()
    world.lead()
    world.worker("w1", (SINK, SOURCE))
    world.worker("w2", (SOURCE,))
    world.ask(CreateConnector("a", {**sink(1), "queue": "dlq"}))
    world.advance(1_000)
    return world


def asked(world: World, name: str) -> list[QUESTIONS]:
    return [one for one in world.workers[name].answers.asked if isinstance(one, QUESTIONS)]


@pytest.mark.parametrize("request_of", [ListDeadLetters, ReplayDeadLetters])
def test_a_worker_with_the_connectors_class_gets_the_command_and_the_config(
    world: World, request_of: type[ListDeadLetters | ReplayDeadLetters]
) -> None:
    told = world.ask(request_of("a", "the request"))
    assert told == DeadLettersAnswer("told of the request")
    assert asked(world, "w2") == []
    (body,) = asked(world, "w1")
    assert (body.wire, body.config["queue"], body.config["name"]) == ("the request", "dlq", "a")


def test_dead_letters_of_an_unknown_connector_are_refused(world: World) -> None:
    with pytest.raises(ConnectorNotFound):
        world.ask(ListDeadLetters("nobody", None))
    with pytest.raises(RequestInvalid, match="name the connector"):
        world.ask(ReplayDeadLetters("", None))


def test_a_workers_permanent_failure_is_refused_and_a_transient_one_is_retriable(world: World) -> None:
    answers = world.workers["w1"].answers
    answers.letters_failure = Failure("it has no dead letter queue", error_class=ErrorClass.BAD_CONFIG)
    with pytest.raises(DeadLettersRefused, match=r"dead letters of 'a': it has no dead letter queue"):
        world.ask(ListDeadLetters("a", None))
    for passing in (AWAY, Failure("another owner", error_class=ErrorClass.FENCED)):
        answers.letters_failure = passing
        with pytest.raises(NoWorker, match="try again"):
            world.ask(ReplayDeadLetters("a", None))


def test_the_command_goes_to_another_worker_when_its_own_is_lost(world: World) -> None:
    world.workers["w1"].deaf_to = ReplayOnWorker
    call = world.call(ReplayDeadLetters("a", "the request"), WriteOptions("r1"), timeout_ms=60_000)
    world.run()
    world.worker("w3", (SINK,))
    world.kill("w1")
    world.advance(5_000)
    assert world.answers[call] == DeadLettersAnswer("told of the request")
    assert len(asked(world, "w3")) == 1


def test_a_replay_without_a_request_id_is_not_sent_twice(world: World) -> None:
    world.workers["w1"].deaf_to = ReplayOnWorker
    call = world.call(ReplayDeadLetters("a", "the request"), timeout_ms=60_000)
    world.run()
    world.worker("w3", (SINK,))
    world.kill("w1")
    world.advance(5_000)
    error = world.answers[call]
    assert isinstance(error, NoWorker)
    assert "dead letters may be replayed" in error.message
    assert asked(world, "w3") == []


def test_a_silent_worker_ends_the_call_at_the_deadline(world: World) -> None:
    world.workers["w1"].deaf_to = ListDeadLettersOnWorker
    call = world.call(ListDeadLetters("a", None), timeout_ms=2_000)
    world.advance(3_000)
    error = world.answers[call]
    assert isinstance(error, Timeout)
    assert "dead letters" in error.stage
