"""Cast: converts fields or the whole value to another primitive type (docs/reference/connect/transforms-converters.md,
section 2.1).

Owns the spec, the schema of the result, and the choice of casts that are inlined into the loop. The cast of one value:
`casting`.

Invariant: a cast value fits the schema of the result; without a schema its Python type determines its Java class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.model import FLOAT64, INT64, STRING, Schema, SchemaBuilder, hash_map_order
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.kafka.casting import MARKERS, caster, inline
from herdmesh.connect.transforms.structs import emit_struct, field_value


class Cast(PartTransformation):
    """`org.apache.kafka.connect.transforms.Cast`."""

    java_class = "org.apache.kafka.connect.transforms.Cast"
    purpose = "cast types"
    null_passes = True
    config_def = definitions.CAST

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._whole: str | None = None
        self._fields: dict[str, str] = {}
        for item in settings["spec"]:
            # The definition has checked the item; Java's split drops empty parts at the end.
            name, colon, kind = item.rstrip(":").partition(":")
            if colon:
                self._fields[name.strip()] = kind.strip().upper()
            else:
                self._whole = name.strip().upper()
        self.keeps_json = not any(kind.startswith("FLOAT") for kind in (self._whole or "", *self._fields.values()))
        self._null_to_default: bool = settings["replace.null.with.default"]

    def reads_struct(self, schema: Schema) -> bool:
        # Java creates the new schema first, so that its error comes first.
        return False

    def emit_schemaless(self, code: Code) -> None:
        if self._whole is not None:
            code.write(self.part, _schemaless(code, code.read(self.part), self._whole))
            return
        with self.map_only(code) as name:
            for field in hash_map_order(self._fields):  # of several errors the first in Java's order is reported
                kind = self._fields[field]
                code.line(f"{name}[{field!r}] = {_schemaless(code, f'{name}.get({field!r})', kind)}")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        if self._whole is not None:
            return self._for_whole(schema, self._whole)
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            kind = self._fields.get(field.name)
            builder.field(field.name, field.schema if kind is None else _plain(SchemaBuilder(kind), field.schema, kind))
        after = _plain(builder, schema, "STRUCT")

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            values: list[str] = []
            for field in schema.fields:
                kind = self._fields.get(field.name)
                value = field_value(code, field, null_to_default=self._null_to_default, put=kind is None)
                values.append(value if kind is None else _expression(code, value, field.schema, kind))
            emit_struct(code, self.part, after, values)

        return after, emit

    def _for_whole(self, schema: Schema, kind: str) -> tuple[Schema, Callable[[Code], None]]:
        # The name stays, even the name of a logical type that does not fit the new type.
        builder = SchemaBuilder(kind).parameters(schema.parameters or {})
        if schema.name is not None:
            builder.name(schema.name)
        if schema.version is not None:
            builder.version(schema.version)
        if schema.doc is not None:
            builder.doc(schema.doc)

        def emit(code: Code) -> None:
            code.write(self.part, _expression(code, code.read(self.part), schema, kind))

        return _plain(builder, schema, kind), emit


def _plain(builder: SchemaBuilder, before: Schema, kind: str) -> Schema:
    """The schema, optional if the one before was, with the cast default of that one. Raises DataError when the default
    cannot be cast.
    """
    if before.optional:
        builder.optional()
    if before.default is not None:
        builder.default_value(caster(before, kind)(before.default))
    return builder.build()


def _expression(code: Code, value: str, schema: Schema, kind: str) -> str:
    """The cast of an expression. Plain values of the schema's own class are cast inline."""
    cast = code.bind(caster(schema, kind))
    written = inline(schema, kind, "v")
    if written is None:
        return f"{cast}({value})"
    return f"({written[1]} if type(v := {value}) is {written[0]} else {cast}(v))"


def _schemaless(code: Code, value: str, kind: str) -> str:
    """The cast of an expression without a schema; plain numbers and texts are cast inline."""
    marker = MARKERS.get(kind)
    mark = "" if marker is None else code.bind(marker)
    text, test = "", f"type(v := {value})"
    for source in (INT64, FLOAT64, STRING):
        written = inline(source, kind, "v")
        if written is not None:
            text += f"{mark}({written[1]}) if {test} is {written[0]} else "
            test = "type(v)"
    return f"({text}{code.bind(caster(None, kind))}({'v' if text else value}))"
