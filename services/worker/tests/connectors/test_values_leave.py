"""How values leave in every sink that writes files or requests: the right value, or that record alone refused.

The samples are `tests.support.sample_values`'. What each becomes is checked against plain Python; docs/values.md shows
it all.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow
import pyarrow.parquet
import pytest

from herdmesh.connect.chain_config import has_defaults
from herdmesh.connect.connector import SinkBatch, SinkTask, StagingSinkTask, TaskContext
from herdmesh.connect.data import BigInteger, Float32, JavaDate, Struct
from herdmesh.connect.errors import DataError, RecordError
from herdmesh.connect.javareading import float32
from herdmesh.connect.schemas import INT32, OPTIONAL_STRING, STRING, Schema
from herdmesh.worker.connectors.file_stream import FileStreamSinkTask
from herdmesh.worker.connectors.files.task import FileSinkTask
from herdmesh.worker.connectors.http_config import settings_of
from herdmesh.worker.connectors.http_requests import requests_of
from herdmesh.worker.connectors.spark.tables import Rows, format_for_spark
from herdmesh.worker.connectors.values.refusals import taken
from tests.support.sample_values import FIELD, SCHEMALESS, UNFIT, WITH_SCHEMA, Sample, in_struct

pa: Any = pyarrow
_parquet: Any = pyarrow.parquet
DAY_MS = 86_400_000
TOO_LARGE = "Decimal of 90 digits"
"""The one sample that Parquet has no type for."""


class Refused:
    """An errant-record reporter that remembers offsets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[BaseException] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Any:
        self.offsets.append(batch.offsets[index])
        self.errors.append(error)

    def settle(self) -> None:
        return


def context_of(refused: Refused | None, *, defaults: bool = True) -> TaskContext:
    return TaskContext("sink", 0, 1, "connect-sink", "run", errant=refused, value_defaults=defaults)


def batch_of(values: Sequence[Any], schema: Schema | None, first: int = 0) -> SinkBatch:
    offsets = list(range(first, first + len(values)))
    return SinkBatch(
        "t", 0, offsets[0], offsets[-1], values, [None] * len(values), offsets, [1_700_000_000_000] * len(values),
        value_schema=schema, original_topic="t",
    )  # fmt: skip


Write = Callable[[Path, Sequence[SinkBatch], TaskContext], list[bytes]]
"""Puts batches and gives the files, or the bodies of requests, that came of them."""


def _files(form: str) -> Write:
    def write(folder: Path, batches: Sequence[SinkBatch], context: TaskContext) -> list[bytes]:
        return _run(FileSinkTask(), {"directory": str(folder), "format": form}, batches, context, folder)

    return write


def _stream(folder: Path, batches: Sequence[SinkBatch], context: TaskContext) -> list[bytes]:
    folder.mkdir()
    return _run(FileStreamSinkTask(), {"file": str(folder / "lines")}, batches, context, folder)


def _run(
    task: SinkTask, config: dict[str, str | None], batches: Sequence[SinkBatch], context: TaskContext, folder: Path
) -> list[bytes]:
    task.start(config, context)
    for batch in batches:
        task.put(batch)
    if isinstance(task, StagingSinkTask):
        task.publish(task.stage())
    else:
        task.flush()
    task.stop()
    return [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]


def _http(folder: Path, batches: Sequence[SinkBatch], context: TaskContext) -> list[bytes]:
    settings = settings_of({"http.url": "http://h/in", "batch.max.size": "100"})
    made = [one for batch in batches for one in requests_of(batch, settings, context.give_up)]
    return [request.body(settings) for request in made]


def _spark(folder: Path, batches: Sequence[SinkBatch], context: TaskContext) -> list[bytes]:
    form = format_for_spark(defaults=context.value_defaults)
    found: list[bytes] = []
    for batch in batches:
        for some, piece in taken(batch, lambda one: form.pack(one.values, one.value_schema), context.give_up):
            rows, stream = Rows(), io.BytesIO()
            rows.add(piece, form.shape(piece), len(some))
            rows.write(stream)
            found.append(stream.getvalue())
    return found


SINKS: dict[str, Write] = {
    "parquet": _files("parquet"), "csv": _files("csv"), "json": _files("json"), "text": _files("text"),
    "file stream": _stream, "http": _http, "spark": _spark,
}  # fmt: skip
OF_JSON = ("json", "text", "file stream", "http")


def read_json(data: list[bytes]) -> list[Any]:
    return [json.loads(line, parse_float=Decimal) for one in data for line in one.splitlines()]


def read_parquet(data: list[bytes]) -> list[Any]:
    tables = [_parquet.read_table(io.BytesIO(one)) for one in data]
    return [row for table in tables for row in _plain_rows(table)]


def _plain_rows(table: Any) -> list[Any]:
    """Rows with dates as the numbers that they are: Python's own dates end with the year 9999."""
    columns = {name: [_number(value) for value in table.column(name)] for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _number(scalar: Any) -> Any:
    kind = scalar.type
    if pa.types.is_temporal(kind):
        return scalar.value
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        return [(_number(entry["key"]), _number(entry["value"])) for entry in scalar.values]
    if pa.types.is_list(kind):
        return [_number(item) for item in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _number(scalar[name]) for name in scalar}
    return scalar.as_py()


def as_json(value: Any, schema: Schema | None) -> Any:
    """What a reader of JSON is to get."""
    if value is None:
        return None if schema is None or schema.default is None else as_json(schema.default, schema)
    name = None if schema is None else schema.name or ""
    if isinstance(value, JavaDate):
        return int(value) // DAY_MS if name is not None and name.endswith(".Date") else int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]
        is_single = isinstance(value, Float32) or (schema is not None and schema.type == "FLOAT32")
        return Decimal("0.1") if is_single else Decimal(repr(value))
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        pairs = zip(value.schema.fields, value.values, strict=True)
        return {field.name: as_json(item, field.schema) for field, item in pairs}
    key_schema, value_schema = Schema.inner(schema)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        if key_schema is not None and key_schema.type != "STRING":
            return [[as_json(key, key_schema), as_json(item, value_schema)] for key, item in members.items()]
        return {str(key): as_json(item, value_schema) for key, item in members.items()}
    if isinstance(value, list):
        return [as_json(item, value_schema) for item in cast("list[Any]", value)]
    return value


@pytest.mark.parametrize("sink", OF_JSON)
@pytest.mark.parametrize("sample", [*WITH_SCHEMA, *SCHEMALESS], ids=str)
def test_json_has_the_value(sink: str, sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    refused = Refused()
    (row,) = read_json(SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused)))
    assert refused.errors == []
    assert row == {"id": 1, FIELD: as_json(sample.value, sample.schema)}


def as_arrow(value: Any, schema: Schema) -> Any:
    """What a reader of Parquet is to get, dates as numbers."""
    value = schema.default if value is None else value
    if value is None:
        return None
    _, value_schema = Schema.inner(schema)
    if isinstance(value, JavaDate):
        return int(value) // DAY_MS if cast("str", schema.name).endswith(".Date") else int(value)
    if isinstance(value, Struct):
        pairs = zip(value.schema.fields, value.values, strict=True)
        return {field.name: as_arrow(item, field.schema) for field, item in pairs}
    if isinstance(value, dict):
        assert value_schema is not None
        return [(key, as_arrow(item, value_schema)) for key, item in cast("dict[Any, Any]", value).items()]
    if isinstance(value, list):
        assert value_schema is not None
        return [as_arrow(item, value_schema) for item in cast("list[Any]", value)]
    return value


def _equal(read: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return isinstance(read, float) and (read == wanted or (math.isnan(read) and math.isnan(wanted)))
    if isinstance(wanted, list):
        items = cast("list[Any]", wanted)
        return len(read) == len(items) and all(map(_equal, read, items))
    return type(read) is type(wanted) and read == wanted


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
    assert _equal(found[0][FIELD], as_arrow(sample.value, sample.schema)), found


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
    (data,) = _files("parquet")(tmp_path / "out", [batch_of([value], schema)], context_of(None))
    assert _parquet.read_schema(io.BytesIO(data)).field(FIELD).type.equals(kind)


@pytest.mark.parametrize("sample", [*WITH_SCHEMA, *SCHEMALESS], ids=str)
def test_csv_has_the_value(sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    (data,) = _files("csv")(tmp_path / "out", [batch_of([value], schema)], context_of(None))
    header, row = csv.reader(io.StringIO(data.decode(), newline=""))
    cell = dict(zip(header, row, strict=True)).get(FIELD, "")
    wanted = as_json(sample.value, sample.schema)
    if wanted is None:
        assert cell == ""
    elif isinstance(wanted, bool):
        assert cell == str(wanted).lower()
    elif isinstance(wanted, int | Decimal):
        assert Decimal(cell) == wanted
    elif isinstance(wanted, str):
        assert cell == wanted
    else:
        assert json.loads(cell, parse_float=Decimal) == wanted


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("sample", UNFIT, ids=str)
def test_a_value_that_does_not_fit_is_refused_and_no_other(sink: str, sample: Sample, tmp_path: Path) -> None:
    """JsonSchemaConverter gives a record without a field that is required; any transformation may do likewise."""
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
    read = read_json if sink in OF_JSON else read_parquet if sink != "csv" else _read_csv
    assert [int(row["id"]) for row in read(found)] == [0, 2]
    with pytest.raises(RecordError, match=r"TASK_PUT.*topic 't', partition 0, offset 11"):
        SINKS[sink](tmp_path / "fails", [batch], context_of(None))


def _type(sample: Sample) -> str:
    assert sample.schema is not None
    return sample.schema.type


def _read_csv(data: list[bytes]) -> list[Any]:
    return [row for one in data for row in csv.DictReader(io.StringIO(one.decode()))]


@pytest.mark.parametrize("sink", ["parquet", "spark"])
def test_a_decimal_that_no_type_holds_is_refused(sink: str, tmp_path: Path) -> None:
    (large,) = [one for one in WITH_SCHEMA if one.name == TOO_LARGE]
    value, schema = in_struct(large)
    refused = Refused()
    assert SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused)) == []
    assert refused.offsets == [0]
    assert "digits" in str(refused.errors[0])


@pytest.mark.parametrize("sink", [one for one in SINKS if one != "http"])
@pytest.mark.parametrize("sample", [one for one in WITH_SCHEMA if "default" in one.name and one.schema], ids=str)
def test_nulls_stay_nulls_where_defaults_are_off(sink: str, sample: Sample, tmp_path: Path) -> None:
    value, schema = in_struct(sample)
    refused = Refused()
    found = SINKS[sink](tmp_path / "out", [batch_of([value], schema)], context_of(refused, defaults=False))
    if sample.name == "null with a default, required":
        assert refused.offsets == [0]
        return
    read = read_json if sink in OF_JSON else read_parquet if sink != "csv" else _read_csv
    (row,) = read(found)
    text = json.dumps(row[FIELD], default=str)
    assert "null" in text or row[FIELD] == ""
    assert "UNKNOWN" not in text


def test_a_connector_says_whether_nulls_are_defaults() -> None:
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


def test_a_schema_that_changes_and_changes_back_has_a_file_each(tmp_path: Path) -> None:
    batches = [
        batch_of([None], None, 0),
        batch_of([Struct(FIRST, [1, "a"])], FIRST, 1),
        batch_of([Struct(NEXT, [2, None])], NEXT, 2),
        batch_of([Struct(FIRST, [3, "b"])], FIRST, 3),
        batch_of([None], None, 4),
    ]
    found = _files("parquet")(tmp_path / "out", batches, context_of(None))
    assert [_parquet.read_table(io.BytesIO(one)).to_pylist() for one in found] == [
        [{"id": None, "name": None}, {"id": 1, "name": "a"}, {"id": 3, "name": "b"}, {"id": None, "name": None}],
        [{"id": 2, "extra": None}],
    ]
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names == ["t+0+0000000000+0000000004.parquet", "t+0+0000000002+0000000002.parquet"]
    (lines,) = _files("csv")(tmp_path / "csv", batches, context_of(None))
    assert lines == b'"id","name","extra"\n,,\n1,"a",\n2,,\n3,"b",\n,,\n'


def test_one_large_decimal_does_not_change_the_type_of_the_others(tmp_path: Path) -> None:
    by_name = {one.name: one for one in WITH_SCHEMA}
    small, large = by_name["Decimal"], by_name["Decimal of 60 digits"]
    batches = [batch_of([in_struct(one)[0]], in_struct(one)[1], at) for at, one in enumerate([small, large, small])]
    found = _files("parquet")(tmp_path / "out", batches, context_of(None))
    tables = [_parquet.read_table(io.BytesIO(one)) for one in found]
    assert [(table.schema.field(FIELD).type, table.num_rows) for table in tables] == [
        (pa.decimal128(38, 2), 2), (pa.decimal256(76, 2), 1),
    ]  # fmt: skip


def test_a_struct_without_fields_is_refused_by_parquet(tmp_path: Path) -> None:
    empty = Schema("STRUCT", name="Empty")
    schema = Schema("STRUCT", fields=[("id", INT32), ("e", empty)])
    refused = Refused()
    batch = batch_of([Struct(schema, [1, Struct(empty, [])])], schema)
    assert _files("parquet")(tmp_path / "out", [batch], context_of(refused)) == []
    assert "field e: a struct without fields" in str(refused.errors[0])


def test_values_without_a_schema_keep_their_digits_in_columns(tmp_path: Path) -> None:
    rows = [
        {
            "price": Decimal("123456789012345678.90"),
            "rate": Float32(float32(0.1)),
            "n": BigInteger(2**70),
            "x": math.nan,
        },
        {"price": Decimal("0.001"), "rate": None, "n": BigInteger(1), "x": 1.5},
    ]
    (data,) = _files("parquet")(tmp_path / "out", [batch_of(rows, None)], context_of(None))
    table = _parquet.read_table(io.BytesIO(data))
    assert table.schema.types == [pa.decimal128(38, 3), pa.float32(), pa.string(), pa.float64()]
    assert table.column("price").to_pylist() == [Decimal("123456789012345678.900"), Decimal("0.001")]
    assert table.column("n").to_pylist() == [str(2**70), "1"]
    (text,) = _files("csv")(tmp_path / "csv", [batch_of(rows, None)], context_of(None))
    assert text == (f'"price","rate","n","x"\n123456789012345678.900,0.1,"{2**70}",NaN\n0.001,,"1",1.5\n'.encode())


def test_a_refused_record_is_found_by_halves() -> None:
    """The cost of a bad record is the logarithm of its batch."""
    tries = 0

    def convert(batch: SinkBatch) -> int:
        nonlocal tries
        tries += 1
        if 700 in batch.values:
            raise DataError("700")
        return len(batch)

    refused = Refused()
    parts = taken(batch_of(range(1_000), None), convert, refused.report)
    assert sum(made for _, made in parts) == 999
    assert [offset for part, _ in parts for offset in part.offsets] == [at for at in range(1_000) if at != 700]
    assert (refused.offsets, tries <= 25) == ([700], True)
