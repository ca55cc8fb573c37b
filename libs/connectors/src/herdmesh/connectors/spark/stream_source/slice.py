"""One slice of a stream: the rows between two positions, as Spark has staged them, in parts.

Owns the staging folder of a slice, and converting rows to Connect's values. Filling it: `reader`.

Invariant: one part at a time is in memory; the order of rows
is that of Spark's partitions, and within each the source's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow
import pyarrow.compute
import pyarrow.parquet

pa: Any = pyarrow
pq: Any = pyarrow.parquet
_compute: Any = pyarrow.compute
_PIECE_ROWS: Final = 5_000
_TOPIC, _PARTITION, _OFFSET = "topic", "partition", "offset"


class Slice:
    """One slice, read once, in order."""

    def __init__(self, folder: Path, rows: Path) -> None:
        """`folder`: removed by `close`. `rows`: where Spark wrote the rows."""
        self._folder = folder
        self._pieces = _pieces(sorted(rows.glob("part-*.parquet")))
        self._piece: Any = next(self._pieces, None)

    @property
    def is_read(self) -> bool:
        """True when there are no more rows."""
        return self._piece is None

    def take(self, rows_max: int) -> Any:
        """Return the next rows as a RecordBatch; there must be some."""
        piece = self._piece
        if piece.num_rows > rows_max:
            self._piece = piece.slice(rows_max)
            return piece.slice(0, rows_max)
        self._piece = next(self._pieces, None)
        return piece

    def skip(self, rows: int) -> int:
        """Skip rows; returns the number of rows skipped, smaller than `rows` at the end."""
        left = rows
        while left and not self.is_read:
            left -= self.take(left).num_rows
        return rows - left

    def close(self) -> None:
        """Remove the slice. Does nothing if it is removed."""
        self._pieces, self._piece = iter(()), None
        shutil.rmtree(self._folder, ignore_errors=True)


def readable(rows: Any) -> Any:
    """Convert a RecordBatch for `arrow_source_batch`: fractions of a millisecond are cut off, as in Java."""
    arrays = [
        _compute.floor_temporal(array, unit="millisecond") if pa.types.is_timestamp(array.type) else array
        for array in rows.columns
    ]
    return pa.record_batch(arrays, names=rows.schema.names)


def behind_records(position: str, rows: Any) -> str:
    """Return the position after rows of Kafka's, which contain their
    offsets, so that compaction before or after this read changes nothing.
    """
    found: dict[str, dict[str, int]] = msgspec.json.decode(position, type=dict[str, dict[str, int]])
    columns = [rows.column(rows.schema.get_field_index(name)).to_pylist() for name in (_TOPIC, _PARTITION, _OFFSET)]
    for topic, partition, offset in zip(*columns, strict=True):
        found.setdefault(topic, {})[str(partition)] = offset + 1
    return json_of(found)


def json_of(position: Mapping[str, Any]) -> str:
    """Return a position as text, equal for equal positions."""
    return msgspec.json.encode(position, order="sorted").decode()


def _pieces(files: list[Path]) -> Iterator[Any]:
    for path in files:
        with pq.ParquetFile(path) as file:
            yield from (piece for piece in file.iter_batches(_PIECE_ROWS) if piece.num_rows)
