"""Tests of types of Parquet columns: inferred from the data, widened, and without changed values."""

from __future__ import annotations

import math
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import Float32
from herdmesh.connectors.values.columns import chunk_of, column_of, table_of, text_of

pa: Any = pyarrow

scalars = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars | st.binary(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)
rows = st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), values, max_size=3), max_size=6)


def table(*batches: list[Any]) -> Any:
    return table_of([chunk_of(batch) for batch in batches], [len(batch) for batch in batches])


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1, None, 2], pa.int64()),
        ([1.5, None], pa.float64()),
        ([1, 2.5], pa.float64()),
        ([True, None], pa.bool_()),
        (["a", None], pa.string()),
        ([b"a"], pa.binary()),
        ([None, None], pa.null()),
        ([1, "a"], pa.string()),
        ([True, 1], pa.string()),
        ([2**63], pa.string()),
        ([2**53 + 1, 0.5], pa.string()),
        ([{"x": 1}], pa.string()),
        ([[1], None], pa.string()),
        ([b"a", "a"], pa.string()),
        ([1.5, True], pa.string()),
        ([1, 1.5, False], pa.string()),
    ],
)
def test_a_column_has_the_narrowest_type_for_its_values(column: list[Any], kind: Any) -> None:
    assert column_of(column).type == kind


@pytest.mark.parametrize(
    ("first", "second", "kind", "read"),
    [
        ([1], [2.5], pa.float64(), [1.0, 2.5]),
        ([1], [None], pa.int64(), [1, None]),
        ([1], ["x"], pa.string(), ["1", "x"]),
        ([True], [1.5], pa.string(), ["true", "1.5"]),
        ([2**53 + 1], [0.5], pa.string(), ["9007199254740993", "0.5"]),
        ([{"n": [1, None]}], ["x"], pa.string(), ['{"n":[1,null]}', "x"]),
        ([math.nan, math.inf], ["x"], pa.string(), ["NaN", "Infinity", "x"]),
        ([Float32(0.1)], ["x"], pa.string(), ["0.1", "x"]),
    ],
)
def test_types_are_widened_over_the_batches_of_a_file(first: Any, second: Any, kind: Any, read: list[Any]) -> None:
    both = table([{"f": value} for value in first], [{"f": value} for value in second])
    assert both.column("f").type == kind
    assert both.column("f").to_pylist() == read


def test_a_field_missing_in_some_rows_is_null_there() -> None:
    found = table([{"a": 1}, {"b": "x", "a": 2}], [{"c": True}])
    assert found.to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "x", "c": None},
        {"a": None, "b": None, "c": True},
    ]


def test_rows_that_are_not_objects_go_to_a_value_column() -> None:
    assert table(["text", None, 5]).to_pylist() == [{"value": "text"}, {"value": None}, {"value": "5"}]


def test_a_field_without_values_is_dropped_and_its_rows_are_kept() -> None:
    assert table([{"a": 1, "b": None}], [{"b": None}]).to_pylist() == [{"a": 1}, {"a": None}]
    assert table([None, {"b": None}]).to_pylist() == [{"value": None}, {"value": None}]


@given(st.lists(rows, min_size=1, max_size=3))
def test_every_value_round_trips(batches: list[list[Any]]) -> None:
    found = table(*batches).to_pylist()
    given_rows: list[dict[str, Any]] = [row or {} for batch in batches for row in batch]
    assert len(found) == len(given_rows)
    for row, read in zip(given_rows, found, strict=True):
        for name, value in row.items():
            _assert_same(value, read.get(name))


def _assert_same(value: Any, read: Any) -> None:
    """Check that the value, or its text, was read."""
    if value is None:
        assert read is None
    elif isinstance(read, str) and type(value) is int:
        # An int may have become an equal double before its column became text: "0" or "0.0".
        assert read in (text_of(value), text_of(float(value)))
    elif isinstance(read, str):
        assert read == text_of(value)
    elif isinstance(read, float):
        assert math.isclose(read, value, rel_tol=0.0)
    else:
        assert (type(read), read) == (type(value), value)


def test_two_keys_with_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two keys of a map have the same name '1'"):
        chunk_of([{1: "a", "1": "b"}])
