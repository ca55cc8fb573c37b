"""HoistField: wrap the whole key or value in one field (reference transforms-converters 2.7).

Owns the field's name. Invariant: what was wrapped is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.checks import check_struct, check_value
from herdmesh.connect.schemas import Schema, SchemaBuilder
from herdmesh.connect.transforms import definitions
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape


class HoistField(PartTransformation):
    """`org.apache.kafka.connect.transforms.HoistField`."""

    java_class = "org.apache.kafka.connect.transforms.HoistField"
    purpose = "hoisting"
    null_passes = False
    config_def = definitions.HOIST_FIELD

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._field: str = settings["field"]

    def emit_schemaless(self, code: Code) -> None:
        code.write(self.part, f"{{{self._field!r}: {code.read(self.part)}}}", own=True)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        after = SchemaBuilder("STRUCT").field(self._field, schema).build()

        def emit(code: Code) -> None:
            if code.hoist(self.part, after):
                return
            if not schema.optional:
                with code.block(f"if {code.read(self.part)} is None"):
                    code.line(f"{code.bind(check_value)}({code.bind(schema)}, None, {self._field!r})")
            if schema.type == "STRUCT" and self.part not in code.made:
                with code.block(f"if {code.read(self.part)} is not None and None in {self.part}.values"):
                    code.line(f"{code.bind(check_struct)}({self.part})")
            code.make(self.part, after, f"[{code.read(self.part)}]")

        return after, emit

    def reads_struct(self, schema: Schema) -> bool:
        return False
