"""Line formats: one record per line, as JSON or as text.

Owns the files. The content of a line: `values.payloads` and `values.lines`.

Invariant: one line for each record; a tombstone's line is `null`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from herdmesh.connectors.files.formats.compression import compressed
from herdmesh.sdk import Schema

Write = Callable[[Sequence[Any], Schema | None], bytes]


class LinesFormat:
    """Line format, with bytes as pieces."""

    def __init__(self, suffix: str, write: Write, compression: str) -> None:
        """`write`: converts values to lines; raises DataError."""
        self._write = write
        self._compression = compression
        self.suffix = f"{suffix}.gz" if compression == "gzip" else suffix

    def pack(self, values: Sequence[Any], schema: Schema | None) -> bytes:
        return self._write(values, schema)

    def shape(self, piece: bytes) -> Any:
        return None

    def size_bytes(self, piece: bytes) -> int:
        return len(piece)

    def write(self, stream: Any, pieces: Sequence[bytes], row_counts: Sequence[int]) -> None:
        with compressed(stream, self._compression) as out:
            for piece in pieces:
                out.write(piece)
