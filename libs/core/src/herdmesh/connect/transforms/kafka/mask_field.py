"""MaskField: replaces values by an empty value of the same type, or by a fixed text
(docs/reference/connect/transforms-converters.md, section 2.10).

Owns the mask of each type.

Invariant: the mask has the type of the value that it hides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import float32, narrow, read_big_integer, read_decimal
from herdmesh.connect.model import (
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    Schema,
    hash_map_order,
    java_class,
    type_of,
)
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.kafka import definitions
from herdmesh.connect.transforms.structs import emit_struct, field_value
from herdmesh.connect.values import to_double, to_long

_NOTHING: dict[type[object], Callable[[], Any]] = {
    bool: lambda: False,
    int: lambda: 0,
    float: lambda: 0.0,
    str: lambda: "",
    Int8: lambda: Int8(0),
    Int16: lambda: Int16(0),
    Int32: lambda: Int32(0),
    Int64: lambda: Int64(0),
    Float32: lambda: Float32(0.0),
    Float64: lambda: Float64(0.0),
    BigInteger: lambda: BigInteger(0),
    Decimal: lambda: Decimal(0),
    JavaDate: lambda: JavaDate(0),
    list: list,
    tuple: list,
    dict: dict,
}
_INTEGER_BITS: dict[type[object], int] = {Int8: 8, Int16: 16, Int32: 32, Int64: 64, int: 64}
_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_PLAIN: dict[str, Any] = {
    "STRING": "", "BOOLEAN": False, "FLOAT32": 0.0, "FLOAT64": 0.0, "INT8": 0, "INT16": 0, "INT32": 0, "INT64": 0,
}  # fmt: skip
"""Mask by type, for the types with only one mask."""


class MaskField(PartTransformation):
    """`org.apache.kafka.connect.transforms.MaskField`."""

    java_class = "org.apache.kafka.connect.transforms.MaskField"
    purpose = "mask fields"
    null_passes = False
    config_def = definitions.MASK_FIELD

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._fields: list[str] = settings["fields"]
        self._replacement: str | None = settings["replacement"]
        self._null_to_default: bool = settings["replace.null.with.default"]
        self._masks: dict[type[object], Any] = {}
        """Mask by type, for the types with only one mask, without a schema."""
        for kind, nothing in _NOTHING.items():
            if kind not in (list, tuple, dict):
                with suppress(DataError):  # refused when a record has a value of that type
                    self._masks[kind] = self._mask(nothing())
        self.keeps_json = math.isfinite(self._masks.get(float, 0.0))

    def emit_schemaless(self, code: Code) -> None:
        # A missing field becomes null, as in Connect.
        mask, masks = code.bind(self._mask), code.bind(self._masks)
        with self.map_only(code) as name:
            for field in hash_map_order(
                dict.fromkeys(self._fields)
            ):  # of several errors the first in Java's order is reported
                code.line(f"old = {name}.get({field!r})")
                code.line(f"{name}[{field!r}] = {masks}[type(old)] if type(old) in {masks} else {mask}(old)")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        fields = schema.fields

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            values: list[str] = []
            for field in fields:
                masked = field.name in self._fields
                value = field_value(code, field, null_to_default=self._null_to_default, put=not masked)
                values.append(self._masked(code, value, field.schema) if masked else value)
            emit_struct(code, self.part, schema, values)

        return schema, emit

    def _masked(self, code: Code, value: str, schema: Schema) -> str:
        """Expression for the mask of an expression. All plain values of one type have one mask, which is created
        here."""
        mask = f"{code.bind(self._mask)}(v, {code.bind(schema)})"
        sample = _PLAIN.get(schema.type)
        try:
            constant = None if sample is None else self._mask(sample, schema)
        except DataError:
            constant = None  # refused when a record has a value in that field
        if constant is None:
            return f"({mask} if (v := {value}) is not None else None)"
        return f"({code.bind(constant)} if type(v := {value}) is {type(sample).__name__} else {mask})"

    def _mask(self, value: Any, schema: Schema | None = None) -> Any:
        if value is None:
            return None
        if self._replacement is not None:
            return _replaced(value, self._replacement, schema)
        kind = type_of(value)
        nothing = _NOTHING.get(kind)
        if nothing is None:
            raise DataError(f"Cannot mask value of type: class {java_class(value, schema)}")
        return nothing()


def _replaced(value: Any, replacement: str, schema: Schema | None) -> Any:
    """The replacement as the value's type (docs/reference/connect/transforms-converters.md, section 6.3): numbers
    through a decimal, then narrowed as in Java.
    """
    kind = type_of(value)
    if kind is str:
        return replacement
    try:
        if kind is BigInteger:
            return BigInteger(read_big_integer(replacement))
        if kind is Decimal:
            return read_decimal(replacement)
    except ValueError as error:
        raise DataError(f"Unable to convert {replacement} (class java.lang.String) to number") from error
    if kind in (float, Float32, Float64):
        double = to_double(replacement)
        single = kind is Float32 or (kind is float and schema is not None and schema.type == "FLOAT32")
        return type(value)(float32(double) if single else double)
    bits = _INTEGER_BITS.get(kind)
    if bits is None:
        raise DataError(f"Cannot mask value of type class {java_class(value, schema)} with custom replacement.")
    if kind is int and schema is not None:
        bits = _BITS.get(schema.type, bits)
    return type(value)(narrow(to_long(replacement), bits))
