"""ExtractField: replaces the whole key or value by one field, at any depth
(docs/reference/connect/transforms-converters.md, section 2.3).

Owns the steps along a path.

Invariant: the result is the field's own value, under the field's own schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from herdmesh.connect.errors import DataError, IllegalArgumentError
from herdmesh.connect.model import Field, Schema, Struct, java_class
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.field_paths import steps_of
from herdmesh.connect.transforms.kafka import definitions


class ExtractField(PartTransformation):
    """`org.apache.kafka.connect.transforms.ExtractField`."""

    java_class = "org.apache.kafka.connect.transforms.ExtractField"
    purpose = "field extraction"
    null_passes = False
    config_def = definitions.EXTRACT_FIELD
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._path: str = settings["field"]
        self._steps = steps_of(self._path, settings["field.syntax.version"])
        self._null_to_default: bool = settings["replace.null.with.default"]

    def emit_schemaless(self, code: Code) -> None:
        part = code.read(self.part)
        with code.block(f"if {part} is not None"):
            if len(self._steps) == 1:
                with code.block(f"if type({part}) is not dict"):
                    code.line(f"{code.bind(self.other_schemaless)}({part})")
                code.write(self.part, f"{part}.get({self._steps[0]!r})")
            else:
                with code.block(f"if type({part}) is not dict"):
                    code.line(f"{code.bind(self.other_schemaless)}({part})")
                code.write(self.part, f"{code.bind(self._followed)}({part})")

    def _followed(self, value: Any) -> Any:
        for step in self._none_left():
            if value is None:
                return None
            if not isinstance(value, dict):
                raise DataError(
                    "Only Map objects supported in absence of schema for [nested field access], found: "
                    f"{java_class(value)}"
                )
            value = cast("dict[str, Any]", value).get(step)
        return value

    def _none_left(self) -> tuple[str, ...]:
        if not self._steps:
            raise IllegalArgumentError("fromIndex(0) > toIndex(-1)")
        return tuple(self._steps)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        fields = self._fields(schema)
        after = fields[-1].schema

        def follow(value: Any) -> Any:
            *above, leaf = fields
            for field in above:
                value = _get(value, field)
                if value is None:
                    return None
            found = value.values[leaf.index]
            if found is None and self._null_to_default:
                return leaf.schema.default
            return found

        def emit(code: Code) -> None:
            part = code.read(self.part)
            with code.block(f"if {part} is not None"):
                self.struct_only(code, schema)
                code.write(self.part, f"{code.bind(follow)}({part})")

        return after, emit

    def other(self, value: Any, schema: Schema) -> None:
        if value is not None:
            super().other(value, schema)

    def _fields(self, schema: Schema) -> list[Field]:
        found: list[Field] = []
        inner = schema
        for step in self._none_left():
            field = inner.field(step)
            if field is None:
                raise IllegalArgumentError(f"Unknown field: {self._path}")
            found.append(field)
            inner = field.schema
        return found


def _get(value: Struct, field: Field) -> Any:
    found = value.values[field.index]
    found = field.schema.default if found is None else found
    if found is not None and type(found) is not Struct:
        raise DataError(f"Only Struct objects supported for [field extraction], found: {java_class(found)}")
    return found
