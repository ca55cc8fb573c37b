"""Tests of values in every sink that writes files or
requests: the right value, or that record alone refused.

The samples are from `tests.support.sample_values`. Each result is checked against plain Python;
docs/reference/values.md shows them.
"""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from herdmesh.connect.chain.chain_config import has_defaults, sink_chain
from herdmesh.connect.errors import DataError, RecordError
from herdmesh.connect.java.number_reading import float32
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model.data import Batch, BigInteger, Float32, JavaDate, Struct
from herdmesh.connect.model.lazy_column import LazyColumn
from herdmesh.connect.model.schemas import INT32, OPTIONAL_STRING, STRING, Schema
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.values.refusals import convert_batch
from libs.connectors.tests.values.round_trips import (
    OF_JSON,
    SINKS,
    Refused,
    batch_of,
    context_of,
    files,
    read_csv,
    read_json,
    read_parquet,
    same_arrow,
    same_cell,
    same_json,
)
from libs.connectors.tests.values.values_page import PAGE, page
from tests.support.sample_values import FIELD, SCHEMALESS, UNFIT, WITH_SCHEMA, Sample, in_struct

pa: Any = pyarrow
_parquet: Any = pyarrow.parquet
TOO_LARGE = "Decimal of 90 digits"
"""The one sample that has no Parquet type."""


@pytest.mark.parametrize("sink", OF_JSON)
@pytest.mark.parametrize("sample", [*WITH_SCHEMA, *SCHEMALESS], ids=str)
def test_json_has_the_value(sink: str, sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    refused = Refused()
    (row,) = read_json(SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused)))
    assert refused.errors == []
    assert list(row) == ["id", FIELD]
    assert row["id"] == 1
    assert same_json(row[FIELD], sample.value, sample.schema), row


@pytest.mark.parametrize("sink", ["parquet", "spark"])
@pytest.mark.parametrize("sample", [one for one in WITH_SCHEMA if one.name != TOO_LARGE], ids=str)
def test_parquet_has_the_value(sink: str, sample: Sample, tmp_path: Path) -> None:
    assert sample.schema is not None
    value, schema = in_struct(sample)
    refused = Refused()
    found = read_parquet(SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused)))
    if sink == "spark" and sample.name == "Decimal of 60 digits":
        assert refused.offsets == [0]
        return
    assert refused.errors == []
    assert found[0]["id"] == 1
    assert same_arrow(found[0][FIELD], sample.value, sample.schema), found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Decimal of 20 digits", pa.decimal128(38, 2)), ("Decimal of 60 digits", pa.decimal256(76, 2)),
        ("Date", pa.date32()), ("Time", pa.time32("ms")), ("Timestamp", pa.timestamp("ms", "UTC")),
        ("BYTES", pa.binary()), ("FLOAT32", pa.float32()), ("FLOAT64 NaN", pa.float64()), ("INT8 smallest", pa.int8()),
        ("ARRAY of Decimal", pa.list_(pa.decimal128(38, 2))), ("STRING null", pa.string()),
        ("Timestamp null", pa.timestamp("ms", "UTC")),
        ("MAP of INT32 keys", pa.map_(pa.int32(), pa.string())),
        ("STRUCT", pa.struct([("x", pa.int32()), ("label", pa.string())])),
    ],
)  # fmt: skip
def test_parquet_columns_have_the_types_of_the_schema(name: str, kind: Any, tmp_path: Path) -> None:
    (sample,) = [one for one in WITH_SCHEMA if one.name == name]
    value, schema = in_struct(sample)
    (data,) = files("parquet")(tmp_path / "out", [batch_of([value], schema)], context_of(None))
    assert _parquet.read_schema(io.BytesIO(data)).field(FIELD).type.equals(kind)


@pytest.mark.parametrize("sample", [*WITH_SCHEMA, *SCHEMALESS], ids=str)
def test_csv_has_the_value(sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    (data,) = files("csv")(tmp_path / "out", [batch_of([value], schema)], context_of(None))
    (row,) = read_csv([data])
    assert same_cell(row.get(FIELD, ""), sample.value, sample.schema), data


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("sample", UNFIT, ids=str)
def test_a_value_that_does_not_fit_is_refused_alone(sink: str, sample: Sample, tmp_path: Path) -> None:
    """JsonSchemaConverter reads a record without a required field; a transformation may do the same."""
    fine = Sample(
        "fine", {"INT32": 5, "INT64": 5, "STRING": "x", "INT8": 5, "ARRAY": [1]}[_type(sample)], sample.schema
    )
    if sample.schema is not None and sample.schema.name is not None:
        fine = Sample("fine", JavaDate(0), sample.schema)
    values = [in_struct(one, number)[0] for number, one in enumerate([fine, sample, fine, sample])]
    batch = batch_of(values, in_struct(sample)[1], first=10)
    refused = Refused()
    found = SINKS[sink](tmp_path / "out", [batch], context_of(refused))
    assert refused.offsets == [11, 13]
    read = read_json if sink in OF_JSON else read_parquet if sink != "csv" else read_csv
    assert [int(row["id"]) for row in read(found)] == [0, 2]
    with pytest.raises(RecordError, match=r"TASK_PUT.*topic 't', partition 0, offset 11"):
        SINKS[sink](tmp_path / "fails", [batch], context_of(None))


def _type(sample: Sample) -> str:
    assert sample.schema is not None
    return sample.schema.type


@pytest.mark.parametrize("sink", ["parquet", "spark"])
def test_a_decimal_too_large_for_every_type_is_refused(sink: str, tmp_path: Path) -> None:
    (large,) = [one for one in WITH_SCHEMA if one.name == TOO_LARGE]
    value, schema = in_struct(large)
    refused = Refused()
    assert SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused)) == []
    assert refused.offsets == [0]
    assert "digits" in str(refused.errors[0])


@pytest.mark.parametrize("sink", [one for one in SINKS if one != "http"])
@pytest.mark.parametrize("sample", [one for one in WITH_SCHEMA if "default" in one.name and one.schema], ids=str)
def test_nulls_stay_null_without_defaults(sink: str, sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    refused = Refused()
    found = SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused, defaults=False))
    if sample.name == "null with a default, required":
        assert refused.offsets == [0]
        return
    read = read_json if sink in OF_JSON else read_parquet if sink != "csv" else read_csv
    (row,) = read(found)
    text = json.dumps(row[FIELD], default=str)
    assert "null" in text or row[FIELD] == ""
    assert "UNKNOWN" not in text


def test_the_config_decides_whether_nulls_become_defaults() -> None:
    own = {"value.converter": "x", "value.converter.replace.null.with.default": "false"}
    assert has_defaults({}, "value.converter") is True
    assert has_defaults(own, "value.converter") is False
    assert has_defaults(own, "key.converter") is True
    assert has_defaults({}, "value.converter", worker=own) is False
    assert has_defaults({"value.converter": "y"}, "value.converter", worker=own) is True
    assert has_defaults({"value.converter": "x", "value.converter.ignore.default.for.nullables": "true"},
                        "value.converter") is False  # fmt: skip


NEXT = Schema("STRUCT", name="Next", fields=[("id", INT32), ("extra", OPTIONAL_STRING)])
FIRST = Schema("STRUCT", name="First", fields=[("id", INT32), ("name", STRING)])


def test_each_schema_of_an_alternating_sequence_has_one_file(tmp_path: Path) -> None:
    batches = [
        batch_of([None], None, 0),
        batch_of([Struct(FIRST, [1, "a"])], FIRST, 1),
        batch_of([Struct(NEXT, [2, None])], NEXT, 2),
        batch_of([Struct(FIRST, [3, "b"])], FIRST, 3),
        batch_of([None], None, 4),
    ]
    found = files("parquet")(tmp_path / "out", batches, context_of(None))
    assert [_parquet.read_table(io.BytesIO(one)).to_pylist() for one in found] == [
        [{"id": None, "name": None}, {"id": 1, "name": "a"}, {"id": 3, "name": "b"}, {"id": None, "name": None}],
        [{"id": 2, "extra": None}],
    ]
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names == ["t+0+0000000000+0000000004.parquet", "t+0+0000000002+0000000002.parquet"]
    (lines,) = files("csv")(tmp_path / "csv", batches, context_of(None))
    assert lines == b'"id","name","extra"\n,,\n1,"a",\n2,,\n3,"b",\n,,\n'


def test_one_large_decimal_does_not_change_the_type_of_the_others(tmp_path: Path) -> None:
    by_name = {one.name: one for one in WITH_SCHEMA}
    small, large = by_name["Decimal"], by_name["Decimal of 60 digits"]
    batches = [batch_of([in_struct(one)[0]], in_struct(one)[1], at) for at, one in enumerate([small, large, small])]
    found = files("parquet")(tmp_path / "out", batches, context_of(None))
    tables = [_parquet.read_table(io.BytesIO(one)) for one in found]
    assert [(table.schema.field(FIELD).type, table.num_rows) for table in tables] == [
        (pa.decimal128(38, 2), 2), (pa.decimal256(76, 2), 1),
    ]  # fmt: skip


def test_a_struct_without_fields_is_refused_by_parquet(tmp_path: Path) -> None:
    empty = Schema("STRUCT", name="Empty")
    schema = Schema("STRUCT", fields=[("id", INT32), ("e", empty)])
    refused = Refused()
    batch = batch_of([Struct(schema, [1, Struct(empty, [])])], schema)
    assert files("parquet")(tmp_path / "out", [batch], context_of(refused)) == []
    assert "field e: Parquet cannot represent a struct without fields" in str(refused.errors[0])


def test_schemaless_values_keep_their_digits_in_columns(tmp_path: Path) -> None:
    rows = [
        {
            "price": Decimal("123456789012345678.90"),
            "rate": Float32(float32(0.1)),
            "n": BigInteger(2**70),
            "x": math.nan,
        },
        {"price": Decimal("0.001"), "rate": None, "n": BigInteger(1), "x": 1.5},
    ]
    (data,) = files("parquet")(tmp_path / "out", [batch_of(rows, None)], context_of(None))
    table = _parquet.read_table(io.BytesIO(data))
    assert table.schema.types == [pa.decimal128(38, 3), pa.float32(), pa.string(), pa.float64()]
    assert table.column("price").to_pylist() == [Decimal("123456789012345678.900"), Decimal("0.001")]
    assert table.column("n").to_pylist() == [str(2**70), "1"]
    (text,) = files("csv")(tmp_path / "csv", [batch_of(rows, None)], context_of(None))
    assert text == (f'"price","rate","n","x"\n123456789012345678.900,0.1,"{2**70}",NaN\n0.001,,"1",1.5\n'.encode())


def test_a_refused_record_is_found_by_bisection() -> None:
    """The cost of a bad record is logarithmic in the size of its batch."""
    tries = 0

    def convert(batch: SinkBatch) -> int:
        nonlocal tries
        tries += 1
        if 700 in batch.values:
            raise DataError("700")
        return len(batch)

    refused = Refused()
    parts = convert_batch(batch_of(range(1_000), None), convert, refused.report)
    assert sum(made for _, made in parts) == 999
    assert [offset for part, _ in parts for offset in part.offsets] == [at for at in range(1_000) if at != 700]
    assert (refused.offsets, tries <= 25) == ([700], True)


def test_the_values_page_shows_what_sinks_write() -> None:
    """`python -m libs.connectors.tests.values.values_page` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("sink", OF_JSON)
def test_schemaless_json_numbers_beyond_javas_range(sink: str, tmp_path: Path) -> None:
    """A double that is infinite after parsing is infinite in the JSON, beside nulls and the text null."""
    raw = [b'{"a":1e999,"b":null}', b'{"a":-1e999,"b":"null"}', b'{"a":[[1]],"b":null}']
    values = LazyColumn(raw, jackson.loads_many)
    data = SINKS[sink](tmp_path / "out", [batch_of(values, None)], context_of(None))
    assert read_json(data) == [{"a": "Infinity", "b": None}, {"a": "-Infinity", "b": "null"}, {"a": [[1]], "b": None}]


@pytest.mark.parametrize("sink", OF_JSON)
@pytest.mark.parametrize(
    ("step", "written"),
    [
        ({"type": "Cast$Value", "spec": "a:float64"}, {"a": "NaN", "b": None, "c": 1.5}),
        ({"type": "MaskField$Value", "fields": "c", "replacement": "1e999"}, {"a": "NaN", "b": None, "c": "Infinity"}),
        ({"type": "InsertField$Value", "static.field": "b", "static.value": "x"}, {"a": "NaN", "b": "x", "c": 1.5}),
    ],
)
def test_a_transformation_of_schemaless_json_values_keeps_nan_and_infinity(
    sink: str, step: dict[str, str], written: dict[str, Any], tmp_path: Path
) -> None:
    """NaN must not become null, also in a map that a transformation changed in place."""
    config = {
        "key.converter": "JsonConverter", "value.converter": "JsonConverter", "value.converter.schemas.enable": "false",
        "transforms": "s", **{f"transforms.s.{name}": value for name, value in step.items()},
    }  # fmt: skip
    config["transforms.s.type"] = f"org.apache.kafka.connect.transforms.{step['type']}"
    raw = [b'{"a":"NaN","b":null,"c":1.5}'] * 2
    [made] = sink_chain(config).run(Batch("t", 0, [None] * 2, raw, range(2)))
    data = SINKS[sink](tmp_path / "out", [batch_of(made.values, None)], context_of(None))
    assert read_json(data) == [written] * 2


@pytest.mark.parametrize("sink", OF_JSON)
def test_schemaless_integers_keep_their_digits(sink: str, tmp_path: Path) -> None:
    values = [{"a": 1 << 70, "b": [-(1 << 63) - 1]}, {"a": 1 << 63, "b": [{"c": 10**30}]}]
    data = SINKS[sink](tmp_path / "out", [batch_of(values, None)], context_of(None))
    assert read_json(data) == values


_ODD = Schema("STRUCT", fields=[("\udc00k", INT32)])
_ODD_WITHIN = Schema("STRUCT", fields=[("x", _ODD)])
_ODD_NAMES: dict[str, tuple[Schema | None, list[Any]]] = {
    "key": (None, [{"\udc00k": 1}, {"k": 1}]),
    "field": (_ODD, [Struct(_ODD, [1])]),
    "field within": (_ODD_WITHIN, [Struct(_ODD_WITHIN, [Struct(_ODD, [1])])]),
}


@pytest.mark.parametrize("name", list(_ODD_NAMES))
@pytest.mark.parametrize("sink", ["parquet", "csv", "spark"])
def test_an_invalid_column_name_fails_only_its_records(sink: str, name: str, tmp_path: Path) -> None:
    schema, values = _ODD_NAMES[name]
    refused = Refused()
    data = SINKS[sink](tmp_path / "out", [batch_of(values, schema)], context_of(refused))
    if (sink, name) == ("csv", "field within"):
        assert data == [b'"x"\n"{""\\uDC00k"":1}"\n']  # the surrogate is within JSON
        return
    assert refused.offsets == [0]
    assert "half of a surrogate pair: rename it" in str(refused.errors[0])
    if sink != "csv":
        assert read_parquet(data) == values[1:]


@pytest.mark.parametrize("sink", ["parquet", "csv", "spark"])
def test_non_text_keys_of_a_map_name_columns_by_their_text(sink: str, tmp_path: Path) -> None:
    data = SINKS[sink](tmp_path / "out", [batch_of([{1: "a"}], None)], context_of(None))
    assert (read_csv(data) if sink == "csv" else read_parquet(data)) == [{"1": "a"}]


FLOAT, DOUBLE, LONG, TEXT, FLAG = (
    Schema("STRUCT", fields=[("a", Schema(kind))]) for kind in ("FLOAT32", "FLOAT64", "INT64", "STRING", "BOOLEAN")
)


@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        ([(FLOAT, float32(0.1)), (DOUBLE, 0.1), (LONG, 2**62 + 1)], ["0.1", "0.1", "4611686018427387905"]),
        ([(FLOAT, float32(0.1)), (TEXT, "x")], ["0.1", "x"]),
        ([(DOUBLE, math.nan), (LONG, 1), (DOUBLE, -math.inf)], ["NaN", "1", "-Infinity"]),
        ([(DOUBLE, math.nan), (FLAG, True)], ["NaN", "true"]),
    ],
)
def test_a_csv_cell_does_not_depend_on_values_of_other_schemas(
    rows: list[tuple[Schema, Any]], cells: list[str], tmp_path: Path
) -> None:
    """A field that changes its type has one CSV column: each value is written as it would be alone."""
    batches = [batch_of([Struct(schema, [value])], schema, first) for first, (schema, value) in enumerate(rows)]
    assert [row["a"] for row in read_csv(SINKS["csv"](tmp_path / "out", batches, context_of(None)))] == cells


@pytest.mark.parametrize("sink", ["parquet", "spark"])
@pytest.mark.parametrize(("parameters", "why"), [(None, "no parameters"), ({"scale": "80"}, "scale 80")])
def test_a_decimal_without_a_column_type_names_its_field(
    sink: str, parameters: dict[str, str] | None, why: str, tmp_path: Path
) -> None:
    price = Schema("BYTES", False, "org.apache.kafka.connect.data.Decimal", parameters=parameters)
    schema = Schema("STRUCT", fields=[("price", price)])
    refused = Refused()
    SINKS[sink](tmp_path / "out", [batch_of([Struct(schema, [Decimal("1.5")])], schema)], context_of(refused))
    (error,) = refused.errors
    assert str(error).startswith("field price: ")
    assert why in str(error)
