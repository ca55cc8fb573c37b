"""Records to the Parquet files that Spark reads.

Owns the types: of structs those of their schema, of all else those found in the data (`columns`).

Invariant: what is written, Spark reads; a Time, which it does not, is the milliseconds of the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from herdmesh.connect.connector import SinkBatch
from herdmesh.connect.schemas import Schema
from herdmesh.sdk.arrow import to_arrow
from herdmesh.worker.connectors.columns import chunk_of, table_of
from herdmesh.worker.connectors.payloads import needs_writing, plain_of

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements."""
_parquet: Any = pyarrow.parquet


class Rows:
    """Records that will be one file, in order, all of one schema if they are structs."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._pieces: list[Any] = []
        self._counts: list[int] = []

    @staticmethod
    def shape_of(batch: SinkBatch) -> Schema | None:
        """The schema of structs; None for what has no schema, or is no struct."""
        schema = batch.value_schema
        return schema if schema is not None and schema.type == "STRUCT" else None

    def takes(self, batch: SinkBatch) -> bool:
        """Whether they may be in one file."""
        return self.shape_of(batch) is self._schema

    def add(self, batch: SinkBatch) -> int:
        """Take the batch, of which `takes` was true; the bytes it has now. Raises DataError."""
        if self._schema is not None:
            piece = to_arrow(batch)
            size_bytes = piece.nbytes
        else:
            values: Sequence[Any] = batch.values
            if needs_writing(batch.value_schema):
                values = plain_of(values, batch.value_schema)
            piece = chunk_of(values)
            size_bytes = sum(column.nbytes for column in piece.values())
        self._pieces.append(piece)
        self._counts.append(len(batch))
        return size_bytes

    def write(self, stream: Any) -> None:
        """All of them, as Parquet."""
        if self._schema is None:
            table: Any = table_of(self._pieces, self._counts)
        else:
            table = pa.Table.from_batches(self._pieces)
        schema = pa.schema([pa.field(one.name, _readable(one.type), one.nullable) for one in table.schema])
        if schema != table.schema:
            table = table.cast(schema)
        _parquet.write_table(table, stream, compression="zstd")


def _readable(kind: Any) -> Any:
    """The type, with what Spark reads for what it does not."""
    types = pa.types
    if types.is_time32(kind):
        return pa.int32()
    if types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_readable(kind.key_type), _readable(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(one.name, _readable(one.type), one.nullable) for one in kind])
    return kind
