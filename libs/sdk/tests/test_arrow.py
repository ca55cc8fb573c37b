"""Conversion from Arrow to Connect and back: no value changes, and a value without an exact form is refused with its
column's name.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.sdk import DataError, JavaDate, Schema, SchemaBuilder, SinkBatch, Struct, decimal_schema
from herdmesh.sdk.arrow import arrow_schema, arrow_source_batch, connect_schema, to_arrow

pa: Any = pyarrow
UTC = datetime.UTC
COLUMNS: dict[str, tuple[Any, Any]] = {
    # Arrow type, values: those that survive the round trip unchanged
    "int8": (pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    "int64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "decimal": (pa.decimal128(38, 3), st.decimals(-(10**9), 10**9, places=3)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time32("ms"), st.times().map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000))),
    "instant": (
        pa.timestamp("ms", "UTC"),
        st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
            lambda ms: datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=ms)
        ),
    ),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(-9, 9), max_size=2).map(
            lambda one: list(one.items())
        ),
    ),
    "struct": (
        pa.struct([pa.field("at", pa.date32()), pa.field("all", pa.list_(pa.date32()))]),
        st.fixed_dictionaries(
            {"at": st.none() | st.dates(), "all": st.none() | st.lists(st.none() | st.dates(), max_size=2)}
        ),
    ),
}
TABLE = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})


def sink_batch(values: Any, schema: Schema | None) -> SinkBatch:
    count = len(values)
    return SinkBatch("t", 0, 0, count, values, [], list(range(count)), [None] * count, value_schema=schema)


@given(st.lists(ROW, max_size=5), st.booleans(), st.integers(0, 2))
def test_arrow_round_trip_changes_no_value(rows: list[dict[str, Any]], as_structs: bool, begin: int) -> None:
    """As columns, and as structs one by one; also of a slice, whose arrays begin at an offset."""
    given_rows = pa.RecordBatch.from_pylist(rows, schema=TABLE).slice(min(begin, len(rows)))
    batch = arrow_source_batch("t", given_rows, {}, {})
    assert isinstance(batch.values, StructColumn)
    if as_structs:
        for struct in batch.values:
            struct.validate()
    back = to_arrow(sink_batch(batch.values, batch.value_schema))
    assert back.to_pylist() == given_rows.to_pylist()


def test_every_arrow_type_maps_to_its_schema() -> None:
    types = {
        "uint8": (pa.uint8(), Schema("INT16")),
        "uint32": (pa.uint32(), Schema("INT64")),
        "half": (pa.float16(), Schema("FLOAT32")),
        "large": (pa.large_string(), Schema("STRING")),
        "fixed": (pa.binary(3), Schema("BYTES")),
        "money": (pa.decimal128(10, 2), decimal_schema(2)),
        "nothing": (pa.null(), Schema("STRING", optional=True)),
        "coded": (pa.dictionary(pa.int8(), pa.string()), Schema("STRING")),
    }
    columns = [pa.field(name, kind, kind == pa.null()) for name, (kind, _) in types.items()]
    schema = connect_schema(pa.schema(columns), "row")
    assert schema.name == "row"
    assert {one.name: one.schema for one in schema.fields} == {name: wanted for name, (_, wanted) in types.items()}
    values = arrow_source_batch(
        "t",
        pa.RecordBatch.from_pylist([{"coded": "a"}, {"coded": None}], schema=pa.schema([("coded", types["coded"][0])])),
        {},
        {},
    ).values
    assert [one.get("coded") for one in values] == ["a", None]


def test_keys_are_a_column_and_a_batch_knows_its_offsets() -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "at": datetime.date(1970, 1, 2)}, {"id": 2, "at": None}])
    batch = arrow_source_batch("t", rows, {"file": "a"}, {"row": 2}, key="id", partition=3)
    assert (list(batch.keys), batch.partition, batch.source_offset) == ([1, 2], 3, {"row": 2})
    assert batch.key_schema is batch.value_schema.fields[0].schema  # pyright: ignore[reportOptionalMemberAccess]
    assert batch.values[0].get("at") == JavaDate(86_400_000)
    with pytest.raises(DataError, match="no column key for the keys; there are: id, at"):
        arrow_source_batch("t", rows, {}, {}, key="key")


def test_value_without_an_exact_form_is_refused_with_its_column() -> None:
    microseconds = pa.RecordBatch.from_arrays([pa.array([1_001], pa.timestamp("us"))], names=["at"])
    nested = pa.RecordBatch.from_arrays(
        [pa.array([{"all": [1_001]}], pa.struct([("all", pa.list_(pa.time64("us")))]))], names=["s"]
    )
    doubled = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    unsigned = pa.RecordBatch.from_arrays([pa.array([1], pa.uint64())], names=["big"])
    nulls = pa.RecordBatch.from_arrays(
        [pa.array([None], pa.int8())], schema=pa.schema([pa.field("n", pa.int8(), False)])
    )
    for rows, says in (
        (microseconds, "column at: .*milliseconds"),
        (nested, r"column s\.all: .*milliseconds"),
        (doubled, "two columns of one name"),
        (unsigned, "column big: Connect has no type for the Arrow type uint64"),
        (nulls, "column n has nulls"),
    ):
        with pytest.raises(DataError, match=says):
            arrow_source_batch("t", rows, {}, {})


def test_types_of_schemaless_values_are_inferred() -> None:
    found = to_arrow(sink_batch([{"id": 1, "name": "a"}, None, {"id": 2.5}], None))
    assert found.to_pylist() == [{"id": 1.0, "name": "a"}, {"id": None, "name": None}, {"id": 2.5, "name": None}]
    assert to_arrow(sink_batch(["a", None], None)).to_pylist() == [{"value": "a"}, {"value": None}]
    assert to_arrow(sink_batch([None, {}], None)).to_pylist() == [{"value": None}, {"value": None}]
    with pytest.raises(DataError, match="field id: its values have no type in common"):
        to_arrow(sink_batch([{"id": 1}, {"id": "x"}], None))
    for odd in ([b"a", "b"], [1.5, True]):
        with pytest.raises(DataError, match="field value: its values have no type in common"):
            to_arrow(sink_batch(odd, None))


def test_defaults_and_tombstones_with_a_schema() -> None:
    count = SchemaBuilder("INT32").optional().default_value(7).build()
    schema = Schema("STRUCT", fields=[("n", count), ("x", Schema("FLOAT32"))])
    found = to_arrow(sink_batch([Struct(schema, [None, 0.5]), None, Struct(schema, [1, math.inf])], schema))
    assert found["n"].to_pylist() == [7, None, 1]
    assert found["x"].to_pylist() == [0.5, None, math.inf]
    assert arrow_schema(schema) == pa.struct([("n", pa.int32()), ("x", pa.float32())])
    plain = to_arrow(sink_batch([Decimal("1.50"), None], decimal_schema(2, optional=True)))
    assert plain["value"].to_pylist() == [Decimal("1.50"), None]
    with pytest.raises(DataError, match="field x: a value that does not match"):
        to_arrow(sink_batch([Struct(schema, [1, "text"])], schema))
