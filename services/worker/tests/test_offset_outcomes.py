"""Reported outcome of a change of offsets that failed midway: nothing was changed, or the outcome is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.error_class import ErrorClass
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFailed, TaskFenced
from herdmesh.kafka.groups import QUESTION_S
from herdmesh.worker.effects.offsets import offset_write_outcome, sink_offsets
from herdmesh.worker.effects.offsets.offset_write_outcome import OutcomeUnknown, writing

WAIT_MS = 15_000


def test_only_a_write_that_may_have_taken_effect_has_an_unknown_outcome() -> None:
    with pytest.raises(OutcomeUnknown), writing():
        raise TaskFailed("no answer", ErrorClass.UNREACHABLE)
    with pytest.raises(TaskFenced), writing():
        raise TaskFenced("another owner")


def test_any_error_after_a_possibly_done_part_gives_an_unknown_outcome() -> None:
    def fails(error: Exception) -> None:
        with writing() as progress:
            progress.already = "group g is deleted"
            raise error

    for error in (TaskFenced("another owner"), TaskFailed("not allowed", ErrorClass.BAD_CONFIG), ValueError("a bug")):
        with pytest.raises(OutcomeUnknown, match="group g is deleted, and then: "):
            fails(error)


class Deletion:
    """The deletion of group `g`, by a reset, whose first answer is `first`. `verified` has the result of each check of
    the config topic.
    """

    def __init__(self, first: int, verified: Callable[[], None] = lambda: None) -> None:
        self.asked = list[str]()
        #: answer of the group's coordinator after a deletion was requested.
        self.then: int = KafkaError.GROUP_ID_NOT_FOUND
        self.heard: Callable[[], None] = lambda: None
        self._first = first
        self._change = sink_offsets._Change(  # pyright: ignore[reportPrivateUsage]
            *cast("list[Any]", [None, SimpleNamespace(group="g"), self, None, {}, SimpleNamespace(reset=True)])
        )
        self._change._require_unchanged = verified  # pyright: ignore[reportPrivateUsage]

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[None]]:
        assert request_timeout == QUESTION_S
        answer = Future[None]()
        code = KafkaError.GROUP_ID_NOT_FOUND if not self.asked else self.then
        answer.set_exception(KafkaException(KafkaError(code)))
        return dict.fromkeys(groups, answer)

    def delete_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[None]]:
        assert 0 < request_timeout <= WAIT_MS / 1000
        self.asked.extend(groups)
        self.heard()
        answer = Future[None]()
        if len(self.asked) == 1:
            answer.set_exception(KafkaException(KafkaError(self._first)))
        else:
            answer.set_result(None)
        return {"g": answer}

    def carry_out(self) -> None:
        with writing() as progress:
            gone = [("t", 0)]
            self._change._forget(gone, time.monotonic() + 15, progress)  # pyright: ignore[reportPrivateUsage]


def test_a_deletion_is_not_retried_after_the_callers_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first answer takes 16 s and leaves the outcome unknown."""
    deletion = Deletion(KafkaError.REQUEST_TIMED_OUT)
    late = SimpleNamespace(monotonic=lambda: time.monotonic() + 16)
    deletion.heard = lambda: monkeypatch.setattr(offset_write_outcome, "time", late)
    with pytest.raises(OutcomeUnknown, match="whether group g is deleted is not known"):
        deletion.carry_out()
    assert deletion.asked == ["g"]


def test_a_deletion_is_not_retried_over_a_change_that_was_begun_meanwhile() -> None:
    """Kafka answers this worker late, and its herder, which lost it, has sent the request to another."""

    def begun() -> None:
        raise TaskFenced("another change of its offsets begun")

    deletion = Deletion(KafkaError.NOT_COORDINATOR, begun)
    with pytest.raises(OutcomeUnknown, match="perhaps group g is deleted, and then: another change"):
        deletion.carry_out()
    assert deletion.asked == ["g"]


def test_a_deletion_whose_coordinator_is_not_found_again_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deletion = Deletion(KafkaError.NOT_COORDINATOR)
    deletion.then = KafkaError._TRANSPORT  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(clients, "RETRY_TIMEOUT_S", 1)
    with pytest.raises(OutcomeUnknown, match="perhaps group g is deleted"):
        deletion.carry_out()
    assert deletion.asked == ["g"]


def test_a_deletion_is_retried_while_the_connector_is_unchanged_and_a_refusal_is_final() -> None:
    deletion = Deletion(KafkaError.NOT_COORDINATOR)
    deletion.carry_out()
    assert deletion.asked == ["g", "g"]
    refused = Deletion(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        refused.carry_out()
    assert refused.asked == ["g"]
