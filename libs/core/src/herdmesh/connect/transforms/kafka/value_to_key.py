"""ValueToKey: builds a new key from fields of the value (docs/reference/connect/transforms-converters.md, section
2.16).

Owns the list of fields.

Invariant: the value stays as it is; the old key is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.model import Schema, SchemaBuilder, Struct, java_class
from herdmesh.connect.transforms.base import Code, Column, Compiled, Shape, Transformation
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import OLD, field_value, null_check

_PURPOSE = "copying fields from value to key"


class ValueToKey(Transformation):
    """`org.apache.kafka.connect.transforms.ValueToKey`."""

    java_class = "org.apache.kafka.connect.transforms.ValueToKey"
    config_def = definitions.VALUE_TO_KEY
    keeps_json = True
    touches = frozenset[Column](("key", "value"))

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._fields: list[str] = settings["fields"]
        self._null_to_default: bool = settings["replace.null.with.default"]

    def compile(self, shape: Shape) -> Compiled:
        schema = shape.value
        if schema is None:
            return Compiled(replace(shape, key=None), self._emit_map)
        try:
            after = self._key_schema(schema)
        except ConnectError as error:
            return Compiled(shape, _refusal(error, schema))

        def emit(code: Code) -> None:
            _only(code, Struct, "Struct objects supported", schema)
            code.line(f"{OLD} = value.values")
            fields = [schema.fields[schema.places[name]] for name in self._fields]
            values = [field_value(code, field, null_to_default=self._null_to_default) for field in fields]
            code.make("key", after, f"[{', '.join(values)}]")
            check = null_check(after)
            if check is not None:
                with code.block("if None in key.values"):
                    code.line(f"{code.bind(check)}(key.values)")

        return Compiled(replace(shape, key=after), emit)

    def _key_schema(self, schema: Schema) -> Schema:
        builder = SchemaBuilder("STRUCT")
        for name in self._fields:
            field = schema.field(name)
            if field is None:
                raise DataError(f"Field does not exist: {name}")
            builder.field(name, field.schema)
        return builder.build()

    def _emit_map(self, code: Code) -> None:
        _only(code, dict, "Map objects supported in absence of schema", None)
        items = ", ".join(f"{name!r}: value.get({name!r})" for name in self._fields)
        code.write("key", f"{{{items}}}", own=True)


def _refusal(error: ConnectError, schema: Schema) -> Callable[[Code], None]:
    def refuse() -> None:
        raise error

    def emit(code: Code) -> None:
        _only(code, Struct, "Struct objects supported", schema)
        code.line(f"{code.bind(refuse)}()")

    return emit


def _only(code: Code, kind: type, what: str, schema: Schema | None) -> None:
    """Write the refusal of a value that is not of that kind."""

    def refuse(value: Any) -> None:
        found = "null" if value is None else java_class(value, schema)
        raise DataError(f"Only {what} for [{_PURPOSE}], found: {found}")

    with code.block(f"if type({code.read('value')}) is not {code.bind(kind)}"):
        code.line(f"{code.bind(refuse)}(value)")
