"""Classification of Kafka's errors: those that readers retry after, and those for which a transactional call is
repeated.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from herdmesh.kafka.transient import STALE_TOPIC, TRANSIENT, is_transient, may_be_repeated


@pytest.mark.parametrize("code", [74, 75, 100, 103])
def test_stale_leader_epoch_and_topic_id_are_transient(code: int) -> None:
    assert is_transient(KafkaError(code))
    assert code in STALE_TOPIC


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_librdkafka_marks_none_of_them_retriable(code: int) -> None:
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
def test_errors_that_an_operator_must_fix_are_not_transient(code: int) -> None:
    assert not is_transient(KafkaError(code))


def test_a_fatal_error_is_never_transient() -> None:
    assert not is_transient(KafkaError(KafkaError.FENCED_LEADER_EPOCH, "fatal", True))


def test_an_error_marked_retriable_is_transient_and_may_be_repeated() -> None:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "marked", False, True)
    assert is_transient(error)
    assert may_be_repeated(error)
