"""StringConverter: text as UTF-8; any other value as Java prints it.

Owns the encoding. Printing: `model.java_values`.

Invariant: reading never fails; malformed bytes become U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.errors import SerializationError
from herdmesh.connect.model import OPTIONAL_STRING, PackedTexts, Schema, UnreadTexts, java_text, utf8_text

# Java's UTF-16 writes a big-endian mark and reads big-endian when there is none; Python's depends on the machine.
_MARKED_UTF16 = "utf-16"
_MARK_BIG, _MARK_LITTLE = b"\xfe\xff", b"\xff\xfe"
_WIDE = ("utf-16", "utf-32")
_HALVES = re.compile("[\ud800-\udfff]")


class StringConverter(Converter):
    """`org.apache.kafka.connect.storage.StringConverter` (docs/reference/connect/transforms-converters.md, section
    5)."""

    java_class = "org.apache.kafka.connect.storage.StringConverter"
    config_def = definitions.STRING_CONVERTER
    read_schema = OPTIONAL_STRING

    def _set_up(self, settings: dict[str, Any]) -> None:
        name = settings["converter.encoding"]
        try:
            # Some of Python's codecs are no text encodings, such as base64, or cannot replace, such as idna.
            b"a\xff".decode(name, "replace").encode(name, "replace")
            self._encoding = codecs.lookup(name).name
        except (LookupError, ValueError) as error:
            raise SerializationError(f"Unsupported encoding {name}") from error

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        return OPTIONAL_STRING, None if data is None else self._text(data)

    def _text(self, data: bytes) -> str:
        if self._encoding == _MARKED_UTF16:
            if data.startswith(_MARK_LITTLE):
                return data[2:].decode("utf-16-le", "replace")
            return data.removeprefix(_MARK_BIG).decode("utf-16-be", "replace")
        return utf8_text(data) if self._encoding == "utf-8" else data.decode(self._encoding, "replace")

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, Sequence[Any]]:
        if self._encoding == "utf-8":
            try:
                return OPTIONAL_STRING, _texts(data)
            except UnicodeDecodeError:
                pass  # one of the records is malformed: each is decoded alone, with Java's replacements
        return super().read_many(data)

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if value is None:
            return None
        text = value if type(value) is str else java_text(value, schema)
        if self._encoding.startswith(_WIDE):
            # These encodings can represent U+FFFD, which Java writes for half a surrogate pair.
            text = _HALVES.sub("\ufffd", text)
        if self._encoding == _MARKED_UTF16:
            return _MARK_BIG + text.encode("utf-16-be") if text else b""
        return text.encode(self._encoding, "replace")

    def unread(
        self, data: Sequence[bytes | None], read: Callable[[Sequence[bytes | None]], list[Any]]
    ) -> Sequence[Any]:
        return UnreadTexts(data, read) if self._encoding == "utf-8" else super().unread(data, read)

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> Sequence[bytes | None]:
        if self._encoding == "utf-8":
            if isinstance(values, PackedTexts):
                return values.utf8
            try:
                return list(map(str.encode, values))
            except (TypeError, UnicodeEncodeError):
                pass  # one of the values is no text, or has a lone surrogate: each is encoded alone
        return super().write_many(values, schema)


def _texts(data: Sequence[bytes | None]) -> list[str | None]:
    """Decode all texts at once where no text contains a NUL and none is null. Raises UnicodeDecodeError."""
    try:
        made: list[str | None] = [*str(b"\0".join(cast("Sequence[bytes]", data)), "utf-8").split("\0")]
    except TypeError:
        made = []
    return made if len(made) == len(data) else [None if item is None else str(item, "utf-8") for item in data]
