"""Columns made from Kafka's messages, and from a source's records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.chain.batch_assembly import checked_times
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import InvalidRecordError, class_name_of
from herdmesh.engine.librdkafka.record_columns import of_messages
from herdmesh.engine.runtime.failure import error_class


def test_a_timestamp_of_minus_one_is_none() -> None:
    """As a producer of another language may write it."""
    stamps = [(TIMESTAMP_NOT_AVAILABLE, 0), (TIMESTAMP_CREATE_TIME, -1), (TIMESTAMP_CREATE_TIME, 0),
              (TIMESTAMP_LOG_APPEND_TIME, 7)]  # fmt: skip
    messages = [Message(topic="t", partition=0, offset=at, timestamp=stamp) for at, stamp in enumerate(stamps)]
    assert [*of_messages(("t", 0), messages).times_ms] == [None, None, 0, 7]


def test_a_timestamp_before_1970_is_put_to_a_sink() -> None:
    """docs/reference/differences.md: Java ends the task."""
    message = Message(topic="t", partition=0, offset=0, timestamp=(TIMESTAMP_CREATE_TIME, -2))
    assert [*of_messages(("t", 0), [message]).times_ms] == [-2]


@given(st.lists(st.one_of(st.none(), st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))))
def test_timestamps_of_a_source_are_checked_as_by_connect(times_ms: list[int | None]) -> None:
    given_ms: Sequence[int | None] = tuple(times_ms)
    wrong = [one for one in times_ms if one is not None and one < -1]
    if not wrong:
        assert [*checked_times(given_ms)] == [None if one == -1 else one for one in times_ms]
        return
    with pytest.raises(InvalidRecordError) as refused:
        checked_times(given_ms)
    assert str(refused.value) == f"Invalid record timestamp {min(wrong)}"
    assert class_name_of(refused.value) == "org.apache.kafka.common.InvalidRecordException"
    assert error_class(refused.value) is ErrorClass.FATAL
