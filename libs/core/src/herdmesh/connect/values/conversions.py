"""Conversions of a value to a type (docs/reference/connect/transforms-converters.md, section 6.3).

Owns the rules and Connect's texts. Reading text: `parsing`. Text form: `text`.

Invariant: the result's Python type determines its Java class (`Int8`, ..., `Float64`), so that the result is correct
under any schema and without a schema.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn, cast

from herdmesh.connect.errors import DataError, NumberFormatError
from herdmesh.connect.java import (
    DAY_MS,
    decimal_to_long,
    double_text,
    float32,
    float_to_integer,
    narrow,
    read_decimal,
    wrap_int64,
)
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    Schema,
    Struct,
    java_class,
    java_text,
    logical,
)
from herdmesh.connect.values.text import text_of

_INTEGERS: dict[str, tuple[int, type[int]]] = {
    "INT8": (8, Int8), "INT16": (16, Int16), "INT32": (32, Int32), "INT64": (64, Int64),
}  # fmt: skip
_INT32 = 32


def convert(to: Schema, value: Any, schema: Schema | None = None) -> Any:
    """Convert a value under `schema` (None = schemaless) to the type of `to`. Raises DataError."""
    if value is None:
        if to.optional:
            return None
        raise DataError("Unable to convert a null value to a schema that requires a value")
    match to.type:
        case "BYTES":
            return _to_bytes(to, value, schema)
        case "STRING":
            return text_of(value, schema)
        case "BOOLEAN":
            return to_boolean(value, schema)
        case "FLOAT32":
            return Float32(float32(to_double(value, schema)))
        case "FLOAT64":
            return Float64(to_double(value, schema))
        case "ARRAY" | "MAP" | "STRUCT":
            return _to_container(to, value, schema)
        case _ if to.name in logical.TEMPORAL:
            return to_temporal(to, value, schema)
        case _:
            bits, kind = _INTEGERS[to.type]
            return kind(narrow(to_long(value, schema), bits))


def to_integer(kind: str, value: Any, schema: Schema | None = None) -> int:
    """`convertToByte`, ..., `convertToLong`, by the name of the type. Raises DataError."""
    bits, marker = _INTEGERS[kind]
    return marker(narrow(to_long(value, schema), bits))


def to_long(value: Any, schema: Schema | None = None) -> int:
    """The value as a 64-bit number, wrapped as in Java. Raises DataError when it is no number."""
    whole = _number_to_long(value)
    if whole is not None:
        return whole
    if isinstance(value, str):
        try:
            return decimal_to_long(read_decimal(value))
        except ValueError:
            pass
    if schema is not None:
        if isinstance(value, JavaDate) and schema.name in logical.TEMPORAL:
            return logical.to_internal(schema, value)
        _refuse(value, schema, str(schema))
    _refuse(value, schema, "a number")


def to_double(value: Any, schema: Schema | None = None) -> float:
    """The value as a double. Raises DataError when it is no number."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int | Decimal) and not isinstance(value, bool | JavaDate):
        return float(value)
    if isinstance(value, str):
        try:
            return float(read_decimal(value))
        except ValueError:
            pass
    return float(to_long(value, schema))


def to_boolean(value: Any, schema: Schema | None = None) -> bool:
    """The value as a boolean: the literals, and numbers that are not 0. Raises DataError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and isinstance(parsed := _parsed(value), bool):
        return parsed
    return to_long(value, schema) != 0


def to_temporal(to: Schema, value: Any, schema: Schema | None = None) -> JavaDate:
    """The value as the Date, Time or Timestamp that `to` names: from another of them by its schema, from text by
    parsing, from numbers as the type's internal form. Raises DataError."""
    if value is None:
        raise DataError("Unable to convert a null value to a schema that requires a value")
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, JavaDate):
        if schema is None or schema.name == to.name:
            return value
        crossed = _crossed(to, value, schema)
        if crossed is not None:
            return crossed
    number = to_long(value, schema)
    return logical.from_internal(to, number if to.name == TIMESTAMP else narrow(number, _INT32))


def _crossed(to: Schema, value: JavaDate, schema: Schema) -> JavaDate | None:
    """A date of one type as a date of another; None where Connect converts by the number."""
    days, rest = divmod(int(value), DAY_MS)
    if to.name == TIME and schema.name in (DATE, TIMESTAMP):
        return JavaDate(rest)
    if to.name == DATE and schema.name == TIMESTAMP:
        return JavaDate((days + (days < 0 and rest > 0)) * DAY_MS)  # Java divides towards zero
    if to.name == TIMESTAMP and schema.name in (DATE, TIME):
        logical.to_internal(schema, value)
        return value
    return None


def _to_bytes(to: Schema, value: Any, schema: Schema | None) -> Any:
    data = bytes(cast("bytes", value)) if isinstance(value, bytes | bytearray | memoryview) else None
    if to.name == DECIMAL:
        if data is not None:
            return logical.decimal_from_bytes(to, data)
        if isinstance(value, Decimal):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool | JavaDate):
            return _decimal(double_text(float(value)))
        if isinstance(value, str):
            return _decimal(value)
    if data is not None:
        return data
    if isinstance(value, Decimal):
        return logical.decimal_to_bytes(to, value)
    _refuse(value, schema, str(to))


def _decimal(text: str) -> Decimal:
    try:
        return read_decimal(text)
    except ValueError as error:
        raise NumberFormatError(f"{text} is not a decimal") from error


def _to_container(to: Schema, value: Any, schema: Schema | None) -> Any:
    wanted: dict[str, tuple[type[Any], ...]] = {"ARRAY": (list, tuple), "MAP": (dict,), "STRUCT": (Struct,)}
    if isinstance(value, str) and to.type != "STRUCT":
        value = _parsed(value)
    if not isinstance(value, wanted[to.type]):
        _refuse(value, schema, str(to))
    return value


def _number_to_long(value: Any) -> int | None:
    """`Number.longValue()`; None when it is no number."""
    if isinstance(value, BigInteger):
        return wrap_int64(value)
    if isinstance(value, int):
        return None if isinstance(value, bool | JavaDate) else int(value)
    if isinstance(value, float):
        return float_to_integer(value, 64)
    return decimal_to_long(value) if isinstance(value, Decimal) else None


def _parsed(text: str) -> Any:
    from herdmesh.connect.values.parsing import parse_text  # that module needs this module itself

    return parse_text(text)[1]


def _refuse(value: Any, schema: Schema | None, wanted: str) -> NoReturn:
    kind = "null" if value is None else f"class {java_class(value, schema)}"
    raise DataError(f"Unable to convert {java_text(value, schema)} ({kind}) to {wanted}")
