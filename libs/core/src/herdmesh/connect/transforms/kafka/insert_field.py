"""InsertField: adds the record's coordinates or a fixed text as fields
(docs/reference/connect/transforms-converters.md, section 2.8).

Owns the settings and the order of insertion.

Invariant: without a schema, an inserted field replaces one of the same name; under a schema such a field is refused, as
Connect does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model import INT32, INT64, STRING, Int32, JavaDate, Schema, SchemaBuilder, timestamp_schema
from herdmesh.connect.transforms.base import Code, Column, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import emit_struct, field_value


@dataclass(frozen=True, slots=True)
class _Inserted:
    """One field to insert: its name, whether it accepts null, and the column of the record with its value."""

    name: str
    optional: bool
    column: Column | None
    schema: Schema


class InsertField(PartTransformation):
    """`org.apache.kafka.connect.transforms.InsertField`."""

    java_class = "org.apache.kafka.connect.transforms.InsertField"
    purpose = "field insertion"
    null_passes = True
    config_def = definitions.INSERT_FIELD
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        wanted: tuple[tuple[str, Column | None, Schema], ...] = (
            ("topic.field", "topic", STRING),
            ("partition.field", "partition", INT32),
            ("offset.field", "offset", INT64),
            ("timestamp.field", "timestamp", timestamp_schema()),
            ("static.field", None, STRING),
        )
        self._inserted = [
            _Inserted(setting.removesuffix("!") if setting.endswith("!") else setting.removesuffix("?"),
                      not setting.endswith("!"), column, schema)
            for key, column, schema in wanted
            if (setting := settings[key]) is not None
        ]  # fmt: skip
        self._static: str | None = settings["static.value"]
        self._null_to_default: bool = settings["replace.null.with.default"]
        if not self._inserted:
            raise ConfigError("No field insertion configured", fix="set one of the *.field options")
        last = self._inserted[-1]
        if last.column is None and self._static is None:
            message = f"No value specified for static field: {last.name}"
            raise ConfigError.for_value("static.value", None, message, fix="set static.value")

    def emit_schemaless(self, code: Code) -> None:
        with self.map_only(code) as name:
            for field in self._inserted:
                column = field.column
                if column is None:
                    code.line(f"{name}[{field.name!r}] = {self._static!r}")
                    continue
                code.read(column)
                given = f"{code.bind(Int32)}({column})" if column == "partition" else column
                if column == "offset":
                    code.line(f"if offset is None: {code.bind(_refuse_source)}()")
                if column in ("partition", "timestamp"):
                    with code.block(f"if {column} is not None"):
                        code.line(f"{name}[{field.name!r}] = {given}")
                else:
                    code.line(f"{name}[{field.name!r}] = {given}")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        builder = SchemaBuilder.like(schema)
        for field in schema.fields:
            builder.field(field.name, field.schema)
        for inserted in self._inserted:
            builder.field(inserted.name, inserted.schema.replace(optional=inserted.optional))
        after = builder.build()

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            values = [field_value(code, field, null_to_default=self._null_to_default) for field in schema.fields]
            for inserted in self._inserted:
                if inserted.column is None:
                    values.append(repr(self._static))
                    continue
                column = code.read(inserted.column)
                if column == "offset":
                    values.append(f"(offset if offset is not None else {code.bind(_refuse_source)}())")
                elif column == "timestamp":
                    values.append(f"(None if timestamp is None else {code.bind(JavaDate)}(timestamp))")
                else:
                    values.append(column)
            # For a record without a partition or timestamp Java omits the field, even if its schema is required.
            left_out = [one.name for one in self._inserted if one.column in ("partition", "timestamp")]
            emit_struct(code, self.part, after, values, left_out=left_out)

        return after, emit


def _refuse_source() -> None:
    raise DataError(
        "Only SinkRecord supported for [field insertion], found: org.apache.kafka.connect.source.SourceRecord"
    )
