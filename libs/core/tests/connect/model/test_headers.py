"""Headers, equal to `ConnectHeaders` of 4.3.1: accepted and refused values, and the error texts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.model.data import Header, Int32, JavaDate, Struct
from herdmesh.connect.model.headers import Headers
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)

COUNTS = Schema("MAP", key_schema=STRING, value_schema=INT32)
INTS = Schema("ARRAY", value_schema=INT32)
ONE, OTHER = (Schema("STRUCT", fields=[(name, INT32)]) for name in "ab")


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        (None, STRING, "A null value requires an optional schema but was Schema{STRING}"),
        (5, STRING, "The value 5 is not compatible with the schema Schema{STRING}"),
        (Int32(5), INT64, "The value 5 is not compatible with the schema Schema{INT64}"),
        (["x"], STRING, "The value [x] is not compatible with the schema Schema{STRING}"),
    ],
)
def test_a_value_that_does_not_fit_its_schema_is_refused(value: Any, schema: Schema, text: str) -> None:
    made = Headers()
    with pytest.raises(DataError) as refused:
        made.add("k", value, schema)
    assert str(refused.value) == text
    assert made == []


def test_values_that_connect_accepts_are_accepted() -> None:
    made = Headers().add("k", None, OPTIONAL_STRING).add("k", ["x"], INTS).add("k", JavaDate(5), date_schema())
    made.add("k", Int32(5), date_schema()).add("k", Struct(ONE, [1]), OTHER).add("s", object())
    assert [one.key for one in made] == [*"kkkkks"]
    with pytest.raises(NullPointerError, match="Null header keys are not permitted"):
        made.add(None, "x", STRING)  # pyright: ignore[reportArgumentType]


NO_TIME_FIELDS = "Kafka Connect Date type should not have any time fields set to non-zero values."
NO_DATE_FIELDS = "Kafka Connect Time type should not have any date fields set to non-zero values."
PLAIN = {
    "string": ("x", STRING), "bytes": (b"x", BYTES), "boolean": (True, BOOLEAN), "byte": (1, INT8),
    "short": (1, INT16), "int": (1, INT32), "long": (1, INT64), "float": (1.5, FLOAT32), "double": (1.5, FLOAT64),
    "struct": (Struct(ONE, [1]), ONE), "date": (JavaDate(86_400_000), date_schema()),
    "time": (JavaDate(5), time_schema()),
    "timestamp": (JavaDate(5), timestamp_schema()), "decimal": (Decimal("1.50"), decimal_schema(2)),
}  # fmt: skip
NONE_HAS = {
    "string": OPTIONAL_STRING, "bytes": OPTIONAL_BYTES, "struct": None, "decimal": None, "date": date_schema(),
    "time": time_schema(), "timestamp": timestamp_schema(),
}  # fmt: skip


def added(which: str, *given: Any) -> Headers:
    return getattr(Headers(), f"add_{which}")(*given)


@pytest.mark.parametrize("which", PLAIN)
def test_an_adder_of_a_type_sets_its_schema(which: str) -> None:
    value, schema = PLAIN[which]
    assert added(which, "k", value) == [Header("k", value, schema)]
    with pytest.raises(NullPointerError, match="Null header keys are not permitted"):
        added(which, None, value)


@pytest.mark.parametrize("which", NONE_HAS)
def test_null_for_each_adder(which: str) -> None:
    assert added(which, "k", None) == [Header("k", None, NONE_HAS[which])]
    with pytest.raises(NullPointerError, match="Null header keys are not permitted"):
        added(which, None, None)


def test_lists_and_maps_get_the_given_schema() -> None:
    assert added("list", "k", [1, 2], INTS) == [Header("k", [1, 2], INTS)]
    assert added("list", "k", ["x"], INTS) == [Header("k", ["x"], INTS)]
    assert added("map", "k", {"x": 1}, COUNTS) == [Header("k", {"x": 1}, COUNTS)]
    assert added("list", "k", None, COUNTS) == added("map", "k", None, None) == [Header("k", None)]


@pytest.mark.parametrize(
    ("which", "given", "text"),
    [
        ("list", ([1], COUNTS), "Expecting ARRAY but instead found MAP"),
        ("map", ({"x": 1}, INTS), "Expecting MAP but instead found ARRAY"),
        ("date", (JavaDate(86_400_001),), NO_TIME_FIELDS),
        ("time", (JavaDate(86_400_005),), NO_DATE_FIELDS),
        ("byte", (128,), "The value 128 is not compatible with the schema Schema{INT8}"),
    ],
)  # fmt: skip
def test_an_adder_refuses_values_of_other_types(which: str, given: tuple[Any, ...], text: str) -> None:
    with pytest.raises(DataError) as refused:
        added(which, "k", *given)
    assert str(refused.value) == text


@pytest.mark.parametrize(("which", "value"), [("list", [1]), ("map", {"x": 1})])
def test_a_value_that_needs_a_schema_is_refused_without_one(which: str, value: Any) -> None:
    with pytest.raises(NullPointerError, match="give one"):
        added(which, "k", value, None)


def test_a_struct_brings_its_schema() -> None:
    struct = Struct(ONE, [1])
    assert Headers().add("k", struct) == Headers().add("k", struct, ONE)


def numbers() -> Headers:
    return Headers().add("a", 1, INT32).add("b", 2, INT32).add("a", 3, INT32).add("c", 4, INT32)


def shown(headers: Headers) -> str:
    return " ".join(f"{one.key}{one.value}" for one in headers)


def test_several_headers_of_one_name() -> None:
    made = numbers()
    assert made.last_with_name("a") == Header("a", 3, INT32)
    assert made.last_with_name("z") is None
    assert [one.value for one in made.all_with_name("a")] == [1, 3]
    assert shown(numbers().drop("a")) == "b2 c4"
    assert shown(numbers().retain_latest("a")) == "b2 a3 c4"
    assert shown(numbers().add("b", 9, INT32).retain_latest()) == "a3 c4 b9"
    renamed = numbers().apply(lambda one: None if one.value == 1 else Header("q", one.value, one.schema), "a")
    assert shown(renamed) == "b2 q3 c4"
    assert shown(numbers().apply(lambda one: None if one.key == "c" else one)) == "a1 b2 a3"
    assert numbers() == numbers() != made.drop("a")
