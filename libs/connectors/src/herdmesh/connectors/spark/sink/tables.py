"""Conversion of records to the Parquet files that Spark reads.

Owns the content of one file: records of one shape (`ParquetFormat.shape`),
in order; and the check for dates that databases cannot hold.

Invariant: Spark reads every file; a Time, which it does not read, is written as the milliseconds of the day, and a
decimal with more digits than Spark's 38 is refused with its record.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from herdmesh.connectors.files.formats.parquet import ParquetFormat, joined
from herdmesh.sdk import DataError

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements."""
_parquet: Any = pyarrow.parquet
_compute: Any = pyarrow.compute
DIGITS_MAX: Final = 38
_YEARS: Final = -719_162, 2_932_897
"""Days since 1970: the first day of year 1, and the one after year 9999."""
_DAY_S: Final = 86_400
_A_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def format_for_spark(*, defaults: bool) -> ParquetFormat:
    """Return the format that converts records to pieces. `defaults`:
    write a null as the default of its schema, if there is one.
    """
    return ParquetFormat("zstd", defaults=defaults, digits_max=DIGITS_MAX)


def refuse_far_years(piece: Any) -> None:
    """Raise DataError for a date or moment outside of the years 1 to 9999, which database drivers write as another
    year: a date BC as the date AD. `piece`: from `ParquetFormat.pack`.
    """
    if isinstance(piece, pa.RecordBatch):
        columns: dict[str, Any] = dict(zip(piece.schema.names, piece.columns, strict=True))
    else:
        columns = cast("dict[str, Any]", piece) if isinstance(piece, dict) else {}
    for name, column in columns.items():
        kind = column.type
        if pa.types.is_timestamp(kind):
            first, end = (bound * _A_SECOND[kind.unit] * _DAY_S for bound in _YEARS)
            numbers = column.cast(pa.int64())
        elif pa.types.is_date32(kind):
            (first, end), numbers = _YEARS, column.cast(pa.int32())
        else:
            continue
        found = _compute.min_max(numbers).as_py()
        if found["min"] is not None and not (first <= found["min"] and found["max"] < end):
            raise DataError(
                f"field {name} has a day outside of the years 1 to 9999, which this database's driver would write as "
                "another year: leave the field out, or convert it to a string"
            )


class Rows:
    """The pieces of one future file."""

    def __init__(self) -> None:
        self._shape: Any = None
        self._pieces: list[Any] = []
        self._counts: list[int] = []

    def takes(self, shape: Any) -> bool:
        """Return whether the file accepts pieces of that shape."""
        return shape is None or self._shape is None or self._shape == shape

    def add(self, piece: Any, shape: Any, count: int) -> None:
        """Add a piece; `takes` must have returned True for its shape."""
        self._shape = self._shape if shape is None else shape
        self._pieces.append(piece)
        self._counts.append(count)

    def write(self, stream: Any) -> None:
        """Write all pieces as Parquet."""
        table: Any = joined(self._pieces, self._counts)
        schema = pa.schema([pa.field(one.name, _readable(one.type), one.nullable) for one in table.schema])
        if schema != table.schema:
            table = table.cast(schema)
        _parquet.write_table(table, stream, compression="zstd")


def _readable(kind: Any) -> Any:
    """Return the type, with types that Spark does not read replaced."""
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
