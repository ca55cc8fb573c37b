"""SetSchemaMetadata: changes the name or version of a struct's schema (docs/reference/connect/transforms-converters.md,
section 2.13).

Owns both settings.

Invariant: the values stay the same; only structs can be renamed (as in 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.model import Schema, Struct
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import emit_struct, field_value


class SetSchemaMetadata(PartTransformation):
    """`org.apache.kafka.connect.transforms.SetSchemaMetadata`."""

    java_class = "org.apache.kafka.connect.transforms.SetSchemaMetadata"
    purpose = "updating schema metadata"
    null_passes = False
    config_def = definitions.SET_SCHEMA_METADATA
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._name: str | None = settings["schema.name"]
        self._version: int | None = settings["schema.version"]
        self._null_to_default: bool = settings["replace.null.with.default"]
        if self._name is None and self._version is None:
            raise ConfigError("Neither schema name nor version configured", fix="set schema.name or schema.version")

    def emit_schemaless(self, code: Code) -> None:
        with code.block(f"if {code.read(self.part)} is not None"):
            code.line(f"{code.bind(_refuse)}()")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        fields = schema.fields
        after = schema.replace(
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
        )

        def emit(code: Code) -> None:
            with code.block(f"if type({code.read(self.part)}) is {code.bind(Struct)}"):
                values = [field_value(code, field, null_to_default=self._null_to_default) for field in fields]
                emit_struct(code, self.part, after, values)

        return after, emit

    def reads_struct(self, schema: Schema) -> bool:
        return False


def _refuse() -> None:
    raise DataError("Schema required for [updating schema metadata]")
