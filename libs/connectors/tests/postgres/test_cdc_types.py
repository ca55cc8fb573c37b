"""Tests of converting PostgreSQL's texts to event values: by
the manual's rules, and with Debezium's name for every type.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import DATE, DECIMAL, TIME, TIMESTAMP
from herdmesh.connectors.postgres.cdc import text_forms
from herdmesh.connectors.postgres.cdc.settings import Modes
from herdmesh.connectors.postgres.cdc.types import reading_of
from herdmesh.connectors.postgres.types import PgType
from libs.connectors.tests.postgres.replicated import plain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMERIC_10_2 = (10 << 16 | 2) + 4
ENUM = PgType(99, "mood", is_enum=True)
INTS = PgType(1007, "int4[]", element=PgType(23, "int4"))
TEXTS = PgType(1009, "text[]", element=PgType(25, "text"))


def read(type: PgType, *texts: str | None, **modes: str) -> list[Any]:
    """Return the values, each checked against the schema."""
    reading = reading_of(type, Modes(**modes), {99: ("sad", "happy")}, optional=True)
    values = reading.values([None if text is None else text.encode() for text in texts])
    for value in values:
        check_value(reading.schema, value)
    return values


@pytest.mark.parametrize(
    ("type", "modes", "text", "value", "schema"),
    [
        (PgType(16, "bool"), {}, "t", True, ("BOOLEAN", None)),
        (PgType(21, "int2"), {}, "-5", -5, ("INT16", None)),
        (PgType(23, "int4"), {}, "123456", 123456, ("INT32", None)),
        (PgType(20, "int8"), {}, "9007199254740993", 9007199254740993, ("INT64", None)),
        (PgType(26, "oid"), {}, "4294967295", 4294967295, ("INT64", None)),
        (PgType(700, "float4"), {}, "1.5", 1.5, ("FLOAT32", None)),
        (PgType(701, "float8"), {}, "-Infinity", float("-inf"), ("FLOAT64", None)),
        (PgType(25, "text"), {}, "a\tü", "a\tü", ("STRING", None)),
        (PgType(1042, "bpchar", 8), {}, "ab  ", "ab  ", ("STRING", None)),
        (PgType(869, "inet"), {}, "10.0.0.1/8", "10.0.0.1/8", ("STRING", None)),
        (PgType(3904, "int4range"), {}, "[1,5)", "[1,5)", ("STRING", None)),
        (PgType(17, "bytea"), {}, "\\x00ff10", b"\0\xff\x10", ("BYTES", None)),
        (PgType(17, "bytea"), {"binary": "base64"}, "\\x00ff10", "AP8Q", ("STRING", None)),
        (PgType(17, "bytea"), {"binary": "base64-url-safe"}, "\\xfbff", "-_8=", ("STRING", None)),
        (PgType(17, "bytea"), {"binary": "hex"}, "\\x00ff10", "00ff10", ("STRING", None)),
        (PgType(1700, "numeric", NUMERIC_10_2), {}, "1.50", Decimal("1.50"), ("BYTES", DECIMAL)),
        (PgType(1700, "numeric", NUMERIC_10_2), {"decimals": "double"}, "1.50", 1.5, ("FLOAT64", None)),
        (PgType(1700, "numeric"), {"decimals": "string"}, "NaN", "NaN", ("STRING", None)),
        (PgType(1700, "numeric"), {}, "-12.5", {"scale": 1, "value": b"\x83"},
         ("STRUCT", "io.debezium.data.VariableScaleDecimal")),
        (PgType(790, "money"), {}, "-$1,234.50", Decimal("-1234.50"), ("BYTES", DECIMAL)),
        (PgType(790, "money"), {"decimals": "double"}, "$0.50", 0.5, ("FLOAT64", None)),
        (PgType(1082, "date"), {}, "2026-11-22", 20_779, ("INT32", "io.debezium.time.Date")),
        (PgType(1082, "date"), {"times": "connect"}, "1970-01-02", JavaDate(86_400_000), ("INT32", DATE)),
        (PgType(1083, "time", 3), {}, "01:02:03.004", 3_723_004, ("INT32", "io.debezium.time.Time")),
        (PgType(1083, "time", 3), {"times": "adaptive_time_microseconds"}, "01:02:03.004", 3_723_004_000,
         ("INT64", "io.debezium.time.MicroTime")),
        (PgType(1083, "time"), {}, "24:00:00", 86_400_000_000, ("INT64", "io.debezium.time.MicroTime")),
        (PgType(1083, "time"), {"times": "connect"}, "01:02:03.0049", JavaDate(3_723_004), ("INT32", TIME)),
        (PgType(1266, "timetz"), {}, "12:34:56.5+02", "10:34:56.5Z", ("STRING", "io.debezium.time.ZonedTime")),
        (PgType(1114, "timestamp", 3), {}, "1970-01-01 00:00:01.5", 1_500, ("INT64", "io.debezium.time.Timestamp")),
        (PgType(1114, "timestamp"), {}, "1970-01-01 00:00:01.5", 1_500_000,
         ("INT64", "io.debezium.time.MicroTimestamp")),
        (PgType(1114, "timestamp"), {}, "infinity", 9_223_372_036_825_200_000,
         ("INT64", "io.debezium.time.MicroTimestamp")),
        (PgType(1114, "timestamp"), {"times": "connect"}, "1970-01-01 00:00:01.5", JavaDate(1_500),
         ("INT64", TIMESTAMP)),
        (PgType(1114, "timestamp"), {"times": "connect"}, "infinity", JavaDate(9_223_372_036_825_200_000),
         ("INT64", TIMESTAMP)),
        (PgType(1114, "timestamp"), {"times": "connect"}, "-infinity", JavaDate(-9_223_372_036_832_400_000),
         ("INT64", TIMESTAMP)),
        (PgType(1114, "timestamp"), {"times": "connect"}, "0044-03-15 12:00:00.001 BC",
         JavaDate(-735_160 * 86_400_000 + 43_200_001), ("INT64", TIMESTAMP)),
        (PgType(1114, "timestamp"), {"times": "connect"}, "294276-12-31 23:59:59.999",
         JavaDate(9_224_318_015_999_999), ("INT64", TIMESTAMP)),
        (PgType(1082, "date"), {"times": "connect"}, "infinity", JavaDate(((1 << 31) - 1) * 86_400_000),
         ("INT32", DATE)),
        (PgType(1082, "date"), {"times": "connect"}, "4714-11-24 BC", JavaDate(-2_440_588 * 86_400_000),
         ("INT32", DATE)),
        (PgType(1184, "timestamptz"), {}, "2026-11-22 11:00:00.123456+00", "2026-11-22T11:00:00.123456Z",
         ("STRING", "io.debezium.time.ZonedTimestamp")),
        (PgType(1186, "interval"), {}, "P1Y2M3DT4H5M6.789S",
         14 * 2_629_800_000_000 + 3 * 86_400_000_000 + 14_706_789_000, ("INT64", "io.debezium.time.MicroDuration")),
        (PgType(1186, "interval"), {"intervals": "string"}, "PT-4H-5M-6.70S", "P0Y0M0DT-4H-5M-6.7S",
         ("STRING", "io.debezium.time.Interval")),
        (PgType(2950, "uuid"), {}, "6f1c2a34-1111-2222-3333-444455556666", "6f1c2a34-1111-2222-3333-444455556666",
         ("STRING", "io.debezium.data.Uuid")),
        (PgType(3802, "jsonb"), {}, '{"b": 2}', '{"b": 2}', ("STRING", "io.debezium.data.Json")),
        (PgType(142, "xml"), {}, "<a>1</a>", "<a>1</a>", ("STRING", "io.debezium.data.Xml")),
        (ENUM, {}, "happy", "happy", ("STRING", "io.debezium.data.Enum")),
        (PgType(1560, "bit", 1), {}, "1", True, ("BOOLEAN", None)),
        (PgType(1560, "bit", 10), {}, "1000000001", b"\x01\x02", ("BYTES", "io.debezium.data.Bits")),
        (PgType(600, "point"), {}, "(1.5,-2)",
         {"x": 1.5, "y": -2.0, "srid": None,
          "wkb": bytes.fromhex("0101000000000000000000f83f00000000000000c0")},
         ("STRUCT", "io.debezium.data.geometry.Point")),
        (PgType(7, "hstore"), {}, '"a"=>"1", "b\\""=>NULL', '{"a":"1","b\\"":null}',
         ("STRING", "io.debezium.data.Json")),
        (INTS, {}, "{1,NULL,-3}", [1, None, -3], ("ARRAY", None)),
        (INTS, {}, "[0:1]={1,2}", [1, 2], ("ARRAY", None)),
        (TEXTS, {}, '{"a,b","q\\"u",NULL,"",NULLS,"NULL"}', ["a,b", 'q"u', None, "", "NULLS", "NULL"], ("ARRAY", None)),
        (PgType(22, "int2vector", element=PgType(21, "int2")), {}, "1 2", "1 2", ("STRING", None)),
    ],
)  # fmt: skip
def test_every_type_has_debeziums_value_and_name(
    type: PgType, modes: dict[str, str], text: str, value: Any, schema: tuple[str, str | None]
) -> None:
    found = reading_of(type, Modes(**modes), {99: ("sad", "happy")}).schema
    assert (found.type, found.name, found.optional) == (*schema, False)
    read_twice = read(type, text, None, text, **modes)
    assert list(map(plain, read_twice)) == [value, None, value]


def test_schemas_carry_their_parameters() -> None:
    def parameters(type: PgType) -> dict[str, str]:
        return dict(reading_of(type, Modes(), {99: ("sad", "happy")}).schema.parameters or {})

    assert parameters(PgType(1700, "numeric", NUMERIC_10_2)) == {"scale": "2", "connect.decimal.precision": "10"}
    assert parameters(ENUM) == {"allowed": "sad,happy"}
    assert parameters(PgType(1560, "bit", 10)) == {"length": "10"}
    assert parameters(PgType(1562, "varbit")) == {"length": "2147483647"}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_value_that_no_decimal_holds_is_refused_with_the_key(text: str) -> None:
    with pytest.raises(DataError, match=r"set decimal\.handling\.mode=double or string"):
        read(PgType(1700, "numeric", NUMERIC_10_2), "1.00", text)


def test_arrays_of_arrays_are_refused_with_the_key() -> None:
    with pytest.raises(DataError, match=r"several dimensions .* column\.exclude\.list"):
        read(INTS, "{{1,2},{3,4}}")


@given(st.dates())
def test_dates(day: date) -> None:
    assert read(PgType(1082, "date"), day.isoformat()) == [(day - EPOCH.date()).days]


@given(st.integers(-2_000_000, 2_900_000))
def test_dates_beyond_pythons_calendar_repeat_every_400_years(days: int) -> None:
    """The Gregorian calendar repeats after 146,097 days."""
    inside = days % 146_097
    day = EPOCH.date() + timedelta(days=inside)
    year = day.year + (days - inside) // 146_097 * 400
    text = f"{year:04}-{day.month:02}-{day.day:02}" if year > 0 else f"{1 - year:04}-{day.month:02}-{day.day:02} BC"
    assert text_forms.days(text) == days


def _shown(moment: datetime | time) -> str:
    """Format like PostgreSQL: no zeros at the end of a fraction."""
    text = str(moment.replace(tzinfo=None))
    return text.rstrip("0") if "." in text else text


@given(st.datetimes())
def test_timestamps(moment: datetime) -> None:
    text = _shown(moment)
    us = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert read(PgType(1114, "timestamp"), text) == [us]
    assert read(PgType(1114, "timestamp", 3), text) == [us // 1_000]
    (zoned,) = read(PgType(1184, "timestamptz"), f"{text}+00")
    assert datetime.fromisoformat(zoned) == moment.replace(tzinfo=UTC)


def test_timestamps_beyond_pythons_calendar() -> None:
    zoned = PgType(1184, "timestamptz")
    assert read(zoned, "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00", "infinity", "-infinity") == [
        "-0043-03-15T12:00:00Z", "+10000-01-01T00:00:00Z", "infinity", "-infinity",
    ]  # fmt: skip
    (before,) = read(PgType(1114, "timestamp"), "0001-12-31 23:59:59.999999 BC")
    assert before == (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) - 1


@given(st.times(), st.integers(-15 * 60, 15 * 60))
def test_times_with_zones(moment: time, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    hours, rest = divmod(abs(minutes), 60)
    text = f"{_shown(moment)}{'-' if minutes < 0 else '+'}{hours:02}" + (f":{rest:02}" if rest else "")
    (found,) = read(PgType(1266, "timetz"), text)
    wanted = (datetime.combine(date(2000, 1, 2), moment, zone)).astimezone(UTC)
    assert time.fromisoformat(found).replace(tzinfo=None) == wanted.time()


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    plain_text = text and text.upper() != "NULL" and not any(one in ' {}",\\\t\n\v\f\r' for one in text)
    return text if plain_text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.lists(st.none() | texts | st.sampled_from(["NULL", "{", '"', "a,b", "\\"]), max_size=4), max_size=4))
def test_arrays(arrays: Sequence[list[str | None]]) -> None:
    written = ["{" + ",".join(map(_quoted, items)) + "}" for items in arrays]
    assert read(TEXTS, *written) == list(arrays)


@given(st.dictionaries(texts, st.none() | texts, max_size=4))
def test_hstores(pairs: dict[str, str | None]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = ", ".join(f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}" for key, value in pairs.items())
    assert json.loads(text_forms.hstore_json(text)) == pairs


ESCAPES = {0x5C: "\\\\", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x0B: "\\v"}


@given(st.lists(st.none() | texts | st.sampled_from(["\\N", "\\", "\t\n", "\\\\N"]), min_size=1, max_size=5))
def test_lines_of_copy(cells: Sequence[str | None]) -> None:
    line = "\t".join("\\N" if cell is None else cell.translate(ESCAPES) for cell in cells)
    assert text_forms.copy_row(line.encode()) == [None if cell is None else cell.encode() for cell in cells]


@pytest.mark.parametrize(
    ("type", "text"),
    [(PgType(1082, "date"), "today"), (PgType(1083, "time"), "noon"), (PgType(1186, "interval"), "1 day"),
     (PgType(1184, "timestamptz"), "2026-11-22 11:00:00+02"), (PgType(1266, "timetz"), "11:00:00"),
     (INTS, "1,2"), (PgType(7, "hstore"), "a=>1")],
)  # fmt: skip
def test_an_invalid_text_is_shown_in_the_error(type: PgType, text: str) -> None:
    with pytest.raises(DataError, match="is no"):
        read(type, text)


def test_structs_have_the_schemas_form() -> None:
    (point,) = read(PgType(600, "point"), "(0,0)")
    assert isinstance(point, Struct)


@pytest.mark.parametrize(
    ("type", "text", "fix"),
    [
        (PgType(1186, "interval"), "P178000000Y", "interval.handling.mode=string"),
        (PgType(1186, "interval"), "P-178000000Y", "interval.handling.mode=string"),
        (PgType(1114, "timestamp"), "294276-12-31 23:59:59.999999", "time.precision.mode=connect"),
    ],
)
def test_microseconds_beyond_64_bits_are_refused_with_the_mode_that_fits(type: PgType, text: str, fix: str) -> None:
    """Debezium's numbers overflow there."""
    for kind, written in ((type, text), (PgType(0, f"{type.name}[]", element=type), f'{{"{text}"}}')):
        with pytest.raises(DataError, match=f"{text} has more microseconds than 64 bits: write {fix}"):
            read(kind, written)
