"""Tests of subfolders of values and times, checked against plain Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import Float32, JavaDate, Struct
from herdmesh.connect.model.schemas import (
    INT32,
    OPTIONAL_INT32,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.files.fields import FieldReaders
from herdmesh.connectors.files.partitioners import (
    NO_VALUE,
    FieldPartitioner,
    FieldTimes,
    KafkaTimes,
    TimePartitioner,
    escaped,
    topic_folder,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(values: Sequence[Any], times: Sequence[int | None] = ()) -> SinkBatch:
    offsets = list(range(len(values)))
    return SinkBatch("t", 3, 0, len(values) - 1, values, offsets, offsets, times or [0] * len(values))


@given(st.text())
@example("a/b=c%2F:*?\"'\\{[]^#\x00\x7f é😀")
def test_a_text_round_trips_through_its_folder_name(text: str) -> None:
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
def test_folder_names_of_values(value: Any, folder: str) -> None:
    rows = [{"a b=": value}]
    assert FieldPartitioner(["a b="]).folders(batch(rows)) == [f"a b%3D={folder}"]


def test_equal_values_of_different_types_have_their_own_folders() -> None:
    rows = [{"a": value} for value in (1, True, 1.0, "1", 1)]
    assert FieldPartitioner(["a"]).folders(batch(rows)) == ["a=1", "a=true", "a=1.0", "a=1", "a=1"]


def test_equal_numbers_with_different_texts_have_their_own_folders() -> None:
    rows = [{"a": value} for value in (0.0, -0.0, Decimal("1.0"), Decimal("1.00"), float("nan"))]
    assert FieldPartitioner(["a"]).folders(batch(rows)) == ["a=0.0", "a=-0.0", "a=1.0", "a=1.00", "a=NaN"]


@pytest.mark.parametrize("value", [{"x": 1}, [1], "é" * 200])
def test_values_without_a_folder_name_are_errors_beside_others(value: Any) -> None:
    rows = [{"a": "x"}, {"a": value}, None]
    first, wrong, last = FieldPartitioner(["a"]).folders(batch(rows))
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
    (reader,) = FieldReaders((name,)).under(None)
    assert (reader.read(row), reader.schema) == (value, None)


zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
since_1972 = st.integers(63_072_000_000, 4_102_444_800_000)


@given(
    times=st.lists(since_1972, min_size=1, max_size=8),
    zone=zones,
    minutes=st.sampled_from([1, 5, 15, 60, 24 * 60]),
)
def test_a_time_is_in_the_folder_of_its_wall_clock(times: list[int], zone: str, minutes: int) -> None:
    partitioner = TimePartitioner("'d'=YYYY-MM-dd/'t'=HH-mm", minutes * 60_000, zone, KafkaTimes())
    for _ in range(2):  # first computed, then cached
        found = partitioner.folders(batch(times, times))
        assert list(found) == [_wall_clock(one, zone, minutes) for one in times]


def _wall_clock(time_ms: int, zone: str, minutes: int) -> str:
    wall = datetime.fromtimestamp(time_ms // 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    step = timedelta(minutes=minutes)
    begin = EPOCH + (wall - EPOCH) // step * step
    return begin.strftime("d=%Y-%m-%d/t=%H-%M")


def test_the_last_days_of_a_year_belong_to_that_year() -> None:
    """Java's SimpleDateFormat would print 2026 for YYYY: the year of the week."""
    last_day_ms = int(datetime(2025, 12, 31, tzinfo=UTC).timestamp() * 1000)
    partitioner = TimePartitioner("YYYY/MM", 3_600_000, "UTC", KafkaTimes())
    assert partitioner.folders(batch([0], [last_day_ms])) == ["2025/12"]


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        (1_700_000_000_000, 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("20231114T221320Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123),
        ("1701010000000", 1_701_010_000_000),  # not the first day of 1701
    ],
)
def test_times_of_fields(value: Any, time_ms: int) -> None:
    assert FieldTimes("at").of(batch([{"at": value}])) == [time_ms]


@pytest.mark.parametrize(
    "value", [None, "yesterday", "17010101000", "1701010000", "2023-11-14x10:00", True, 1.5, {}, []]
)
def test_a_field_without_a_time_is_an_error(value: Any) -> None:
    (found,) = FieldTimes("at").of(batch([{"at": value}]))
    assert isinstance(found, DataError)
    assert re.search("field at ", str(found))


def test_records_without_a_time_or_beyond_the_calendar_are_errors_beside_others() -> None:
    partitioner = TimePartitioner("yyyy", 3_600_000, "Europe/Berlin", KafkaTimes())
    times = [0, None, -(10**17)]
    good, none, beyond = partitioner.folders(batch(times, times))
    assert good == "1970"
    assert isinstance(none, DataError)
    assert isinstance(beyond, DataError)


DAY_MS = 86_400_000
INNER = Schema("STRUCT", optional=True, fields=[("b", OPTIONAL_INT32.replace(default=5))])
ROW = Schema("STRUCT", fields=[
    ("day", date_schema()), ("at", timestamp_schema()), ("of_day", time_schema()), ("price", decimal_schema(2)),
    ("rate", Schema("FLOAT32")), ("name", STRING.replace(optional=True, default="UNKNOWN")), ("a", INNER),
    ("tags", Schema("MAP", key_schema=STRING, value_schema=INT32)),
])  # fmt: skip
VALUE = Struct(ROW, [
    JavaDate(19_675 * DAY_MS), JavaDate(1_700_000_000_123), JavaDate(3_600_000), Decimal("123456789012345678.90"),
    0.10000000149011612, None, Struct(INNER, [None]), {"x": 1},
])  # fmt: skip


def under(schema: Schema, *values: Any) -> SinkBatch:
    found = batch(values)
    found.value_schema = schema
    return found


@pytest.mark.parametrize(
    ("field", "folder"),
    [
        ("day", "2023-11-14"),
        ("at", "2023-11-14 22%3A13%3A20.123"),
        ("of_day", "01%3A00%3A00"),
        ("price", "123456789012345678.90"),
        ("rate", "0.1"),
        ("name", "UNKNOWN"),
        ("a.b", "5"),
        ("tags.x", "1"),
        ("tags.y", NO_VALUE),
        ("nobody", NO_VALUE),
        ("name.x", NO_VALUE),
    ],
)
def test_the_schema_of_a_field_decides_its_folder(field: str, folder: str) -> None:
    assert FieldPartitioner([field]).folders(under(ROW, VALUE)) == [f"{field}={folder}"]


@pytest.mark.parametrize("field", ["name", "a.b"])
def test_a_null_is_kept_without_defaults(field: str) -> None:
    assert FieldPartitioner([field], defaults=False).folders(under(ROW, VALUE)) == [f"{field}={NO_VALUE}"]


@pytest.mark.parametrize(("field", "day"), [("day", "2023-11-14"), ("at", "2023-11-14")])
def test_a_date_is_in_the_folder_of_its_day(field: str, day: str) -> None:
    partitioner = TimePartitioner("yyyy-MM-dd", DAY_MS, "UTC", FieldTimes(field))
    assert partitioner.folders(under(ROW, VALUE)) == [day]


@pytest.mark.parametrize("value", [1_700_000_000_000, 1.7e12])
def test_milliseconds_without_a_schema_may_be_a_double(value: float) -> None:
    assert FieldTimes("at").of(batch([{"at": value}])) == [1_700_000_000_000]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.5, True, Float32(1.7e12)])
def test_numbers_that_are_not_milliseconds_are_errors(value: Any) -> None:
    (found,) = FieldTimes("at").of(batch([{"at": value}]))
    assert "the field at is not a timestamp" in str(found)


@pytest.mark.parametrize("value", ["text", {"day": 1}, Struct(INNER, [1])])
def test_a_value_that_does_not_fit_its_schema_is_left_to_the_format(value: Any) -> None:
    assert FieldPartitioner(["at"]).folders(under(ROW, VALUE, value))[1] == f"at={NO_VALUE}"
    assert isinstance(FieldTimes("at").of(under(ROW, VALUE, value))[1], DataError)


def test_a_float32_has_too_few_digits_for_a_time() -> None:
    schema = Schema("STRUCT", fields=[("at", Schema("FLOAT32"))])
    (found,) = FieldTimes("at").of(under(schema, [1_699_999_973_376.0]))
    assert "the field at is not a timestamp" in str(found)


@pytest.mark.parametrize(
    ("kind", "type_", "value"),
    [
        ("Date", "INT32", 19_675),
        ("Timestamp", "INT64", 1_700_000_000_123),
        ("MicroTimestamp", "INT64", 1_700_000_000_123_456),
        ("NanoTimestamp", "INT64", 1_700_000_000_123_456_789),
        ("ZonedTimestamp", "STRING", "2023-11-14T22:13:20.123456Z"),
    ],
)
def test_a_debezium_date_is_in_the_folder_of_its_day(kind: str, type_: str, value: Any) -> None:
    """Its numbers are days, milliseconds, microseconds or nanoseconds, depending on the schema's name."""
    schema = Schema("STRUCT", fields=[("at", Schema(type_, True, f"io.debezium.time.{kind}"))])
    partitioner = TimePartitioner("yyyy-MM-dd", DAY_MS, "UTC", FieldTimes("at"))
    day, none = partitioner.folders(under(schema, Struct(schema, [value]), Struct(schema, [None])))
    assert day == "2023-11-14"
    assert "the field at is not a timestamp" in str(none)


@pytest.mark.parametrize("kind", ["Time", "MicroTime", "NanoTime"])
def test_a_debezium_time_of_day_is_not_a_time(kind: str) -> None:
    schema = Schema("STRUCT", fields=[("at", Schema("INT64", False, f"io.debezium.time.{kind}"))])
    (found,) = FieldTimes("at").of(under(schema, Struct(schema, [5])))
    assert f"is a {kind}, which has no date" in str(found)


def test_a_time_of_day_is_not_a_time() -> None:
    (found,) = FieldTimes("of_day").of(under(ROW, VALUE))
    assert "name a Date or Timestamp field" in str(found)


@pytest.mark.parametrize(
    ("zone", "folder"),
    [("+02:00", "15T00"), ("-0930", "14T12"), ("GMT+2", "15T00"), ("Z", "14T22"), ("Europe/Berlin", "14T23")],
)
def test_zones_are_names_or_offsets(zone: str, folder: str) -> None:
    partitioner = TimePartitioner("dd'T'HH/", 3_600_000, zone, KafkaTimes())
    assert partitioner.folders(batch([0], [1_700_000_000_000])) == [folder]


@pytest.mark.parametrize("zone", ["UTC", "+02:00", "America/New_York"])
def test_years_beyond_9999_have_folders(zone: str) -> None:
    partitioner = TimePartitioner("yyyy", 3_600_000, zone, KafkaTimes())
    assert partitioner.folders(batch([0], [327_403_468_800_001])) == ["12345"]


@given(st.text())
@example("..")
@example(".")
@example("../../etc")
@example(".staged")
@example("")
@example("\0")
def test_no_topic_escapes_its_folder(topic: str) -> None:
    folder = topic_folder(topic)
    assert isinstance(folder, DataError) or (
        "/" not in folder and "\0" not in folder and bool(folder) and not folder.startswith(".")
    )


@given(st.text(), st.text(min_size=1))
@example("..", ".")
def test_no_value_escapes_its_folder(value: str, field: str) -> None:
    (folder,) = FieldPartitioner([field]).folders(batch([{field: value}]))
    assert isinstance(folder, DataError) or ("/" not in folder and "\0" not in folder and not folder.startswith("."))
