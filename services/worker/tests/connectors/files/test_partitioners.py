"""Subfolders: what a value and a time become, checked against plain Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.connector import SinkBatch
from herdmesh.connect.errors import DataError
from herdmesh.worker.connectors.files.partitioners import (
    NO_VALUE,
    FieldPartitioner,
    FieldTimes,
    KafkaTimes,
    TimePartitioner,
    escaped,
    field_reader,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(values: Sequence[Any], times: Sequence[int | None] = ()) -> SinkBatch:
    offsets = list(range(len(values)))
    return SinkBatch("t", 3, 0, len(values) - 1, values, offsets, offsets, times or [0] * len(values))


@given(st.text())
@example("a/b=c%2F:*?\"'\\{[]^#\x00\x7f é😀")
def test_a_text_can_be_read_back_from_its_folder(text: str) -> None:
    folder = escaped(text)
    assert "/" not in folder
    assert unquote(folder) == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("DE", "DE"), ("a/b c", "a%2Fb c"), (5, "5"), (-1, "-1"), (1.5, "1.5"), (True, "true"), (False, "false"),
        (None, NO_VALUE), ("", NO_VALUE),
    ],
)  # fmt: skip
def test_a_value_names_a_folder(value: Any, folder: str) -> None:
    rows = [{"a b=": value}]
    assert FieldPartitioner(["a b="]).folders(batch(rows), rows) == [f"a b%3D={folder}"]


def test_equal_values_of_other_types_have_their_own_folders() -> None:
    rows = [{"a": value} for value in (1, True, 1.0, "1", 1)]
    assert FieldPartitioner(["a"]).folders(batch(rows), rows) == ["a=1", "a=true", "a=1.0", "a=1", "a=1"]


@pytest.mark.parametrize("value", [{"x": 1}, [1], "é" * 200])
def test_what_cannot_name_a_folder_is_told_beside_what_can(value: Any) -> None:
    rows = [{"a": "x"}, {"a": value}, None]
    first, wrong, last = FieldPartitioner(["a"]).folders(batch(rows), rows)
    assert (first, last) == ("a=x", f"a={NO_VALUE}")
    assert isinstance(wrong, DataError)


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a.b": 2, "a": {"b": 1}}, "a.b", 2),
        ({"a": 1}, "a.b", None),
        ("text", "a", None),
        (None, "a", None),
    ],
)
def test_a_field_is_found_by_its_name_or_its_path(row: Any, name: str, value: Any) -> None:
    assert field_reader(name)(row) == value


zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
since_1972 = st.integers(63_072_000_000, 4_102_444_800_000)


@given(
    times=st.lists(since_1972, min_size=1, max_size=8),
    zone=zones,
    minutes=st.sampled_from([1, 5, 15, 60, 24 * 60]),
)
def test_a_time_is_in_the_folder_of_its_wall_clock(times: list[int], zone: str, minutes: int) -> None:
    partitioner = TimePartitioner("'d'=YYYY-MM-dd/'t'=HH-mm", minutes * 60_000, zone, KafkaTimes())
    for _ in range(2):  # made, and remembered
        found = partitioner.folders(batch(times, times), times)
        assert list(found) == [_wall_clock(one, zone, minutes) for one in times]


def _wall_clock(time_ms: int, zone: str, minutes: int) -> str:
    wall = datetime.fromtimestamp(time_ms // 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    step = timedelta(minutes=minutes)
    begin = EPOCH + (wall - EPOCH) // step * step
    return begin.strftime("d=%Y-%m-%d/t=%H-%M")


def test_the_last_days_of_a_year_are_of_that_year() -> None:
    """Java's SimpleDateFormat would print 2026 for YYYY: the year of the week."""
    last_day_ms = int(datetime(2025, 12, 31, tzinfo=UTC).timestamp() * 1000)
    partitioner = TimePartitioner("YYYY/MM", 3_600_000, "UTC", KafkaTimes())
    assert partitioner.folders(batch([0], [last_day_ms]), [0]) == ["2025/12"]


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        (1_700_000_000_000, 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_a_field_has_a_time(value: Any, time_ms: int) -> None:
    assert FieldTimes("at").of(batch([0]), [{"at": value}]) == [time_ms]


@pytest.mark.parametrize("value", [None, "yesterday", True, 1.5, {}, []])
def test_a_field_without_a_time_is_told(value: Any) -> None:
    (found,) = FieldTimes("at").of(batch([0]), [{"at": value}])
    assert isinstance(found, DataError)
    assert re.search("field at ", str(found))


def test_records_without_a_time_or_beyond_the_calendar_are_told_beside_others() -> None:
    partitioner = TimePartitioner("yyyy", 3_600_000, "Europe/Berlin", KafkaTimes())
    times = [0, None, 10**17]
    good, none, beyond = partitioner.folders(batch(times, times), times)
    assert good == "1970"
    assert isinstance(none, DataError)
    assert isinstance(beyond, DataError)
