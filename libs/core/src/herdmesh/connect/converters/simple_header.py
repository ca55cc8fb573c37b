"""SimpleHeaderConverter: a header's text says what it is (reference transforms-converters 6).

Owns the mapping of headers; the text form and its parser are `values`. Invariant: reading never fails; text that is
nothing else is a string.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config import ConfigDef
from herdmesh.connect.converters.base import HeaderConverter
from herdmesh.connect.data import Header
from herdmesh.connect.javavalues import java_text, utf8_text
from herdmesh.connect.schemas import STRING


class SimpleHeaderConverter(HeaderConverter):
    """`org.apache.kafka.connect.storage.SimpleHeaderConverter`."""

    java_class = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    config_def = ConfigDef()

    def _set_up(self, settings: dict[str, Any]) -> None:
        return

    def read_header(self, name: str, data: bytes | None) -> Header:
        if data is None:
            return Header(name, None)
        return Header(name, utf8_text(data), STRING)

    def write_header(self, header: Header) -> bytes | None:
        return None if header.value is None else java_text(header.value, header.schema).encode("utf-8", "replace")
