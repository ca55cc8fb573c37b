"""Dead letters without a broker: the content of a cut one, and the error for one that the queue refuses."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX
from herdmesh.engine.bad_records.dead_letters import queue
from herdmesh.engine.bad_records.dead_letters.dead_letter import CUT_HEADER, DATA_BYTES_MAX, DeadLetter

CONTEXT = [
    (f"{ERROR_HEADER_PREFIX}topic", b"t"),
    (f"{ERROR_HEADER_PREFIX}offset", b"5"),
    (f"{ERROR_HEADER_PREFIX}exception.message", "\u00e9".encode() * 5_000),
    (f"{ERROR_HEADER_PREFIX}exception.stacktrace", b"at\n" * 5_000),
]
DATA = st.none() | st.binary(max_size=3_000) | st.text(min_size=900, max_size=1_200).map(str.encode)


@given(DATA, DATA, st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=2_000)), max_size=3))
def test_a_cut_dead_letter_is_small_and_names_its_original_size(
    key: bytes | None, value: bytes | None, own: list[tuple[str, bytes | None]]
) -> None:
    letter = DeadLetter(key, value, own, CONTEXT, 1, "topic t", "bad", with_context=False)
    whole, cut, place_only = letter.forms()
    assert whole is letter
    assert whole.headers == own, "context headers are not wanted"
    for form, most, bytes_max in ((cut, DATA_BYTES_MAX, 8_000), (place_only, 0, 700)):
        assert form.size_bytes < bytes_max
        assert {f"{ERROR_HEADER_PREFIX}topic", f"{ERROR_HEADER_PREFIX}offset", CUT_HEADER} <= {
            name for name, _ in form.headers
        }
        told = json.loads(dict(form.headers)[CUT_HEADER] or b"")
        assert told == {"key_bytes": length(key), "value_bytes": length(value), "headers": len(own)}
        for whole_data, data in ((key, form.key), (value, form.value)):
            assert (whole_data is None) == (data is None)
            assert (whole_data or b"").startswith(data or b"")
            assert len(data or b"") in range(min(most, length(whole_data) or 0) - 3, most + 1)


@given(st.text(min_size=400, max_size=1_100))
def test_a_text_is_cut_between_characters(text: str) -> None:
    _, cut, _ = DeadLetter(None, text.encode(), [], CONTEXT, 1, "topic t", "bad").forms()
    assert text.startswith((cut.value or b"").decode())


@pytest.mark.parametrize(("code", "says", "error_class"), [
    (KafkaError.MSG_SIZE_TOO_LARGE, "raise max.message.bytes of topic q", ErrorClass.FATAL),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Allow the connector's producer to WRITE to", ErrorClass.BAD_CONFIG),
    (KafkaError._UNKNOWN_TOPIC, "restart the task, which makes the topic again", ErrorClass.RETRIABLE),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, "restart the task, which makes the topic again", ErrorClass.RETRIABLE),
    (KafkaError.INVALID_TIMESTAMP, "raise message.timestamp.before.max.ms", ErrorClass.RETRIABLE),
    (KafkaError.NOT_ENOUGH_REPLICAS, "Once topic q accepts records again, restart the task", ErrorClass.RETRIABLE),
])  # fmt: skip
def test_the_error_of_a_refused_dead_letter_names_the_fix(code: int, says: str, error_class: ErrorClass) -> None:
    letter = DeadLetter(b"k", b"v", [], CONTEXT, 1, "topic t, partition 0, offset 5", "bad")
    failed = queue.refusal("q", letter, KafkaError(code))
    assert failed.message.startswith("the dead letter of topic t, partition 0, offset 5 cannot be written to topic q: ")
    assert says in failed.message
    assert failed.message.endswith("The record had failed with: bad")
    assert failed.error_class is error_class


def length(data: bytes | None) -> int | None:
    return None if data is None else len(data)
