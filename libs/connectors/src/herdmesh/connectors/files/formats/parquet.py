"""Parquet format: columns typed by the records' schema, or, without a schema, by the values (`values.columns`).

Owns the file's content. Records of two schemas are written to two files, as by Confluent's connectors with
`schema.compatibility=NONE`; so are decimals with more than 38 digits. Records without a schema share a file, and its
types are widened until they fit all of them.

Invariant: a column has the type that docs/reference/values.md lists, and a tombstone is a row of nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, cast

import pyarrow
import pyarrow.parquet

from herdmesh.connectors.files.formats.pieces import FOUND, Nulls, nulls_of
from herdmesh.connectors.values.columns import Chunk, chunk_of, table_of
from herdmesh.sdk import DataError, Schema
from herdmesh.sdk.arrow.writing import DECIMAL_DIGITS_MAX, arrow_writer

_pa: Any = pyarrow
_parquet: Any = pyarrow.parquet


class ParquetFormat:
    """Parquet format, with columns as pieces: a RecordBatch with a schema, a Chunk without."""

    suffix = ".parquet"

    def __init__(self, compression: str, *, defaults: bool = True, digits_max: int = DECIMAL_DIGITS_MAX) -> None:
        """`digits_max`: maximum number of digits of decimals, 38 or 76."""
        self._compression = compression
        self._writer = partial(arrow_writer, defaults=defaults, digits_max=digits_max)

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Any:
        if (nulls := nulls_of(values, schema)) is not None:
            return nulls
        if schema is None:
            return chunk_of(values)
        rows: Any = self._writer(schema).rows(values)
        _check(rows.schema)
        return rows

    def shape(self, piece: Any) -> Any:
        if isinstance(piece, Nulls):
            return None
        return FOUND if isinstance(piece, dict) else piece.schema

    def size_bytes(self, piece: Any) -> int:
        return sum(column.nbytes for column in cast("Chunk", piece).values()) if type(piece) is dict else piece.nbytes

    def write(self, stream: Any, pieces: Sequence[Any], row_counts: Sequence[int]) -> None:
        _parquet.write_table(joined(pieces, row_counts), stream, compression=self._compression)


def joined(pieces: Sequence[Any], row_counts: Sequence[int]) -> Any:
    """Return one Arrow table of pieces with equal shapes."""
    schema = next((piece.schema for piece in pieces if isinstance(piece, _pa.RecordBatch)), None)
    if schema is None:
        chunks: list[Chunk] = [{} if isinstance(piece, Nulls) else piece for piece in pieces]
        return table_of(chunks, row_counts)
    rows = [
        _pa.record_batch([_pa.nulls(piece.count, kind) for kind in schema.types], schema=schema)
        if isinstance(piece, Nulls)
        else piece
        for piece in pieces
    ]
    return _pa.Table.from_batches(rows, schema)


@lru_cache(maxsize=1_000)
def _check(schema: Any) -> None:
    """Raise DataError for types that exist in Arrow and not in Parquet."""
    for field in schema:
        _check_type(field.type, field.name)


def _check_type(kind: Any, where: str) -> None:
    if _pa.types.is_struct(kind) and not kind.num_fields:
        raise DataError(
            f"field {where}: Parquet cannot represent a struct without fields; drop the field (ReplaceField)"
        )
    for at in range(kind.num_fields):
        inner = kind.field(at)
        _check_type(inner.type, f"{where}.{inner.name}")
