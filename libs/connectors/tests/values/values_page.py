"""Generator of docs/reference/values.md from the sinks' output: `python -m
libs.connectors.tests.values.values_page`.

Owns the page's text. Every cell of its tables is a sink's output for a sample of `tests.support.sample_values`.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet

from herdmesh.connect.model.schemas import Schema
from libs.connectors.tests.postgres.sink_values import AS_JSON, HELD
from libs.connectors.tests.values.round_trips import SINKS, Refused, batch_of, context_of, read_parquet
from tests.support.sample_values import FIELD, SCHEMALESS, UNFIT, WITH_SCHEMA, Sample, in_struct

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "values.md"
_parquet: Any = pyarrow.parquet
_WIDTH = 44


def page() -> str:
    """Return the text of docs/reference/values.md."""
    lines = _HEAD.splitlines()
    for title, samples in (("Under a schema", WITH_SCHEMA), ("Without a schema", SCHEMALESS)):
        lines += ["", f"## {title}", "", "| Value | JSON | CSV | Parquet type | Parquet value |", f"|{'---|' * 5}"]
        lines += [_row(sample) for sample in samples]
    lines += ["", "## In PostgreSQL", "", *_SQL_HEAD.splitlines(), "", "| Value | Column type | Value |"]
    lines += [f"|{'---|' * 3}"]
    lines += [f"| {one} | {kind} | {'null' if held is None else _shown(held)} |" for one, kind, held in _sql_rows()]
    lines += ["", "## What does not fit", "", *_UNFIT_HEAD.splitlines(), "", "| Value | JSON | Parquet |"]
    lines += [f"|{'---|' * 3}"]
    lines += [f"| {sample} | {_shown(_why('json', sample))} | {_shown(_why('parquet', sample))} |" for sample in UNFIT]
    return "\n".join([*lines, ""])


def _sql_rows() -> list[tuple[str, str, str | None]]:
    """Return name, column type and value, as `test_sink_values` finds them on a server."""
    held = {**HELD, **{name: ("json", text) for name, text in AS_JSON.items()}}
    return [(sample.name, *held[sample.name]) for sample in WITH_SCHEMA]


def _row(sample: Sample) -> str:
    json_text = _written("json", sample).decode().rstrip("\n").partition(f'"{FIELD}":')[2][:-1]
    csv_text = _written("csv", sample).decode().partition("\n")[2].rstrip("\n").partition(",")[2]
    data = _written("parquet", sample)
    if not data:
        kind, value = "refused", _why("parquet", sample)
    else:
        schema = _parquet.read_schema(io.BytesIO(data))
        at = schema.get_field_index(FIELD)
        kind = "no column" if at < 0 else str(schema.types[at])
        value = "" if at < 0 else str(read_parquet([data])[0][FIELD])
    return f"| {sample} | {_shown(json_text)} | {_shown(csv_text)} | {kind} | {_shown(value)} |"


def _written(sink: str, sample: Sample) -> bytes:
    """Return the one file; empty if the record was refused."""
    value, schema = in_struct(sample)
    return b"".join(_put(sink, value, schema, Refused()))


def _why(sink: str, sample: Sample) -> str:
    refused = Refused()
    value, schema = in_struct(sample)
    _put(sink, value, schema, refused)
    return str(refused.errors[0])


def _put(sink: str, value: Any, schema: Schema | None, refused: Refused) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return SINKS[sink](Path(folder) / "out", [batch_of([value], schema)], context_of(refused))


def _shown(text: str) -> str:
    """Return a Markdown cell; long ones are shortened in the middle."""
    if not text:
        return ""
    text = text.replace("\n", "\\n").replace("|", "\\|").replace("`", "'")
    if len(text) > 2 * _WIDTH:
        text = f"{text[:_WIDTH]}...{text[-12:]}"
    return f"`{text}`"


_HEAD = """\
# How values are written

The form of each Connect type in the files of [`FileSink`](../connectors/file-sink.md) (and of the S3 and HDFS sinks),
in the lines of `FileStreamSink`, in the requests of [`HttpSink`](../connectors/http-sink.md) and in the Parquet files
that [`SparkSink`](../connectors/spark.md) gives to Spark. The tables are written by these sinks (`python -m
libs.connectors.tests.values.values_page`); a test compares.

- **JSON** is JsonConverter's: `format=json`, and all values except texts and bytes in `format=text`, `FileStreamSink`
  and `HttpSink`. Decimals are numbers with all their digits; Base64 with `json.decimal.format=BASE64`, the default of
  Confluent's classes. Values without a schema that JsonConverter refuses (BigDecimal, Date) are written as with a
  schema.
- **CSV** has texts in quotes, so that an empty text differs from no value, and JSON for nested values.
- **Parquet** has the types of the schema. A Decimal is `decimal128(p, s)`, p from `connect.decimal.precision` of the
  schema, otherwise 38; `decimal256(76, s)` in a separate file if a value has more digits; more than 76 are refused.
  Spark has at most 38 digits, and no times of day: `SparkSink` refuses the former and writes milliseconds for the
  latter. Dates are UTC and proleptic Gregorian, of any year. In the tables dates are the numbers that Parquet holds:
  days, or milliseconds.
- **A schema that changes** starts another Parquet file, as `schema.compatibility=NONE` does in Confluent's; records of
  a schema that returns continue in their file. Tombstones go into any open file. CSV has the columns of all schemas.
- **Null** under a schema with a default is the default, unless the converter has `replace.null.with.default=false`
  (JsonConverter) or `ignore.default.for.nullables=true` (those of a schema registry): then it stays null.
- **Without a schema** a Parquet column has the narrowest type that holds all its values in the file: numbers, booleans,
  decimals, texts, bytes, otherwise JSON text.
- **A value that the format cannot hold** is an error of that record, in stage `TASK_PUT`: `errors.tolerance` and the
  dead letter queue apply, and the other records of its batch are written."""

_SQL_HEAD = """\
The column that [`PostgresSink`](../connectors/postgres-sink.md) creates for each value (`auto.create=true`), and the
value as the server prints it. Values shown as `json` have no column type for `auto.create`: create a column of type
`json`. A test compares with a server."""

_UNFIT_HEAD = """\
A value that does not match its schema (a transformation, or a converter that does not check, may produce one) is
refused by every sink, with the topic, partition and offset of its record:"""

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
