"""Values of `auto.offset.reset`: Java's, librdkafka's words, and every other text refused with the allowed ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.clients.offset_reset import OffsetReset, Start, read_offset_reset
from herdmesh.connect.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start.EARLIEST), ("Beginning", Start.EARLIEST), ("smallest", Start.EARLIEST),
        ("latest", Start.LATEST), ("END", Start.LATEST), ("largest", Start.LATEST), ("none", Start.NONE),
    ],
)  # fmt: skip
def test_reset_words_are_parsed(text: str, start: Start) -> None:
    found = read_offset_reset(text)
    assert (found.start, found.back_ms) == (start, 0)
    assert found.begins_ms(5) is None
    assert found.depends_on_time == (start is Start.LATEST)


@pytest.mark.parametrize(
    ("duration", "back_ms"),
    [
        ("PT1H", 3_600_000), ("P2DT3H4M5.678S", 183_845_678), ("pt1m", 60_000), ("PT0S", 0), ("P1D", 86_400_000),
        ("PT0.0001S", 1), ("PT-1H+2H", None), ("PT1H-30M", 1_800_000), ("-PT-1H", 3_600_000), ("PT5,5S", 5_500),
        ("PT1.S", 1_000), ("P99999999D", 8_639_999_913_600_000),
    ],
)  # fmt: skip
def test_a_duration_is_parsed_as_in_java(duration: str, back_ms: int | None) -> None:
    """`java.time.Duration.parse`; a fraction of a millisecond begins a millisecond earlier, not later."""
    if back_ms is None:
        with pytest.raises(ConfigError):
            read_offset_reset(f"by_duration:{duration}")
        return
    found = read_offset_reset(f"by_duration:{duration}")
    assert (found.start, found.back_ms, found.depends_on_time) == (Start.BY_DURATION, back_ms, True)
    assert found.begins_ms(back_ms + 7) == 7
    assert found.begins_ms(0) == 0, "negative times are Kafka's names of other things"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bogus", "must be earliest, latest, none"), ("", "must be earliest"), ("earliest:PT1H", "must be earliest"),
        ("by_duration", "needs an ISO 8601 duration"), ("by_duration:", "needs an ISO 8601 duration"),
        ("by_duration:1h", "needs an ISO 8601 duration"), ("by_duration:P", "needs an ISO 8601 duration"),
        ("by_duration:PT", "needs an ISO 8601 duration"), ("by_duration:P1Y", "needs an ISO 8601 duration"),
        ("by_duration:P1W", "needs an ISO 8601 duration"), ("by_duration:PT1H ago", "needs an ISO 8601 duration"),
        ("by_duration:-PT1H", "in the future"), ("by_duration:PT-1S", "in the future"),
        ("by_duration:PT99999999999999999999S", "needs an ISO 8601 duration"),
        ("by_duration:PT\u0661H", "needs an ISO 8601 duration"),
    ],
)  # fmt: skip
def test_other_texts_are_refused_with_the_allowed_values(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read_offset_reset(text, "consumer.auto.offset.reset")
    assert refused.value.field == "consumer.auto.offset.reset"
    assert "write" in refused.value.fix


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = read_offset_reset(text)
    except ConfigError:
        return
    assert isinstance(found, OffsetReset)
    assert found.words()
