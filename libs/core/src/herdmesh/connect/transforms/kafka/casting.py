"""Casts of one value for Cast (docs/reference/connect/transforms-converters.md, section 2.1).

Owns the casts from each class to each type, Java's narrowing in them, and Connect's texts for impossible casts.

Invariant: `inline` and `caster` give equal results, for the values that `inline` supports.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import ClassCastError, DataError
from herdmesh.connect.java import (
    decimal_to_long,
    exact_float32,
    float32,
    float_to_integer,
    narrow,
    read_double,
    read_float,
    read_integer,
)
from herdmesh.connect.model import (
    FLOATS,
    INTEGERS,
    LOGICAL,
    PRIMITIVES,
    Float32,
    Int8,
    Int16,
    Int32,
    JavaDate,
    Schema,
    java_class,
    java_text,
    logical,
    schema_type,
)
from herdmesh.connect.values import bytes_text, temporal_text

_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
MARKERS: dict[str, type[int] | type[float]] = {"INT8": Int8, "INT16": Int16, "INT32": Int32, "FLOAT32": Float32}
"""Types whose schemaless values are of marker classes."""
_INPUTS = "INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES"

_Cast = Callable[[Any], Any]


def caster(schema: Schema | None, kind: str) -> _Cast:
    """The function that casts a value under that schema (None = schemaless) to the type; null stays null. It raises
    DataError for an impossible cast.
    """
    if schema is None:
        return _schemaless(kind)
    to = _to(schema, kind)
    source = schema.type
    temporal = schema.name in logical.TEMPORAL and kind != "STRING"

    def cast_it(value: Any) -> Any:
        if value is None:
            return None
        if source not in PRIMITIVES:
            raise _unsupported(source)
        if temporal:
            if type(value) is not JavaDate:
                raise ClassCastError(f"class {java_class(value, schema)} cannot be cast to class java.util.Date")
            value = logical.to_internal(schema, value)
        return to(value)

    return cast_it


def inline(schema: Schema, kind: str, name: str) -> tuple[str, str] | None:
    """The condition for values of the schema's own plain Python type, and the cast of the variable as an expression.
    None when there is no short expression.
    """
    if schema.name in LOGICAL:
        return None
    source = schema.type
    if source in INTEGERS:
        return _inline_integer(source, kind, name)
    if source in FLOATS:
        return _inline_float(source, kind, name)
    if source == "BOOLEAN":
        casts = {"BOOLEAN": name, "STRING": f'("true" if {name} else "false")'}
        return "bool", casts.get(kind) or f"{'float' if kind in FLOATS else 'int'}({name})"
    if source == "STRING" and kind in ("STRING", "BOOLEAN"):
        return "str", name if kind == "STRING" else f'({name}.lower() == "true")'
    return None


def _inline_integer(source: str, kind: str, name: str) -> tuple[str, str] | None:
    if kind in _BITS:
        return "int", name if _BITS[source] <= _BITS[kind] else _narrowed(name, _BITS[kind])
    if kind == "FLOAT32" and _BITS[source] > 16:
        return None  # may have more digits than a float
    casts = {"BOOLEAN": f"({name} != 0)", "STRING": f"str({name})"}
    return "int", casts.get(kind) or f"float({name})"


def _inline_float(source: str, kind: str, name: str) -> tuple[str, str] | None:
    if kind == "BOOLEAN":
        return "float", f"({name} >= 1.0 or {name} <= -1.0)"
    if kind == "FLOAT64" or kind == source:
        return "float", name
    if kind not in _BITS:
        return None
    # Java clamps the number to an int, or a long; numbers beyond take the general path.
    edge = float(1 << max(_BITS[kind], 32) - 1)
    whole = f"int({name})"
    inside = whole if _BITS[kind] >= 32 else _narrowed(whole, _BITS[kind])
    return f"float and {-edge!r} <= {name} < {edge!r}", inside


def _narrowed(name: str, bits: int) -> str:
    half = 1 << bits - 1
    return f"(({name} + {half} & {(1 << bits) - 1}) - {half})"


def _schemaless(kind: str) -> _Cast:
    to = _to(None, kind)
    marker = MARKERS.get(kind)

    def cast_it(value: Any) -> Any:
        if value is None:
            return None
        source = schema_type(value)
        if source is None:
            raise DataError(
                f"Cast transformation was passed a value of type class {java_class(value)} which is not supported by "
                "Connect's data API"
            )
        if source not in PRIMITIVES:
            raise _unsupported(source)
        return to(value) if marker is None else marker(to(value))

    return cast_it


def _unsupported(source: str) -> DataError:
    return DataError(
        f"Cast transformation does not support casting from {source}; supported types are [{_INPUTS}]"
    )  # fmt: skip


def _to(schema: Schema | None, kind: str) -> _Cast:
    """The cast to a type, for a value that is not null and no date (unless to text). `schema` determines the class of a
    plain number.
    """
    if kind in _BITS:
        return _to_integer(_BITS[kind], schema)
    if kind in FLOATS:
        return _to_float(kind == "FLOAT32", schema)
    return (lambda value: _to_boolean(value, schema)) if kind == "BOOLEAN" else lambda value: _to_text(value, schema)


def _to_integer(bits: int, schema: Schema | None) -> _Cast:
    def to_integer(value: Any) -> int:
        if isinstance(value, str):
            try:
                return read_integer(value, bits)
            except ValueError as error:
                raise _out_of_range(value) from error
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int) and not isinstance(value, JavaDate):
            return narrow(value, bits)
        if isinstance(value, float):
            return float_to_integer(value, bits)
        if isinstance(value, Decimal):
            return narrow(decimal_to_long(value), bits)
        raise _unexpected(value, schema)

    return to_integer


def _to_float(single: bool, schema: Schema | None) -> _Cast:
    def to_float(value: Any) -> float:
        if isinstance(value, float):
            return float32(value) if single else float(value)
        if isinstance(value, int | Decimal) and not isinstance(value, JavaDate):
            return exact_float32(value) if single else float(value)
        if isinstance(value, str):
            try:
                return read_float(value) if single else read_double(value)
            except ValueError as error:
                raise _out_of_range(value) from error
        raise _unexpected(value, schema)

    return to_float


def _to_boolean(value: Any, schema: Schema | None) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int) and not isinstance(value, JavaDate):
        return narrow(value, 64) != 0
    if isinstance(value, float):
        return value >= 1.0 or value <= -1.0
    if isinstance(value, Decimal):
        return decimal_to_long(value) != 0
    raise _unexpected(value, schema)


def _to_text(value: Any, schema: Schema | None) -> str:
    if isinstance(value, JavaDate):
        return temporal_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_text(cast("bytes", value))
    return java_text(value, schema)


def _out_of_range(text: str) -> DataError:
    return DataError(f"Value ({text}) was out of range for requested data type")


def _unexpected(value: Any, schema: Schema | None) -> DataError:
    return DataError(f"Unexpected type in Cast transformation: class {java_class(value, schema)}")
