"""Tests of values as JSON: JsonConverter's output, and
the counterpart for values that JsonConverter refuses.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.java.number_reading import float32
from herdmesh.connect.model.data import BigInteger, Float32, JavaDate, Struct
from herdmesh.connect.model.packed_texts import UnreadTexts
from herdmesh.connect.model.schemas import INT32, OPTIONAL_STRING, STRING, Schema, date_schema, decimal_schema
from herdmesh.connectors.values.payloads import payloads, texts_of

POINT = Schema("STRUCT", fields=[("x", INT32), ("note", OPTIONAL_STRING)])
ORDER = Schema(
    "STRUCT",
    optional=True,
    fields=[("id", INT32), ("at", date_schema()), ("price", decimal_schema(2)), ("where", POINT)],
)
scalars = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text() | st.binary()
    | st.integers(-(1 << 50), 1 << 50).map(JavaDate) | st.floats(width=32).map(Float32)
    | st.integers(-(1 << 90), 1 << 90).map(BigInteger)
    | st.decimals(allow_nan=False, allow_infinity=False)
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


def test_structs_are_objects_with_connects_dates_and_decimals() -> None:
    order = Struct(ORDER, [7, JavaDate(86_400_000), Decimal("1.50"), Struct(POINT, [1, None])])
    assert texts_of([order, None], ORDER) == [b'{"id":7,"at":1,"price":1.50,"where":{"x":1,"note":null}}', b"null"]
    assert payloads().lines([order, None], ORDER) == b"%b\nnull\n" % texts_of([order], ORDER)[0]
    assert payloads(numeric=False).texts([Decimal("1.50")], decimal_schema(2)) == [b'"AJY="']


@pytest.mark.parametrize(("defaults", "written"), [(True, b'"UNKNOWN"'), (False, b"null")])
def test_nulls_become_defaults_as_configured(defaults: bool, written: bytes) -> None:
    schema = Schema("STRUCT", fields=[("a", STRING.replace(optional=True, default="UNKNOWN"))])
    assert payloads(defaults=defaults).lines([Struct(schema, [None])], schema) == b'{"a":%b}\n' % written


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="null value for field that is required"):
        payloads().lines([Struct(POINT, [None, "a"])], POINT)


@given(st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from('\x7f"\\\n\x00\u2028\U0001f600'))))
@example(["\ud800", 'a"\n'])
@example(["a\x7fb", ""])
def test_texts_give_the_same_lines_written_together_or_one_by_one(texts: list[str]) -> None:
    found = payloads().lines(texts, STRING)
    assert [json.loads(line) for line in found.split(b"\n")[:-1]] == texts
    assert found == payloads().lines(texts, None)
    if "\ud800" in "".join(texts):
        return
    raw = [text.encode() for text in texts]
    unread = UnreadTexts(raw, lambda data: [None if one is None else one.decode() for one in data])
    assert payloads().lines(unread, STRING) == found


@pytest.mark.parametrize("odd", [None, b"\xff"])
def test_undecoded_texts_may_be_null_or_malformed(odd: bytes | None) -> None:
    unread = UnreadTexts([odd], lambda data: [None if one is None else one.decode("utf-8", "replace") for one in data])
    assert payloads().lines(unread, OPTIONAL_STRING) == (b"null\n" if odd is None else '"\ufffd"\n'.encode())


def _same(read: Any, value: Any) -> bool:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return list(read) == list(members) and all(_same(read[key], item) for key, item in members.items())
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return len(read) == len(items) and all(map(_same, read, items))
    if isinstance(value, bytes):
        return isinstance(read, str)
    if isinstance(value, float):
        names = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
        if isinstance(read, str):
            return names.get(read) == str(float(value))
        return (float32(float(read)) if isinstance(value, Float32) else float(read)) == value
    return read == value and isinstance(read, bool) == isinstance(value, bool)


@given(st.lists(st.dictionaries(st.text(max_size=3), values, max_size=4), max_size=4))
def test_schemaless_values_round_trip_on_the_fast_and_the_careful_path(rows: list[Any]) -> None:
    """One odd value must not change how the others are written."""
    lines = payloads().lines(rows, None).splitlines()
    for row, line, text in zip(rows, lines, payloads().texts(rows, None), strict=True):
        for written in (line, text):
            assert _same(json.loads(written, parse_float=Decimal), row), (row, written)
