"""Lines of text from values: texts and bytes unchanged, all else as JSON.

Owns the choice. The JSON: `payloads`. Invariant: one line for each value, apart from line ends in texts and bytes
themselves; a tombstone's is `null`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from herdmesh.connect.model import LOGICAL, UnreadTexts
from herdmesh.connectors.values.payloads import Payloads
from herdmesh.sdk import Schema

_TEXT = frozenset((str,))
_AS_THEY_ARE = frozenset((str, bytes, bytearray, memoryview))


def is_text(schema: Schema | None) -> bool:
    """Return whether values with this schema are plain texts or bytes; the schema's name does not matter."""
    return schema is not None and schema.type in ("STRING", "BYTES") and schema.name not in LOGICAL


def lines_of(values: Sequence[Any], schema: Schema | None, writer: Payloads) -> bytes:
    """Return one line for each value. Raises DataError for a value that does not fit its schema."""
    if schema is not None:
        if not is_text(schema):
            return writer.lines(values, schema)
        values = writer.with_defaults(values, schema)
    if (joined := _as_read(values)) is not None:
        return joined
    if _AS_THEY_ARE.isdisjoint(map(type, values)):
        return writer.lines(values, schema)
    if schema is None or schema.type == "STRING":
        try:
            return "\n".join([*values, ""]).encode("utf-8", "replace")  # a lone surrogate has no UTF-8
        except TypeError:  # some values are no texts
            pass
    return b"".join([text_of(value, schema, writer) + b"\n" for value in values])


def texts_of(values: Sequence[Any], schema: Schema | None, writer: Payloads) -> list[bytes]:
    """Return `text_of` of each value; a null in a column of texts or bytes is `null`."""
    if schema is not None and not is_text(schema):
        return writer.texts(values, schema)
    kinds = set(map(type, values))
    if schema is None and kinds.isdisjoint(_AS_THEY_ARE):
        return writer.texts(values, None)
    if _TEXT.issuperset(kinds) and (schema is None or schema.type == "STRING"):
        return [value.encode("utf-8", "replace") for value in values]
    return [b"null" if value is None else text_of(value, schema, writer) for value in values]


def text_of(value: Any, schema: Schema | None, writer: Payloads) -> bytes:
    """Return one value: a text or bytes unchanged, all else as JSON. Raises like `lines_of`."""
    fits = schema is None or schema.type == ("STRING" if isinstance(value, str) else "BYTES")
    if isinstance(value, str) and fits:
        return value.encode("utf-8", "replace")
    if isinstance(value, bytes | bytearray | memoryview) and fits:
        return bytes(cast("bytes", value))
    return writer.texts((cast("Any", value),), schema)[0]


def _as_read(values: Sequence[Any]) -> bytes | None:
    """Return the lines of texts from Kafka's bytes; None if the texts must be decoded."""
    return values.joined(b"\n") if isinstance(values, UnreadTexts) else None
