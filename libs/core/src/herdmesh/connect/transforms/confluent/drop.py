"""Drop: replaces a key or value by null.

Owns the change of the schema.

Invariant: under `validate` and `force_optional`, null fits the schema of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import DataError
from herdmesh.connect.model import Schema
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.confluent import definitions


class Drop(PartTransformation):
    """`io.confluent.connect.transforms.Drop`."""

    java_class = "io.confluent.connect.transforms.Drop"
    purpose = "dropping"
    null_passes = False
    config_def = definitions.DROP
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._behavior: str = settings["schema.behavior"]

    def emit_schemaless(self, code: Code) -> None:
        code.write(self.part, "None")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema | None, Callable[[Code], None]]:
        if self._behavior == "nullify":
            return None, self.emit_schemaless
        if self._behavior == "validate" and not schema.optional:
            raise DataError(f"The {self.part} cannot be dropped: its schema {schema} is not optional")
        return schema.replace(optional=True) if self._behavior == "force_optional" else schema, self.emit_schemaless

    def reads_struct(self, schema: Schema) -> bool:
        return False
