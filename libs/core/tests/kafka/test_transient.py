"""Which of Kafka's errors readers go on after, and what a transactional call is repeated for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from herdmesh.kafka.transient import STALE_TOPIC, TRANSIENT, is_transient, may_be_repeated


@pytest.mark.parametrize("code", [74, 75, 100, 103])
def test_a_stale_leader_epoch_or_topic_id_passes(code: int) -> None:
    assert is_transient(KafkaError(code))
    assert code in STALE_TOPIC


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_the_client_itself_calls_none_of_them_retriable(code: int) -> None:
    error = KafkaError(code)
    assert is_transient(error)
    assert not may_be_repeated(error), "librdkafka says it now: the list can go"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError._AUTO_OFFSET_RESET,  # pyright: ignore[reportPrivateUsage]
    ],
)
def test_what_somebody_has_to_mend_does_not_pass(code: int) -> None:
    assert not is_transient(KafkaError(code))


def test_a_fatal_error_never_passes() -> None:
    assert not is_transient(KafkaError(KafkaError.FENCED_LEADER_EPOCH, "fatal", True))


def test_what_the_client_marks_retriable_passes_and_may_be_repeated() -> None:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "marked", False, True)
    assert is_transient(error)
    assert may_be_repeated(error)
