"""File formats of `FileSink`, one module each.

Owns the protocol and the names. A format converts each batch to a piece on arrival, in one pass over its records, and
writes many pieces to one file at staging.

    parquet    columns, types by the schema           zstd (default), snappy, gzip, none
    csv        columns, one line a record              none (default), gzip
    json       one JSON value a line                   none (default), gzip
    text       one line a record, texts as they are    none (default), gzip

Invariant: a file has exactly the records of its pieces, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from herdmesh.sdk import Schema


class Format(Protocol):
    """Conversion of records to a file. The type of a piece is private to the format."""

    @property
    def suffix(self) -> str:
        """Return the suffix of file names."""
        ...

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Any:
        """Convert the values of a batch, at least one, to a piece. Raises DataError if a value cannot be written."""
        ...

    def shape(self, piece: Any) -> Any:
        """Return the property that all pieces of one file share, compared by ==; None = the piece fits any file."""
        ...

    def size_bytes(self, piece: Any) -> int:
        """Return the approximate memory size of the piece."""
        ...

    def write(self, stream: Any, pieces: Sequence[Any], row_counts: Sequence[int]) -> None:
        """Write all pieces to a binary stream, which stays open."""
        ...


COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
    "text": ("none", "gzip"),
}
"""The formats' names, and their compressions, the default first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of a format in a config."""

    name: str
    compression: str | None = None
    """None = the format's default."""
    numeric: bool = True
    """Write decimals in JSON as numbers instead of Base64."""
    defaults: bool = True
    """Write a null as the default of its schema, if there is one."""


def format_of(wanted: Wanted) -> Format:
    """Return the format for these settings."""
    name, compression = wanted.name, wanted.compression or COMPRESSIONS[wanted.name][0]
    # Import only the configured format: line formats need no Arrow.
    if name == "parquet":
        from herdmesh.connectors.files.formats.parquet import ParquetFormat

        return ParquetFormat(compression, defaults=wanted.defaults)
    if name == "csv":
        from herdmesh.connectors.files.formats.csv import CsvFormat

        return CsvFormat(compression, defaults=wanted.defaults)
    from herdmesh.connectors.files.formats.lines import LinesFormat
    from herdmesh.connectors.values import lines_of, payloads

    writer = payloads(numeric=wanted.numeric, defaults=wanted.defaults)
    if name == "json":
        return LinesFormat(".json", writer.lines, compression)
    return LinesFormat(".txt", lambda values, schema: lines_of(values, schema, writer), compression)
