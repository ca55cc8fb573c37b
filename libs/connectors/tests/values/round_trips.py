"""Round trip of values through every sink that writes files
or requests, and the comparison with the originals.

Owns the sinks, each driven without a broker, the readers, and the comparisons. Owns no test.

Invariant: a comparison uses plain Python, never the code of the sinks.
"""

from __future__ import annotations

import base64
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

from herdmesh.connect.java.number_reading import float32
from herdmesh.connect.model.data import Float32, JavaDate, Struct
from herdmesh.connect.model.schemas import DATE, Schema
from herdmesh.connect.spi.connector import SinkBatch, SinkTask, StagingSinkTask, TaskContext
from herdmesh.connectors.file_stream.sink.task import FileStreamSinkTask
from herdmesh.connectors.files.task import FileSinkTask
from herdmesh.connectors.http.requests import requests_of
from herdmesh.connectors.http.settings import settings_of
from herdmesh.connectors.spark.sink.tables import Rows, format_for_spark
from herdmesh.connectors.values.refusals import convert_batch

DAY_MS = 86_400_000
pa: Any = pyarrow
_parquet: Any = pyarrow.parquet


class Refused:
    """An errant-record reporter that stores offsets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[BaseException] = []

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> Any:
        self.offsets.append(batch.offsets[index])
        self.errors.append(error)

    def flush_dead_letters(self) -> None:
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
"""Puts batches and returns the resulting files, or bodies of requests."""


def files(form: str) -> Write:
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
    made = [one for batch in batches for one in requests_of(batch, settings, context.skip_record)]
    return [request.body(settings) for request in made]


def _spark(folder: Path, batches: Sequence[SinkBatch], context: TaskContext) -> list[bytes]:
    form = format_for_spark(defaults=context.value_defaults)
    found: list[bytes] = []
    for batch in batches:
        for some, piece in convert_batch(
            batch, lambda one: form.pack(one.values, one.value_schema), context.skip_record
        ):
            rows, stream = Rows(), io.BytesIO()
            rows.add(piece, form.shape(piece), len(some))
            rows.write(stream)
            found.append(stream.getvalue())
    return found


SINKS: dict[str, Write] = {
    "parquet": files("parquet"), "csv": files("csv"), "json": files("json"), "text": files("text"),
    "file stream": _stream, "http": _http, "spark": _spark,
}  # fmt: skip
OF_JSON = ("json", "text", "file stream", "http")


def read_json(data: list[bytes]) -> list[Any]:
    return [json.loads(line, parse_float=Decimal) for one in data for line in one.splitlines()]


def read_parquet(data: list[bytes]) -> list[Any]:
    tables = [_parquet.read_table(io.BytesIO(one)) for one in data]
    return [row for table in tables for row in _plain_rows(table)]


def _plain_rows(table: Any) -> list[Any]:
    """Return rows with dates as their numbers, because Python's dates end with the year 9999."""
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


def read_csv(data: list[bytes]) -> list[Any]:
    """Return rows of texts; a missing value is the empty text."""
    return [row for one in data for row in csv.DictReader(io.StringIO(one.decode(), newline=""))]


def same_json(read: Any, value: Any, schema: Schema | None) -> bool:
    """Return whether JSON, parsed with decimals, equals the value."""
    if value is None:
        return read is None if schema is None or schema.default is None else same_json(read, schema.default, schema)
    key_schema, value_schema = Schema.inner(schema)
    if isinstance(value, JavaDate):
        return read == (int(value) // DAY_MS if schema is not None and schema.name == DATE else int(value))
    if isinstance(value, bool) or isinstance(read, bool):
        return read is value
    if isinstance(value, float):
        is_single = isinstance(value, Float32) or (schema is not None and schema.type == "FLOAT32")
        return _same_float(read, value, is_single=is_single)
    if isinstance(value, bytes):
        return read == base64.b64encode(value).decode()
    if isinstance(value, Struct):
        pairs = zip(value.schema.fields, value.values, strict=True)
        return list(read) == [field.name for field in value.schema.fields] and all(
            same_json(read[field.name], item, field.schema) for field, item in pairs
        )
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        if key_schema is not None and key_schema.type != "STRING":
            return len(read) == len(members) and all(
                same_json(pair[0], key, key_schema) and same_json(pair[1], item, value_schema)
                for pair, (key, item) in zip(read, members.items(), strict=True)
            )
        return list(read) == list(map(str, members)) and all(
            same_json(read[str(key)], item, value_schema) for key, item in members.items()
        )
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return len(read) == len(items) and all(same_json(*pair, value_schema) for pair in zip(read, items, strict=True))
    return read == value


def _same_float(read: Any, value: float, *, is_single: bool) -> bool:
    if not math.isfinite(value):
        return read == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]
    if isinstance(read, str):
        return False
    return (float32(float(read)) if is_single else float(read)) == value


def same_cell(cell: str, value: Any, schema: Schema | None) -> bool:
    """Return whether a CSV cell equals the value."""
    if value is None and schema is not None and schema.default is not None:
        value = schema.default
    if value is None:
        return cell == ""
    if isinstance(value, str):
        return cell == value
    if isinstance(value, bytes):
        return cell == base64.b64encode(value).decode()
    if isinstance(value, bool):
        return cell == str(value).lower()
    if isinstance(value, Decimal):
        return Decimal(cell) == value and "E" not in cell
    if isinstance(value, float) and not math.isfinite(value):
        return same_json(cell, value, schema)
    return same_json(json.loads(cell, parse_float=Decimal), value, schema)


def same_arrow(read: Any, value: Any, schema: Schema) -> bool:
    """Return whether an Arrow value, with dates as numbers, equals the value."""
    value = schema.default if value is None else value
    if value is None or read is None:
        return read is value
    key_schema, value_schema = Schema.inner(schema)
    if isinstance(value, JavaDate):
        return read == (int(value) // DAY_MS if schema.name == DATE else int(value))
    if isinstance(value, float):
        return isinstance(read, float) and (read == value or (math.isnan(read) and math.isnan(value)))
    if isinstance(value, Struct):
        pairs = zip(value.schema.fields, value.values, strict=True)
        return len(read) == len(value.values) and all(
            same_arrow(read[field.name], item, field.schema) for field, item in pairs
        )
    if isinstance(value, dict):
        assert key_schema is not None
        assert value_schema is not None
        members = cast("dict[Any, Any]", value)
        return len(read) == len(members) and all(
            same_arrow(pair[0], key, key_schema) and same_arrow(pair[1], item, value_schema)
            for pair, (key, item) in zip(read, members.items(), strict=True)
        )
    if isinstance(value, list | tuple):
        assert value_schema is not None
        items = cast("list[Any]", value)
        return len(read) == len(items) and all(
            same_arrow(*pair, value_schema) for pair in zip(read, items, strict=True)
        )
    return type(read) is type(value) and read == value
