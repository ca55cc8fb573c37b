"""Fast schema check, compiled per schema: it replaces `model.checks.check_value` for ordinary values.

Owns the expression. It accepts plain Python values of exactly the types that the schema names. Markers (`Int64`), byte
arrays and other values that may fit are left to `checks`, whose error texts are Connect's.

Invariant: a value that passes here passes `check_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.model import DATE, DECIMAL, TIME, TIMESTAMP, JavaDate, Schema, Struct

_BITS = {"INT8": 7, "INT16": 15, "INT32": 31, "INT64": 63}
_TYPES = {"FLOAT32": "float", "FLOAT64": "float", "BOOLEAN": "bool", "STRING": "str", "BYTES": "bytes"}
_LOGICAL = {DECIMAL: "Decimal", DATE: "JavaDate", TIME: "JavaDate", TIMESTAMP: "JavaDate"}
_DEPTH_MAX = 20


def quick_check(schema: Schema) -> Callable[[Any], bool]:
    """A function that is true for values that fit; false means undecided."""
    made = _Made()
    text = made.fits(schema, "v", 0)
    return cast("Callable[[Any], bool]", eval(f"lambda v: {text}", made.bound))  # the source is generated


class _Made:
    """Expression under construction: its bindings and used names."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {"Decimal": Decimal, "JavaDate": JavaDate, "Struct": Struct}
        self._names = 0

    def fits(self, schema: Schema | None, name: str, depth: int, *, optional: bool | None = None) -> str:
        """Expression that is true when the value of variable `name` fits."""
        if schema is None or depth > _DEPTH_MAX:
            return "False"
        text = self._required(schema, name, depth)
        return f"({name} is None or {text})" if (schema.optional if optional is None else optional) else f"({text})"

    def _required(self, schema: Schema, name: str, depth: int) -> str:
        logical = _LOGICAL.get(schema.name) if schema.name is not None else None
        if logical is not None:
            return f"type({name}) is {logical}"
        kind = schema.type
        if kind in _BITS:
            end = 1 << _BITS[kind]
            return f"type({name}) is int and {-end} <= {name} < {end}"
        match kind:
            case "ARRAY":
                item = self._new()
                within = self.fits(schema.value_schema, item, depth + 1)
                return f"type({name}) is list and all([{within} for {item} in {name}])"
            case "MAP":
                key, item = self._new(), self._new()
                keys, items = (self.fits(one, at, depth + 1) for one, at in
                               ((schema.key_schema, key), (schema.value_schema, item)))  # fmt: skip
                return f"type({name}) is dict and all([{keys} and {items} for {key}, {item} in {name}.items()])"
            case "STRUCT":
                return self._struct(schema, name, depth)
            case _:
                return f"type({name}) is {_TYPES[kind]}"

    def _struct(self, schema: Schema, name: str, depth: int) -> str:
        bound = self._new()
        self.bound[bound] = schema
        parts = [f"type({name}) is Struct and {name}.schema is {bound}"]
        if schema.fields:
            names = [self._new() for _ in schema.fields]
            parts.append(f"[0 for ({', '.join(names)},) in ({name}.values,) if {self._fields(schema, names, depth)}]")
        return " and ".join(parts)

    def _fields(self, schema: Schema, names: list[str], depth: int) -> str:
        return " and ".join(
            self.fits(field.schema, at, depth + 1, optional=field.schema.optional or field.schema.default is not None)
            for field, at in zip(schema.fields, names, strict=True)
        )

    def _new(self) -> str:
        self._names += 1
        return f"n{self._names}"
