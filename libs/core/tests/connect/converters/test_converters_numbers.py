"""The converters of strings, bytes, booleans and numbers: written values are read back, and any bytes and any value
give a value or a ConnectError.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters import CONVERTERS, Converter, make_converter
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.model.data import Float32, Header, Int8, Int16, Int32, Int64, JavaDate
from herdmesh.connect.model.schemas import FLOAT32, FLOAT64, INT32, INT64, STRING, Schema
from libs.core.tests.connect.converters.converter_values import values
from tests.support.sizes import SOAKING, soak_or

_NAMES = [
    "BooleanConverter",
    "ShortConverter",
    "IntegerConverter",
    "LongConverter",
    "FloatConverter",
    "DoubleConverter",
]
_RANDOM_INPUTS = soak_or(3_000, 100_000)
_many = settings(max_examples=soak_or(100, 5_000), deadline=None, derandomize=not SOAKING)


def converter(name: str) -> Converter:
    return make_converter("key.converter", {"key.converter": name}, role="key")


@pytest.mark.parametrize("name", _NAMES)
def test_each_converter_has_its_java_name_and_two_aliases(name: str) -> None:
    full = f"org.apache.kafka.connect.converters.{name}"
    assert CONVERTERS[full] is CONVERTERS[name] is CONVERTERS[name.removesuffix("Converter")]


@pytest.mark.parametrize("name", [*_NAMES, "StringConverter", "ByteArrayConverter"])
@_many
@given(st.data())
def test_written_values_are_read_back(name: str, data: st.DataObject) -> None:
    one = converter(name)
    schema = one.read_schema
    assert schema is not None
    column = data.draw(st.lists(values(schema), max_size=4))
    written = one.write_many(column, schema)
    read_schema, read = one.read_many(written)
    assert read_schema is schema
    assert repr(read) == repr(column)  # repr, so that NaN equals itself and 0.0 is not -0.0
    header = Header("h", column[0] if column else None, schema)
    assert repr(one.read_header("h", one.write_header(header))) == repr(header)


@pytest.mark.parametrize("name", [*_NAMES, "StringConverter", "ByteArrayConverter"])
def test_random_bytes_and_values_give_a_value_or_a_connect_error(name: str) -> None:
    one, chance = converter(name), random.Random(name)
    odd: list[Any] = [
        None, True, 0, 2**70, -(2**15), 1.5, 1e300, float("nan"), "x", b"", [1], {"a": 1}, Int8(1), Int16(2), Int32(3),
        Int64(4), Float32(1e300),
    ]  # fmt: skip
    schemas: list[Schema | None] = [None, INT32, INT64, FLOAT32, FLOAT64, STRING, one.read_schema]
    for _ in range(_RANDOM_INPUTS):
        data = chance.randbytes(chance.choice([0, 1, 2, 4, 8, chance.randrange(12)]))
        with contextlib.suppress(ConnectError):
            one.read(data)
        with contextlib.suppress(ConnectError):
            one.write(chance.choice(odd), chance.choice(schemas))


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, b"Thu Jan 01 00:00:00 UTC 1970"),
        (2**63 - 1, b"Sun Aug 17 07:12:55 UTC 292278994"),
        (-(2**63), b"Sun Dec 02 16:47:04 UTC 292269055"),
    ],
)
def test_a_date_of_any_year_is_printed_as_in_java(milliseconds: int, text: bytes) -> None:
    made = make_converter("value.converter", {"value.converter": "String"}, role="value")
    assert made.write(JavaDate(milliseconds), None) == text


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(["", "\0", "a\0b", "\n"])


@given(st.lists(st.none() | _TEXTS.map(str.encode) | st.binary(max_size=4), max_size=6))
def test_a_column_of_texts_is_read_like_its_single_texts(column: list[bytes | None]) -> None:
    made = make_converter("value.converter", {"value.converter": "String"}, role="value")
    assert made.read_many(column)[1] == [made.read(data)[1] for data in column]


@given(st.lists(st.none() | _TEXTS | st.just("\ud800") | st.integers(0, 9), max_size=6))
def test_a_column_of_texts_is_written_like_its_single_texts(column: list[Any]) -> None:
    made = make_converter("value.converter", {"value.converter": "String"}, role="value")
    assert made.write_many(column, None) == [made.write(value, None) for value in column]
