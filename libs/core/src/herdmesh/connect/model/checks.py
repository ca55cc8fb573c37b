"""Schema check of values (docs/reference/connect/data-model.md, section 1.3), with Connect's error texts.

Owns the rules and the Java class names in them.

Under a schema a plain int, float, str or bytes stands for the Java class that the schema names, if the value is in that
class's range; a marker (`Int8`, `Int64`, ...) stands for its own class alone.

Invariant: every converter that supports the schema's type can write a value that passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import ClassCastError, DataError
from herdmesh.connect.model.data import Float32, Float64, Int8, Int16, Int32, Int64, JavaDate, MapKey, Struct
from herdmesh.connect.model.java_values import java_class
from herdmesh.connect.model.schemas import DATE, DECIMAL, TIME, TIMESTAMP, Schema

#: Width of each integer type in bits.
BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_INTEGERS = {"INT8": Int8, "INT16": Int16, "INT32": Int32, "INT64": Int64}
_OTHERS: dict[str, tuple[type, ...]] = {
    "FLOAT32": (float, Float32),
    "FLOAT64": (float, Float64),
    "BOOLEAN": (bool,),
    "STRING": (str,),
    "BYTES": (bytes, bytearray, memoryview),
    "ARRAY": (list, tuple),
    "MAP": (dict, MapKey),
    "STRUCT": (Struct,),
}
_CONTAINERS: dict[str, tuple[tuple[type, ...], str]] = {
    "ARRAY": ((list, tuple), "java.util.List"),
    "MAP": ((dict,), "java.util.Map"),
    "STRUCT": ((Struct,), "org.apache.kafka.connect.data.Struct"),
}
_LOGICAL: dict[str, type] = {DECIMAL: Decimal, DATE: JavaDate, TIME: JavaDate, TIMESTAMP: JavaDate}


def check_value(schema: Schema | None, value: Any, field: str | None = None) -> None:
    """Raise DataError when the value does not fit; `field` is the name of its struct field."""
    _check(schema, value, "value" if field is None else f'field: "{field}"')


def fits(schema: Schema, value: object) -> bool:
    """True when a value other than None is of the Java class that the schema requires. Does not check the elements of a
    container.
    """
    kind = type(value)
    logical = _LOGICAL.get(schema.name) if schema.name is not None else None
    if logical is not None:
        return kind is logical
    bits = BITS.get(schema.type)
    if bits is not None:
        return kind is _INTEGERS[schema.type] or (
            kind is int and -(1 << bits - 1) <= cast("int", value) < 1 << bits - 1
        )
    return kind in _OTHERS[schema.type]


def all_fit(schema: Schema, values: Sequence[object]) -> bool:
    """True when all values of a column other than None are certainly of the class that the schema requires, judged by
    their types. False is no proof of the opposite. Does not check the elements of containers.
    """
    if schema.type == "STRING" and schema.name is None and _are_texts(values):
        return True
    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return True
    if schema.type in BITS and schema.name is None and types == {int}:
        numbers = [value for value in cast("Sequence[int | None]", values) if value is not None]
        return fits(schema, min(numbers)) and fits(schema, max(numbers))
    if schema.type in BITS and schema.name is None:
        return False  # instances of marker classes, or of unsupported classes
    if len(types) == 1:
        return fits(schema, next(value for value in values if value is not None))
    samples = dict(zip(map(type, values), values, strict=True))
    return all(fits(schema, samples[kind]) for kind in types)


def _are_texts(values: Sequence[Any]) -> bool:
    """True when all values are texts, and none is null. Takes a quarter of the time of checking each value's type."""
    try:
        "".join(values)
    except TypeError:
        return False
    return True


def check_struct(struct: Struct) -> None:
    """Raise DataError unless every field has a value that fits it, is optional or has a default."""
    for field, value in zip(struct.schema.fields, struct.values, strict=True):
        if value is None and (field.schema.optional or field.schema.default is not None):
            continue
        check_value(field.schema, value, field.name)


def _check(schema: Schema | None, value: Any, location: str) -> None:
    if schema is None:
        raise DataError(f"No schema defined for {location}")
    if value is None:
        if schema.optional:
            return
        raise DataError(f"Invalid value: null used for required {location}, schema type: {schema.type}")
    if not fits(schema, value):
        named = "" if schema.name is None else f' "{schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{named} with type {schema.type}: class {java_class(value)} for {location}"
        )
    expected = _CONTAINERS.get(schema.type)
    if expected is not None and not isinstance(value, expected[0]):  # a logical name on a container
        raise ClassCastError(f"class {java_class(value)} cannot be cast to class {expected[1]}")
    match schema.type:
        case "STRUCT":
            if value.schema is not schema:
                raise DataError("Struct schemas do not match.")
            check_struct(value)
        case "ARRAY":
            of_element = schema.value_schema
            for element in cast("list[Any]", value):
                _check(of_element, element, f"element of array {location}")
        case "MAP":
            of_key, of_value = schema.key_schema, schema.value_schema
            for key, item in cast("dict[Any, Any]", value).items():
                _check(of_key, key, f"key of map {location}")
                _check(of_value, item, f"value of map {location}")
        case _:
            return
