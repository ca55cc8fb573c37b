"""MaskField: replace values by nothing of the same type, or by a fixed text (reference transforms-converters 2.10).

Owns what each type is masked with. Invariant: the masked value has the type of the value it hides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from herdmesh.connect.data import BigInteger, Float32, Int8, Int16, Int32, Int64, JavaDate
from herdmesh.connect.errors import DataError
from herdmesh.connect.javavalues import java_class, type_of
from herdmesh.connect.schemas import Schema
from herdmesh.connect.transforms import definitions
from herdmesh.connect.transforms.base import Code, PartTransformation, Shape
from herdmesh.connect.transforms.structs import OLD, emit_struct, field_value

_NOTHING: dict[type[object], Callable[[], Any]] = {
    bool: lambda: False,
    int: lambda: 0,
    float: lambda: 0.0,
    str: lambda: "",
    Int8: lambda: Int8(0),
    Int16: lambda: Int16(0),
    Int32: lambda: Int32(0),
    Float32: lambda: Float32(0.0),
    BigInteger: lambda: BigInteger(0),
    Decimal: lambda: Decimal(0),
    JavaDate: lambda: JavaDate(0),
    list: list,
    tuple: list,
    dict: dict,
}
_INTEGER_BITS: dict[type[object], int] = {Int8: 8, Int16: 16, Int32: 32, Int64: 64, int: 64}
_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d+")


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

    def emit_schemaless(self, code: Code) -> None:
        # The common case, text, is inlined; a missing field comes out as null, as in Connect.
        mask = code.bind(self._mask)
        text = repr(self._replacement or "")
        with self.map_only(code) as name:
            for field in self._fields:
                code.line(f"old = {name}.get({field!r})")
                code.line(f"{name}[{field!r}] = {text} if type(old) is str else {mask}(old)")

    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema, Callable[[Code], None]]:
        fields = schema.struct_fields()

        def emit(code: Code) -> None:
            self.struct_only(code, schema)
            mask, text = code.bind(self._mask), repr(self._replacement or "")
            values: list[str] = []
            for field in fields:
                value = field_value(code, field, null_to_default=self._null_to_default)
                if field.name in self._fields:
                    plain = f"{OLD}[{field.index}]"
                    value = f"({text} if type({plain}) is str else {mask}({value}, {code.bind(field.schema)}))"
                values.append(value)
            emit_struct(code, self.part, schema, values)

        return schema, emit

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
    """The replacement as the value's type (reference 6.3): numbers through a decimal, then narrowed as Java narrows."""
    kind = type_of(value)
    if kind is str:
        return replacement
    if kind is BigInteger:
        return BigInteger(int(_number(replacement, _INTEGER, "number")))
    if kind is Decimal:
        return Decimal(_number(replacement, _DECIMAL, "number"))
    if kind is float or kind is Float32:
        return type(value)(float(_number(replacement, _DECIMAL)))
    bits = _INTEGER_BITS.get(kind)
    if bits is None:
        raise DataError(f"Cannot mask value of type class {java_class(value, schema)} with custom replacement.")
    if kind is int and schema is not None:
        bits = _BITS.get(schema.type, bits)
    whole = int(Decimal(_number(replacement, _DECIMAL)))
    half = 1 << bits - 1
    return type(value)(((whole + half) & ((1 << bits) - 1)) - half)


def _number(text: str, pattern: re.Pattern[str], wanted: str = "a number") -> str:
    if not pattern.fullmatch(text):
        raise DataError(f"Unable to convert {text} (class java.lang.String) to {wanted}")
    return text
