"""What the files of `FileSink` look like inside: one module a format.

Owns the protocol and the names. A format turns a batch into a piece when it comes, which costs what one pass over its
records costs, and many pieces into one file when they are staged.

    parquet    columns, types found in the data       zstd (default), snappy, gzip, none
    csv        columns, one line a record              none (default), gzip
    json       one JSON value a line                   none (default), gzip
    text       one line a record, texts as they are    none (default), gzip

Invariant: a file has exactly the records of its pieces, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from herdmesh.connect.schemas import Schema


class Format(Protocol):
    """How records become a file. A piece is the format's own."""

    @property
    def takes_rows(self) -> bool:
        """True = `pack` wants plain values (`payloads.plain_of`), and no schema."""
        ...

    @property
    def suffix(self) -> str:
        """What the files' names end with."""
        ...

    def pack(self, values: Sequence[Any], schema: Schema | None) -> Any:
        """The values of a batch, one shape, as a piece; at least one. Raises DataError."""
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


def format_named(name: str, compression: str | None) -> Format:
    """The format of one of these names; None = with its default."""
    chosen = compression or COMPRESSIONS[name][0]
    # Only what is used is imported: lines need no Arrow.
    if name == "parquet":
        from herdmesh.worker.connectors.files.formats.parquet import ParquetFormat

        return ParquetFormat(chosen)
    if name == "csv":
        from herdmesh.worker.connectors.files.formats.csv import CsvFormat

        return CsvFormat(chosen)
    from herdmesh.worker.connectors.files.formats.lines import LinesFormat, json_lines, text_lines

    return LinesFormat(".json", json_lines, chosen) if name == "json" else LinesFormat(".txt", text_lines, chosen)
