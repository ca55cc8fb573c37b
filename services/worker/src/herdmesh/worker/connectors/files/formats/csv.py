"""CSV: a header, then a line a record, fields in the order in which the file first has them.

Owns the file's content alone. Texts are quoted, so that an empty one (`""`) is told from none (nothing); bytes are
Base64, nested objects and arrays JSON, as in Parquet.

Invariant: a reader that heeds quotes gets every text back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.csv

from herdmesh.connect.schemas import Schema
from herdmesh.worker.connectors.columns import Chunk, chunk_of, table_of, text_of
from herdmesh.worker.connectors.files.formats.compression import compressed

_pa: Any = pyarrow
_csv: Any = pyarrow.csv


class CsvFormat:
    """Pieces are columns."""

    takes_rows = True

    def __init__(self, compression: str) -> None:
        self._compression = compression
        self.suffix = ".csv.gz" if compression == "gzip" else ".csv"

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Chunk:
        return chunk_of(values)

    def size_bytes(self, piece: Chunk) -> int:
        return sum(column.nbytes for column in piece.values())

    def write(self, stream: Any, pieces: Sequence[Chunk], row_counts: Sequence[int]) -> None:
        table: Any = table_of(pieces, row_counts)
        for place, field in enumerate(table.schema):
            if field.type == _pa.binary():
                texts = [None if value is None else text_of(value) for value in table.column(place).to_pylist()]
                table = table.set_column(place, field.name, _pa.array(texts, _pa.string()))
        with compressed(stream, self._compression) as out:
            _csv.write_csv(table, out, _csv.WriteOptions(include_header=True, quoting_style="needed"))
