"""HoistField: wraps the whole key or value in one field (docs/reference/connect/transforms-converters.md, section 2.7).

Owns the field's name.

Invariant: the wrapped value is unchanged, and fits its schema as `Struct.put` requires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from herdmesh.connect.model import BITS, Schema, SchemaBuilder, Struct, check_struct, check_value, fits
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions

_TYPES = {
    "STRING": "str",
    "FLOAT64": "float",
    "BOOLEAN": "bool",
    "BYTES": "bytes",
    "FLOAT32": "float",
}


class HoistField(PartTransformation):
    """`org.apache.kafka.connect.transforms.HoistField`."""

    java_class = "org.apache.kafka.connect.transforms.HoistField"
    purpose = "hoisting"
    null_passes = False
    config_def = definitions.HOIST_FIELD
    keeps_json = True

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._field: str = settings["field"]

    def emit_schemaless(self, code: Code) -> None:
        code.write(self.part, f"{{{self._field!r}: {code.read(self.part)}}}", own=True)

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        after = SchemaBuilder("STRUCT").field(self._field, schema).build()

        def emit(code: Code) -> None:
            if code.hoist(self.part, after):
                return
            value = code.read(self.part)
            with code.block(f"if not ({_surely_fits(code, schema, value)})"):
                code.line(f"{code.bind(check_value)}({code.bind(schema)}, {value}, {self._field!r})")
            if schema.type == "STRUCT" and self.part not in code.made:
                with code.block(f"if {code.read(self.part)} is not None and None in {self.part}.values"):
                    code.line(f"{code.bind(check_struct)}({self.part})")
            code.make(self.part, after, f"[{code.read(self.part)}]")

        return after, emit

    def reads_struct(self, schema: Schema) -> bool:
        return False


def _surely_fits(code: Code, schema: Schema, value: str) -> str:
    """A cheap condition that nearly all values meet. Other values are checked in full, and so are lists and maps,
    because Java's `Struct.put` checks every element.
    """
    bits = BITS.get(schema.type)
    if schema.type == "STRUCT":
        return f"type({value}) is {code.bind(Struct)} and {value}.schema is {code.bind(schema)}"
    if schema.name is not None:
        return f"{code.bind(fits)}({code.bind(schema)}, {value})"
    if bits is not None:
        return f"type({value}) is int and {-(1 << bits - 1)} <= {value} < {1 << bits - 1}"
    name = _TYPES.get(schema.type)
    return "False" if name is None else f"type({value}) is {name}"
