"""Headers take and keep what `ConnectHeaders` of 4.3.1 takes and keeps; the texts are those it gave."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.data import Header, Int32, JavaDate, Struct
from herdmesh.connect.errors import DataError, NullPointerError
from herdmesh.connect.headers import Headers
from herdmesh.connect.schemas import INT32, INT64, OPTIONAL_STRING, STRING, Schema, date_schema

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
def test_what_does_not_fit_is_refused(value: Any, schema: Schema, text: str) -> None:
    made = Headers()
    with pytest.raises(DataError) as refused:
        made.add("k", value, schema)
    assert str(refused.value) == text
    assert made == []


def test_what_connect_takes_is_taken() -> None:
    made = Headers().add("k", None, OPTIONAL_STRING).add("k", ["x"], INTS).add("k", JavaDate(5), date_schema())
    made.add("k", Int32(5), date_schema()).add("k", Struct(ONE, [1]), OTHER).add("s", object())
    assert [one.key for one in made] == [*"kkkkks"]
    with pytest.raises(NullPointerError, match="Null header keys are not permitted"):
        made.add(None, "x", STRING)  # pyright: ignore[reportArgumentType]


def numbers() -> Headers:
    return Headers().add("a", 1, INT32).add("b", 2, INT32).add("a", 3, INT32).add("c", 4, INT32)


def shown(headers: Headers) -> str:
    return " ".join(f"{one.key}{one.value}" for one in headers)


def test_headers_of_one_name() -> None:
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
