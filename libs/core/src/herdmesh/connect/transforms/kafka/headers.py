"""DropHeaders and InsertHeader: remove headers by name, add a header with a fixed value
(docs/reference/connect/transforms-converters.md, sections 2.2 and 2.9).

Owns both settings.

Invariant: the remaining headers keep their order; an inserted one comes last.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.model import Header
from herdmesh.connect.transforms.base import Code, Column, Compiled, Shape, Transformation
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.values import parse_text


class DropHeaders(Transformation):
    """`org.apache.kafka.connect.transforms.DropHeaders`."""

    java_class = "org.apache.kafka.connect.transforms.DropHeaders"
    config_def = definitions.DROP_HEADERS
    touches = frozenset[Column](("headers",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._names = frozenset[str](settings["headers"])

    def compile(self, shape: Shape) -> Compiled:
        def emit(code: Code) -> None:
            names = code.bind(self._names)
            code.write("headers", f"[one for one in {code.read('headers')} if one.key not in {names}]")

        return Compiled(shape, emit)


class InsertHeader(Transformation):
    """`org.apache.kafka.connect.transforms.InsertHeader`."""

    java_class = "org.apache.kafka.connect.transforms.InsertHeader"
    config_def = definitions.INSERT_HEADER
    touches = frozenset[Column](("headers",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        schema, value = parse_text(settings["value.literal"])
        self._header = Header(settings["header"], value, schema)

    def compile(self, shape: Shape) -> Compiled:
        # A header is never changed in place, so one object serves all records.
        def emit(code: Code) -> None:
            code.write("headers", f"[*{code.read('headers')}, {code.bind(self._header)}]")

        return Compiled(shape, emit)
