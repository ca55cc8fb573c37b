"""HeaderFrom: moves or copies fields into headers (docs/reference/connect/transforms-converters.md, section 2.6).

Owns the pairs of field and header.

Invariant: headers are appended in the order of the config.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import ConfigError, DataError, NullPointerError
from herdmesh.connect.model import Header, Schema, SchemaBuilder
from herdmesh.connect.transforms.base import Code, Column, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import OLD, emit_struct, field_value


class HeaderFrom(PartTransformation):
    """`org.apache.kafka.connect.transforms.HeaderFrom`."""

    java_class = "org.apache.kafka.connect.transforms.HeaderFrom"
    null_passes = False
    config_def = definitions.HEADER_FROM
    keeps_json = True
    touches = frozenset[Column](("headers",))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._fields: list[str] = settings["fields"]
        self._headers: list[str] = settings["headers"]
        if len(self._fields) != len(self._headers):
            raise ConfigError(
                "'fields' config must have the same number of elements as 'headers' config.", field="headers"
            )
        self._moves = settings["operation"] == "move"
        self.purpose = "header move" if self._moves else "header copy"
        self._null_to_default: bool = settings["replace.null.with.default"]

    def emit_schemaless(self, code: Code) -> None:
        made = code.bind(Header)
        with self.map_only(code) as name:
            pairs = zip(self._headers, self._fields, strict=True)
            new = ", ".join(f"{made}({header!r}, {name}.get({field!r}))" for header, field in pairs)
            code.write("headers", f"[*{code.read('headers')}, {new}]")
            for field in dict.fromkeys(self._fields) if self._moves else ():
                code.line(f"{name}.pop({field!r}, None)")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        if schema.type != "STRUCT" or not self._moves:
            after = schema
        else:
            builder = SchemaBuilder.like(schema)
            for field in schema.fields:
                if field.name not in self._fields:
                    builder.field(field.name, field.schema)
            after = builder.build()

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            if schema.type != "STRUCT":
                return  # no record gets here
            if self._moves:
                kept = [schema.fields[schema.places[field.name]] for field in after.fields]
                code.line(f"old = {self.part}.values")
                emit_struct(
                    code, self.part, after,
                    [field_value(code, field, null_to_default=self._null_to_default) for field in kept],
                )  # fmt: skip
                code.line(f"{OLD} = old")
            else:
                code.line(f"{OLD} = {self.part}.values")
            made: list[str] = []
            for header, name in zip(self._headers, self._fields, strict=True):
                field = schema.field(name)
                if field is None:
                    code.line(f"{code.bind(_missing)}()")
                    return
                value = field_value(code, field, null_to_default=self._null_to_default, put=False)
                if not field.schema.optional:
                    code.line(f"if {value} is None: {code.bind(_refuse_null)}({code.bind(field.schema)})")
                made.append(f"{code.bind(Header)}({header!r}, {value}, {code.bind(field.schema)})")
            code.write("headers", f"[*{code.read('headers')}, {', '.join(made)}]")

        return after, emit


def _missing() -> None:
    raise NullPointerError(
        'Cannot invoke "org.apache.kafka.connect.data.Field.schema()" because the return value of '
        '"org.apache.kafka.connect.data.Schema.field(String)" is null'
    )


def _refuse_null(schema: Schema) -> None:
    raise DataError(f"A null value requires an optional schema but was {schema}")
