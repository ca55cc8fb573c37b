"""Java class names and `toString` texts of values of the data model.

Owns class names, schema types of values without a schema, and `toString`. Number text: `java.number_text`.

Invariant: `java_text(v)` is `String.valueOf(v)` of the Java object that v stands for (maps in their given order).
"""

from __future__ import annotations

import codecs
from collections.abc import Collection
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import DAY_MS, EPOCH, day_at, double_text, float_text
from herdmesh.connect.model.data import (
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    MapKey,
    Struct,
)
from herdmesh.connect.model.schemas import Schema

# Python type -> (schema type or None, Java class). dict and list stand for the classes that Connect itself creates.
_TYPES: dict[type[object], tuple[str | None, str]] = {
    bool: ("BOOLEAN", "java.lang.Boolean"),
    str: ("STRING", "java.lang.String"),
    Int8: ("INT8", "java.lang.Byte"),
    Int16: ("INT16", "java.lang.Short"),
    Int32: ("INT32", "java.lang.Integer"),
    int: ("INT64", "java.lang.Long"),
    Int64: ("INT64", "java.lang.Long"),
    Float32: ("FLOAT32", "java.lang.Float"),
    float: ("FLOAT64", "java.lang.Double"),
    Float64: ("FLOAT64", "java.lang.Double"),
    bytes: ("BYTES", "[B"),
    bytearray: ("BYTES", "[B"),
    memoryview: ("BYTES", "java.nio.HeapByteBuffer"),
    list: ("ARRAY", "java.util.ArrayList"),
    tuple: ("ARRAY", "java.util.ArrayList"),
    dict: ("MAP", "java.util.HashMap"),
    MapKey: ("MAP", "java.util.HashMap"),
    Struct: ("STRUCT", "org.apache.kafka.connect.data.Struct"),
    BigInteger: (None, "java.math.BigInteger"),
    Decimal: (None, "java.math.BigDecimal"),
    JavaDate: (None, "java.util.Date"),
}

_NUMBERS: dict[str, tuple[type[object], str]] = {
    "INT8": (int, "java.lang.Byte"),
    "INT16": (int, "java.lang.Short"),
    "INT32": (int, "java.lang.Integer"),
    "INT64": (int, "java.lang.Long"),
    "FLOAT32": (float, "java.lang.Float"),
    "FLOAT64": (float, "java.lang.Double"),
}
"""The Java class of a plain number under a schema, by its Python type."""

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def utf8_text(data: bytes) -> str:
    """UTF-8 decoded as in Java: malformed bytes become U+FFFD, in the same number as in Java."""
    return str(data, "utf-8", _JAVA_REPLACE)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Java treats an encoded surrogate (ED A0..BF xx), or a truncated one, as one malformed character, Python as
    several.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    start, data = error.start, error.object
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[start + 1 : start + 2], "big") < 0xC0:
        followed = 0x80 <= int.from_bytes(data[start + 2 : start + 3], "big") < 0xC0
        return "\ufffd", start + 2 + followed
    return "\ufffd", error.end


_JAVA_REPLACE = "herdmesh-java-replace"
codecs.register_error(_JAVA_REPLACE, _replace_as_java)


def type_of(value: object) -> type[object]:
    """`type(value)` with a static type."""
    return type(value)


def schema_type(value: Any) -> str | None:
    """The Connect type of a schemaless value; None when it has none."""
    return _TYPES.get(type_of(value), (None, ""))[0]


def java_class(value: Any, schema: Schema | None = None) -> str:
    """The Java class of a value under that schema (None = schemaless), as `getClass().getName()` gives it."""
    kind = type_of(value)
    if schema is not None and kind in (int, float):
        named = _NUMBERS.get(schema.type)
        if named is not None and named[0] is kind:
            return named[1]
    known = _TYPES.get(kind)
    if known:
        return known[1]
    # An object that stands for a Java class outside the data model names that class itself.
    return getattr(value, "java_class", None) or f"{kind.__module__}.{kind.__qualname__}"


def java_text(value: Any, schema: Schema | None = None) -> str:
    """`String.valueOf(value)` of a value under that schema (None = schemaless)."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JavaDate):
        return _date_text(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if isinstance(value, Float32) or (schema is not None and schema.type == "FLOAT32" and type(value) is float):
            return float_text(value)
        return double_text(value)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        of_key, of_value = Schema.inner(schema)
        return "{" + ", ".join(f"{java_text(key, of_key)}={java_text(item, of_value)}" for key, item in members) + "}"
    if isinstance(value, (list, tuple)):
        _, of_item = Schema.inner(schema)
        return "[" + ", ".join(java_text(item, of_item) for item in cast("list[Any]", value)) + "]"
    if isinstance(value, Struct):
        # Struct.toString leaves unset and null fields out and does not show defaults.
        shown = zip(value.schema.fields, value.values, strict=True)
        return (
            "Struct{" + ",".join(f"{f.name}={java_text(item, f.schema)}" for f, item in shown if item is not None) + "}"
        )
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, memoryview):
        return f"java.nio.HeapByteBuffer[pos=0 lim={value.nbytes} cap={value.nbytes}]"
    if isinstance(value, (bytes, bytearray)):
        return f"[B@{id(value) & 0xFFFFFFFF:x}"  # Java prints an identity hash; no two runs give the same
    return str(value)


def string_hash(text: str) -> int:
    """`String.hashCode`, as an unsigned 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for at in range(0, len(units), 2):
        result = (result * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return result


def hash_map_order(names: Collection[str], *, copied: bool = False) -> list[str]:
    """The names in the order in which a Java HashMap iterates: by bucket, then in insertion order.

    `copied`: the map was created as a copy of another map, not filled one by one, which gives another number of
    buckets.
    """
    buckets = 1 if copied else 16
    while buckets < int(len(names) / 0.75 + 1) if copied else len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        spread = string_hash(name)
        return (spread ^ spread >> 16) & (buckets - 1)

    return sorted(names, key=bucket)


def decimal_text(value: Decimal) -> str:
    """`BigDecimal.toString`: plain unless the scale is negative or the number has more than six leading zeros."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"BigDecimal has no {value}")
    text = "".join(map(str, digits))
    prefix = "-" if sign and any(digits) else ""
    if exponent == 0:
        return prefix + text
    adjusted = exponent + len(text) - 1
    if exponent < 0 and adjusted >= -6:
        if adjusted >= 0:
            return f"{prefix}{text[:exponent]}.{text[exponent:]}"
        return f"{prefix}0.{text.zfill(-exponent)}"
    mantissa = text if len(text) == 1 else f"{text[0]}.{text[1:]}"
    return f"{prefix}{mantissa}" if adjusted == 0 else f"{prefix}{mantissa}E{adjusted:+d}"


def _date_text(value: JavaDate) -> str:
    """`java.util.Date.toString` in UTC: `Tue Jan 03 06:30:01 UTC 2017`."""
    days, of_day_ms = divmod(int(value), DAY_MS)
    day = day_at(days + EPOCH)
    minutes, seconds = divmod(of_day_ms // 1000, 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    # Java counts years before 1 as 1, 2, ... and does not print the era; no year is padded.
    year = day.year if day.year > 0 else 1 - day.year
    return f"{_DAYS[day.weekday - 1]} {_MONTHS[day.month - 1]} {day.day:02d} {clock} UTC {year}"
