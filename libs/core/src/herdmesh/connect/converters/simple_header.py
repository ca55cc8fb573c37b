"""SimpleHeaderConverter: headers as text, with types inferred from the text
(docs/reference/connect/transforms-converters.md, section 6).

Owns the mapping of headers; the text form and its parser are in `values`.

Invariant: reading never fails; a text of no other type is a string.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config import ConfigDef
from herdmesh.connect.converters.base import HeaderConverter
from herdmesh.connect.model import BYTES, Header, utf8_text
from herdmesh.connect.values import parse_text, text_of


class SimpleHeaderConverter(HeaderConverter):
    """`org.apache.kafka.connect.storage.SimpleHeaderConverter`."""

    java_class = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    config_def = ConfigDef()

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def read_header(self, name: str, data: bytes | None) -> Header:
        if data is None:
            return Header(name, None)
        try:
            schema, value = parse_text(utf8_text(data))
        except RecursionError:  # nested too deeply: Connect keeps the bytes where its parser fails
            return Header(name, data, BYTES)
        return Header(name, value, schema)

    def write_header(self, header: Header) -> bytes | None:
        value = header.value
        return None if value is None else text_of(value, header.schema).encode("utf-8", "replace")
