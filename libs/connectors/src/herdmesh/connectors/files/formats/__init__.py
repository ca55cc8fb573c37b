"""File formats of `FileSink`, one module each.

Owns the protocol and the names. A format turns a batch into a piece when it comes, at the cost of one pass over its
records, and many pieces into one file when they are staged.

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
    """How records become a file. A piece is the format's own."""

    @property
    def suffix(self) -> str:
        """What the files' names end with."""
        ...

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Any:
        """The values of a batch, at least one, as a piece. Raises DataError when one of them cannot be written."""
        ...

    def shape(self, piece: Any) -> Any:
        """What pieces of one file have in common, compared by ==; None = the piece goes into any file."""
        ...

    def size_bytes(self, piece: Any) -> int:
        """What the piece takes in memory, roughly."""
        ...

    def write(self, stream: Any, pieces: Sequence[Any], row_counts: Sequence[int]) -> None:
        """All pieces into a binary stream, which stays open."""
        ...


COMPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
    "text": ("none", "gzip"),
}
"""The formats' names, and what each can be compressed with, its default first."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a configuration asks of a format."""

    name: str
    compression: str | None = None
    """None = its default."""
    numeric: bool = True
    """Decimals in JSON are numbers, not Base64."""
    defaults: bool = True
    """Nulls under a schema with a default are that default."""


def format_of(wanted: Wanted) -> Format:
    """The format."""
    name, compression = wanted.name, wanted.compression or COMPRESSIONS[wanted.name][0]
    # Only what is used is imported: lines need no Arrow.
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
