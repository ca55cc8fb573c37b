"""Lines: a record each, as JSON or as text.

Owns both. JSON is what JsonConverter without schemas writes, any value of which is one line. Text has strings and bytes
as they are, with whatever line ends are in them, and JSON for all else, as `FileStreamSink` writes it.

Invariant: one line for each record; a tombstone's is `null`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from herdmesh.connect import jackson
from herdmesh.connect.schemas import Schema
from herdmesh.worker.connectors import file_stream, payloads
from herdmesh.worker.connectors.files.formats.compression import compressed

_encode_lines = msgspec.json.Encoder().encode_lines


class LinesFormat:
    """Pieces are bytes."""

    takes_rows = False

    def __init__(self, suffix: str, lines: Callable[[Sequence[Any], Schema | None], bytes], compression: str) -> None:
        self._lines = lines
        self._compression = compression
        self.suffix = f"{suffix}.gz" if compression == "gzip" else suffix

    def pack(self, values: Sequence[Any], schema: Schema | None) -> bytes:
        return self._lines(values, schema)

    def size_bytes(self, piece: bytes) -> int:
        return len(piece)

    def write(self, stream: Any, pieces: Sequence[bytes], row_counts: Sequence[int]) -> None:
        with compressed(stream, self._compression) as out:
            for piece in pieces:
                out.write(piece)


def json_lines(values: Sequence[Any], schema: Schema | None) -> bytes:
    """Each value as JSON."""
    if payloads.needs_writing(schema):
        return payloads.lines_of(values, schema)
    try:
        return _encode_lines(values)
    except (OverflowError, UnicodeEncodeError, TypeError):
        # an integer beyond 64 bits, a lone surrogate, a type of Connect's own: one by one
        return b"".join([jackson.dumps(value) + b"\n" for value in values])


def text_lines(values: Sequence[Any], schema: Schema | None) -> bytes:
    """Strings and bytes as they are, all else as JSON."""
    if payloads.needs_writing(schema):
        return payloads.lines_of(values, schema)
    return file_stream.lines_of(values)
