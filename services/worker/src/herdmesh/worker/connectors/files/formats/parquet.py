"""Parquet: columns with the types that the data has (`columns`).

Owns the file's content alone. Invariant: one column per top-level field that has a value in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet

from herdmesh.connect.schemas import Schema
from herdmesh.worker.connectors.columns import Chunk, chunk_of, table_of

_parquet: Any = pyarrow.parquet


class ParquetFormat:
    """Pieces are columns."""

    takes_rows = True
    suffix = ".parquet"

    def __init__(self, compression: str) -> None:
        self._compression = compression

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Chunk:
        return chunk_of(values)

    def size_bytes(self, piece: Chunk) -> int:
        return sum(column.nbytes for column in piece.values())

    def write(self, stream: Any, pieces: Sequence[Chunk], row_counts: Sequence[int]) -> None:
        _parquet.write_table(table_of(pieces, row_counts), stream, compression=self._compression)
