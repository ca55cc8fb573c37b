"""Flatten: moves the fields of nested structs and maps into one struct or map
(docs/reference/connect/transforms-converters.md, section 2.5).

Owns the names, and the choice of fields that become optional.

Invariant: without a schema, fields keep the order in which they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from herdmesh.connect.errors import ClassCastError, DataError
from herdmesh.connect.model import (
    PRIMITIVES,
    Field,
    Schema,
    SchemaBuilder,
    Struct,
    check_value,
    java_class,
    schema_type,
)
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions


class Flatten(PartTransformation):
    """`org.apache.kafka.connect.transforms.Flatten`."""

    java_class = "org.apache.kafka.connect.transforms.Flatten"
    purpose = "flattening"
    null_passes = True
    config_def = definitions.FLATTEN
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._delimiter: str = settings["delimiter"]

    def emit_schemaless(self, code: Code) -> None:
        part = code.read(self.part)
        with code.block(f"if type({part}) is not dict"):
            code.line(f"{code.bind(self.other_schemaless)}({part})")
        code.write(self.part, f"{code.bind(self._flat_map)}({part})", own=True)

    def _flat_map(self, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._collect(value, "", found)
        return found

    def _collect(self, value: dict[str, Any], prefix: str, found: dict[str, Any]) -> None:
        for name, item in value.items():
            if type(name) is not str:
                raise ClassCastError(f"class {java_class(name)} cannot be cast to class java.lang.String")
            full = f"{prefix}{self._delimiter}{name}" if prefix else name
            if type(item) is dict:
                self._collect(cast("dict[str, Any]", item), full, found)
                continue
            if item is not None:
                kind = schema_type(item)
                if kind is None:
                    raise DataError(
                        f"Flatten transformation was passed a value of type class {java_class(item)} which is not "
                        "supported by Connect's data API"
                    )
                if kind not in PRIMITIVES and kind != "ARRAY":
                    raise DataError(
                        f"Flatten transformation does not support class {java_class(item)} for record without schemas "
                        f"(for field {full})."
                    )
            found[full] = item

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        builder = SchemaBuilder.like(schema)
        inner: list[list[Field]] = []
        ends: list[Field] = []
        for name, path, leaf in self._leaves(schema, "", [], optional=schema.optional, default=schema.default):
            builder.field(name, leaf)
            inner.append(path[:-1])
            ends.append(path[-1])
        after = builder.build()
        fields = after.fields

        def flat(value: Struct) -> Struct:
            values: list[Any] = []
            for above, leaf, field in zip(inner, ends, fields, strict=True):
                within = _inside(value, above)
                found = None
                if within is not None:
                    found = within.values[leaf.index]
                    found = leaf.schema.default if found is None else found
                    if found is None and not field.schema.optional:
                        check_value(field.schema, None, field.name)
                values.append(found)
            return Struct(after, values)

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            code.write(self.part, f"{code.bind(flat)}({self.part})")

        return after, emit

    def _leaves(
        self, schema: Schema, prefix: str, above: list[Field], *, optional: bool, default: Struct | None
    ) -> Iterator[tuple[str, list[Field], Schema]]:
        """Name, path and schema of every field that is no struct."""
        for field in schema.fields:
            full = f"{prefix}{self._delimiter}{field.name}" if prefix else field.name
            inner = field.schema
            own = inner.default
            if own is None and default is not None:
                own = default.get(field.name)
            may_miss = optional or inner.optional
            path = [*above, field]
            if inner.type == "STRUCT":
                yield from self._leaves(inner, full, path, optional=may_miss, default=own)
            elif inner.type == "MAP":
                raise DataError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {full})."
                )
            else:
                yield full, path, inner.replace(optional=may_miss, default=own)


def _inside(value: Struct, above: list[Field]) -> Struct | None:
    """The struct within as it was set: a missing struct is not replaced by its default."""
    found: Struct | None = value
    for field in above:
        if found is None:
            return None
        found = found.values[field.index]
    return found
