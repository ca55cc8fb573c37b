"""Tests of Connect values as the text of a COPY: each kind, escaping, and values without a text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.java.number_reading import float32
from herdmesh.connect.model.data import Float32, Int16, Int32, JavaDate, Struct
from herdmesh.connect.model.schemas import (
    FLOAT32,
    INT32,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connectors.postgres.sink.texts import TextForm, escaped, lines, texts

PLAIN = TextForm(None)
TOKYO, BOGOTA = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Bogota")
LEAP_MS = 1_709_211_600_123  # 2024-02-29 13:00:00.123 UTC
INTS = Schema("ARRAY", value_schema=Schema("INT32", optional=True))


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (5, PLAIN, "5"),
        (Int16(-5), PLAIN, "-5"),
        (True, PLAIN, "true"),
        (0.1, PLAIN, "0.1"),
        (Float32(1e30), PLAIN, "1e+30"),
        (float("-inf"), PLAIN, "-inf"),
        (Float32(0.10000000149011612), PLAIN, "0.1"),
        (0.10000000149011612, TextForm(FLOAT32), "0.1"),
        (16777216.0, TextForm(FLOAT32), "16777216.0"),
        (1.401298464324817e-45, TextForm(FLOAT32), "1e-45"),
        (float("inf"), TextForm(FLOAT32), "inf"),
        (0.10000000149011612, TextForm(FLOAT32, is_float=True), "0.10000000149011612"),
        ([0.10000000149011612], TextForm(Schema("ARRAY", value_schema=FLOAT32), is_array=True), '{"0.1"}'),
        (Decimal("1E+3"), TextForm(decimal_schema(-3)), "1000"),
        ("a\tb", PLAIN, "a\tb"),
        (b"\x00ab", PLAIN, "\\x006162"),
        (memoryview(b"a"), PLAIN, "\\x61"),
        (JavaDate(LEAP_MS - LEAP_MS % 86_400_000), TextForm(date_schema()), "2024-02-29"),
        (JavaDate(-86_400_000), TextForm(date_schema()), "1969-12-31"),
        (JavaDate(253_402_300_800_000), TextForm(date_schema()), "10000-01-01"),
        (JavaDate(-62_135_596_800_000 - 86_400_000), TextForm(date_schema()), "0001-12-31 BC"),
        (JavaDate(253_402_300_799_000), TextForm(timestamp_schema(), zone=TOKYO), "10000-01-01 08:59:59.000+09:00"),
        (JavaDate(-62_135_596_800_000), TextForm(None, zone=BOGOTA), "0001-12-31 19:03:44.000-04:56:16 BC"),
        (JavaDate(46_800_123), TextForm(time_schema()), "13:00:00.123"),
        (JavaDate(86_400_000), TextForm(time_schema()), "24:00:00.000"),
        (JavaDate(LEAP_MS), TextForm(timestamp_schema()), "2024-02-29 13:00:00.123000+00:00"),
        (JavaDate(LEAP_MS), PLAIN, "2024-02-29 13:00:00.123000+00:00"),
        (JavaDate(LEAP_MS), TextForm(None, zone=ZoneInfo("Asia/Kolkata")), "2024-02-29 18:30:00.123000+05:30"),
        (JavaDate(9_223_372_036_825_200_000), TextForm(timestamp_schema()), "infinity"),
        ([1, None, 2], TextForm(INTS, is_array=True), '{"1",NULL,"2"}'),
        (['a"b', "c\\d", "NULL", ""], TextForm(None, is_array=True), '{"a\\"b","c\\\\d","NULL",""}'),
        ([[1, 2], []], TextForm(None, is_array=True), '{{"1","2"},{}}'),
        ([1, {"a": None}], PLAIN, '[1,{"a":null}]'),
        ({"a": [True]}, PLAIN, '{"a":[true]}'),
        (
            Struct(Schema("STRUCT", fields=[("a", INT32)]), [1]),
            TextForm(Schema("STRUCT", fields=[("a", INT32)])),
            '{"a":1}',
        ),
    ],
)
def test_each_kind_of_value(value: Any, form: TextForm, text: str) -> None:
    assert texts([value], form) == [text]
    assert texts([value, None, value], form) == [text, None, text]
    other, written = (Float32(0.5), "0.5") if form.schema is FLOAT32 else ("x", "x")
    assert texts([value, other], form) == [text, written], "beside another kind"


def test_a_value_without_a_text_is_bad_data() -> None:
    with pytest.raises(DataError, match="a value of type object cannot be written"):
        texts([object()], PLAIN)


@given(st.floats(width=32, allow_nan=False))
def test_a_32_bit_float_round_trips(value: float) -> None:
    (text,) = texts([value], TextForm(FLOAT32))
    assert text is not None
    assert float32(float(text)) == value
    assert len(text.strip("-0.").partition("e")[0].replace(".", "")) <= 9 or value.is_integer()


def test_mixed_kinds_keep_their_texts() -> None:
    assert texts([1, Int32(2), 3.5, True, None, "x", b"y"], PLAIN) == ["1", "2", "3.5", "true", None, "x", "\\x79"]


def test_lines_of_a_copy() -> None:
    assert lines([["a\tb", None], ["c\\\r\n", "\\N"]]) == b"a\\tb\tc\\\\\\r\\n\n\\N\t\\\\N\n"
    assert lines([["\ud800"]]) == b"\xed\xa0\x80\n", "not UTF-8, so that the server says so"


@pytest.mark.parametrize(("schema", "unit_ms"), [(date_schema(), 86_400_000), (timestamp_schema(), 1), (None, 1)])
@given(numbers=st.lists(st.none() | st.integers(-70_000_000_000_000, 260_000_000_000_000), max_size=4))
@example(numbers=[-62_135_596_800_000, 253_402_300_799_999, None, 1_000])
@example(numbers=[9_223_372_036_825_200_000, 0])
def test_dates_have_the_same_text_by_column_and_alone(
    schema: Schema | None, unit_ms: int, numbers: list[int | None]
) -> None:
    values = [None if one is None else JavaDate(one // unit_ms * unit_ms) for one in numbers]
    written = texts(values, TextForm(schema))
    odd = [*values, JavaDate(9_223_372_036_825_200_000)]
    assert written == texts(odd, TextForm(schema))[:-1], "a column with an infinite date goes value by value"


_cells = st.none() | st.text(st.characters(codec="utf-8") | st.sampled_from("\t\n\r\\"), max_size=4)


@given(st.lists(st.tuples(_cells, _cells, st.just("1")), min_size=1, max_size=4))
def test_lines_are_escaped_alike_whether_checked_by_column_or_at_once(rows: list[tuple[str | None, ...]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    each = zip(*map(escaped, columns), strict=True)
    assert lines(columns) == "".join("\t".join(row) + "\n" for row in each).encode()


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=1))
def test_escaping_round_trips(column: list[str | None]) -> None:
    undone = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r"}

    def plain(text: str) -> str | None:
        if text == "\\N":
            return None
        found, at = "", 0
        while at < len(text):
            step = 2 if text[at] == "\\" else 1
            found += undone.get(text[at : at + step], text[at : at + step])
            at += step
        return found

    fields = escaped(column)
    assert not any(char in field for field in fields for char in "\t\n\r")
    assert [plain(field) for field in fields] == column


def test_a_column_of_32_bit_floats_has_numpys_shortest_texts() -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 3_000, dtype=np.uint32)
    plain = [0.0, -0.0, 1.0, 0.1, 1e-4, 999_999_936.0]
    for numbers in (bits.view(np.float32), np.array(plain, np.float32)):
        column = [None, *numbers.tolist()]
        assert texts(column, TextForm(FLOAT32)) == [None, *(repr(float(str(number))) for number in numbers)]


def test_doubles_with_a_32_bit_schema_keep_their_magnitude() -> None:
    assert texts([0.5, 1e300, None], TextForm(FLOAT32)) == ["0.5", "1e+300", None]
