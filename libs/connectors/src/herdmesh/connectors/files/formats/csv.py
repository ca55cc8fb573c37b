"""CSV format: a header, then one line per record; the order of
columns is the order in which fields first appear in the file.

Owns the file's content; the cells: `values.cells` with a schema, `values.columns` without. Texts are quoted, so that
an empty text (`""`) differs from null (nothing); bytes are Base64, nested objects and arrays JSON.

Invariant: a reader that respects quotes gets every text back, and every number with all its digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.csv

from herdmesh.connectors.files.formats.compression import compressed
from herdmesh.connectors.values.cells import cell_writer
from herdmesh.connectors.values.columns import Chunk, chunk_of, table_of, text_of
from herdmesh.sdk import Schema

_pa: Any = pyarrow
_compute: Any = pyarrow.compute
_csv: Any = pyarrow.csv
_FLOATS = (_pa.float32(), _pa.float64())


class CsvFormat:
    """CSV format, with Arrow columns as pieces."""

    def __init__(self, compression: str, *, defaults: bool = True) -> None:
        self._compression = compression
        self._defaults = defaults
        self.suffix = ".csv.gz" if compression == "gzip" else ".csv"

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Chunk:
        if schema is None:
            return chunk_of(values)
        return cell_writer(schema, defaults=self._defaults).columns(values)

    def shape(self, piece: Chunk) -> Any:
        return None

    def size_bytes(self, piece: Chunk) -> int:
        return sum(column.nbytes for column in piece.values())

    def write(self, stream: Any, pieces: Sequence[Chunk], row_counts: Sequence[int]) -> None:
        table: Any = table_of(pieces, row_counts, _number_texts)
        with compressed(stream, self._compression) as out:
            if all(map(_is_as_arrow_writes, table.columns)):
                _csv.write_csv(table, out, _csv.WriteOptions(include_header=True, quoting_style="needed"))
                return
            header = ",".join(_quoted_text(name) for name in table.column_names)
            out.write(f"{header}\n".encode())
            for rows in table.to_batches():
                out.write(_lines(rows))


def _is_as_arrow_writes(column: Any) -> bool:
    """Check whether Arrow's writer, which is faster, writes such a column the same way."""
    kind = column.type
    if kind in _FLOATS:
        return _is_finite(column)
    return kind not in (_pa.large_string(), _pa.binary())


def _is_finite(floats: Any) -> bool:
    return floats.null_count == len(floats) or _compute.all(_compute.is_finite(floats)).as_py()


def _lines(rows: Any) -> bytes:
    """Return the rows as CSV, each with a line feed."""
    cells = [_cells(column) for column in rows.columns]
    lines = _compute.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="")
    ended = _compute.binary_join_element_wise(lines, "", "\n")
    return ended.buffers()[2].to_pybytes()


def _cells(column: Any) -> Any:
    """Return a column as texts, quoted where needed; null = nothing."""
    kind = column.type
    if kind == _pa.large_string():
        return column.cast(_pa.string())
    if kind == _pa.binary():
        column = _pa.array([None if value is None else text_of(value) for value in column.to_pylist()], _pa.string())
    if column.type == _pa.string():
        doubled = _compute.replace_substring(column, '"', '""')
        return _compute.binary_join_element_wise('"', doubled, '"', "")
    if kind in _FLOATS:
        return _floats(column)
    return column.cast(_pa.string())


def _number_texts(column: Any) -> Any:
    """Return numbers as cells, each with the digits of its own type: 0.1 of a FLOAT32 stays 0.1 beside doubles."""
    return (_floats(column) if column.type in _FLOATS else column.cast(_pa.string())).cast(_pa.large_string())


def _floats(column: Any) -> Any:
    """Return floats as texts; NaN and the infinities have their names in Java."""
    texts = column.cast(_pa.string())
    if _is_finite(column):
        return texts
    for name, written in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = _compute.if_else(_compute.equal(texts, name), written, texts)
    return texts


def _quoted_text(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
