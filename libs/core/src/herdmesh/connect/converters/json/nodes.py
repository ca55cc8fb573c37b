"""Reference path from a JSON tree to Connect values under a schema, as JsonConverter reads them
(docs/reference/connect/transforms-converters.md, section 4.2).

Owns the rules and their texts, one value at a time. The fast path for ordinary payloads: `decoders`. A tree is a result
of `jackson.loads_node`.

Invariant: every tree gives a value or a DataError; a value that does not fit is narrowed, blanked or refused where Java
does so.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import ClassCastError, DataError, NullPointerError
from herdmesh.connect.java import decimal_to_long, float32, narrow, wrap_int64
from herdmesh.connect.json_text import Missing, double_of
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    INTEGERS,
    LOGICAL,
    TIMESTAMP,
    Schema,
    Struct,
    check_value,
    decimal_from_bytes,
    from_internal,
)

_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_CONTAINERS = frozenset(("ARRAY", "MAP", "STRUCT"))
_BASE64_GROUP = "[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}=="
_BASE64_TEXT = re.compile(f"[\x00- ]*(?:(?:{_BASE64_GROUP})[\x00- ]*)*")
_BASE64_GROUPS = re.compile(_BASE64_GROUP)


def value_of(schema: Schema | None, node: Any, *, replace_null: bool) -> Any:
    """The value of a node under that schema (None = schemaless). `replace_null`: defaults replace nulls.

    Raises:
        DataError: Connect's text.
    """
    if schema is None:
        return schemaless(node)
    if node is None:
        if schema.default is not None and replace_null:
            return schema.default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type} field")
    if schema.name in LOGICAL:
        return _logical(schema, node)
    kind = schema.type
    if kind in INTEGERS:
        return narrowed(node, _BITS[kind])
    match kind:
        case "STRING":
            return node if isinstance(node, str) else None
        case "BOOLEAN":
            return node is True
        case "FLOAT64":
            return _double(node)
        case "FLOAT32":
            return _float(node)
        case "BYTES":
            return _bytes(node)
        case "ARRAY":
            return [value_of(schema.value_schema, item, replace_null=replace_null) for item in _elements(node)]
        case "MAP":
            return _map(schema, node, replace_null=replace_null)
        case _:
            return _struct(schema, node, replace_null=replace_null)


def schemaless(node: Any) -> Any:
    """The value of a node without a schema: numbers become long and double."""
    kind = cast("type[object]", type(node))
    if kind is int:
        return wrap_int64(node)
    if kind is Decimal:
        return double_of(node)
    if kind is dict:
        return {name: schemaless(item) for name, item in node.items()}
    if kind is list:
        return [schemaless(item) for item in node]
    return None if kind is Missing else node


def node_type(node: Any) -> str:
    """Jackson's name of the node's type."""
    if isinstance(node, bool):
        return "BOOLEAN"
    if isinstance(node, int | Decimal):
        return "NUMBER"
    if isinstance(node, str):
        return "STRING"
    if isinstance(node, list):
        return "ARRAY"
    return "OBJECT" if isinstance(node, dict) else "NULL" if node is None else "MISSING"


def narrowed(node: Any, bits: int) -> int:
    """The node's whole part in that many bits, narrowed as in Java; 0 for a node that is no number."""
    if isinstance(node, bool) or not isinstance(node, int | Decimal):
        return 0
    return narrow(decimal_to_long(node) if isinstance(node, Decimal) else node, bits)


def decode_base64(text: str) -> bytes:
    """Base64 as Jackson reads it: white space between groups of four, and groups after a padded group, are allowed.

    Raises:
        ValueError: anything else.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        if _BASE64_TEXT.fullmatch(text) is None:
            raise
        return b"".join(base64.b64decode(group) for group in _BASE64_GROUPS.findall(text))


def _double(node: Any) -> float:
    if isinstance(node, bool) or not isinstance(node, int | Decimal):
        return 0.0
    if isinstance(node, Decimal):
        return double_of(node)
    try:
        return float(node)
    except OverflowError:
        return math.copysign(math.inf, node)


def _float(node: Any) -> float:
    """The nearest float to the exact number, rounded once: the intermediate double keeps every bit that decides (round
    to odd).
    """
    double = _double(node)
    if math.isfinite(double) and double and Decimal(double) != node:
        bits: int = struct.unpack(">q", struct.pack(">d", double))[0]
        if bits % 2 == 0:
            double = math.nextafter(double, math.inf if Decimal(double) < node else -math.inf)
    return float32(double)


def _bytes(node: Any) -> bytes | None:
    if not isinstance(node, str):
        return None
    try:
        return decode_base64(node)
    except ValueError as error:
        raise DataError("Invalid bytes field") from error


def _elements(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    return cast("list[Any]", node) if isinstance(node, list) else []


def _map(schema: Schema, node: Any, *, replace_null: bool) -> dict[Any, Any]:
    key_schema, value_schema = schema.key_schema, schema.value_schema
    if key_schema is None:
        raise NullPointerError("the map has no key schema")
    if key_schema.type == "STRING":
        if not isinstance(node, dict):
            raise DataError(f"Maps with string fields should be encoded as JSON objects, but found {node_type(node)}")
        members = cast("dict[str, Any]", node)
        return {name: value_of(value_schema, item, replace_null=replace_null) for name, item in members.items()}
    if not isinstance(node, list):
        raise DataError(
            f"Maps with non-string fields should be encoded as JSON array of tuples, but found {node_type(node)}"
        )
    read: dict[Any, Any] = {}
    for entry in cast("list[Any]", node):
        if not isinstance(entry, list):
            raise DataError(f"Found invalid map entry instead of array tuple: {node_type(entry)}")
        pair = cast("list[Any]", entry)
        if len(pair) != 2:
            raise DataError(f"Found invalid map entry, expected length 2 but found :{len(pair)}")
        key = _hashable(value_of(key_schema, pair[0], replace_null=replace_null))
        read[key] = value_of(value_schema, pair[1], replace_null=replace_null)
    return read


def _hashable(key: Any) -> Any:
    """A value as a map's key: a list becomes a tuple, a map is refused."""
    if isinstance(key, list):
        return tuple(map(_hashable, cast("list[Any]", key)))
    if isinstance(key, dict):
        raise DataError("A map cannot be the key of a map")
    return key


def _struct(schema: Schema, node: Any, *, replace_null: bool) -> Struct:
    if not isinstance(node, dict):
        raise DataError(f"Structs should be encoded as JSON objects, but found {node_type(node)}")
    members = cast("dict[str, Any]", node)
    values: list[Any] = []
    for field in schema.fields:
        of = field.schema
        value = value_of(of, members.get(field.name), replace_null=replace_null)
        if value is not None and of.name in LOGICAL and of.type in _CONTAINERS:
            raise ClassCastError(f"a logical value is no {of.type}")
        if (value is None and not of.optional) or of.type in ("ARRAY", "MAP"):
            check_value(of, value, field.name)
        values.append(value)
    return Struct(schema, values)


def _logical(schema: Schema, node: Any) -> Any:
    whole = isinstance(node, int) and not isinstance(node, bool)
    if schema.name == DECIMAL:
        return decimal_of_node(schema, node)
    if schema.name == TIMESTAMP:
        if not whole:
            raise DataError(
                f"Invalid type for Timestamp, underlying representation should be integral but was {node_type(node)}"
            )
        return from_internal(schema, wrap_int64(node))
    if not whole or not -(2**31) <= node < 2**31:
        name = "Date" if schema.name == DATE else "Time"
        raise DataError(
            f"Invalid type for {name}, underlying representation should be integer but was {node_type(node)}"
        )
    return from_internal(schema, node)


def decimal_of_node(schema: Schema, node: Any) -> Decimal:
    """A number as it is written, whatever the schema's scale, or Base64 of an unscaled value. Raises DataError."""
    if isinstance(node, Decimal):
        return node or node.copy_abs()  # BigDecimal's zero has no sign
    if isinstance(node, int) and not isinstance(node, bool):
        return Decimal(node)
    if not isinstance(node, str):
        raise DataError(
            "Invalid type for Decimal, underlying representation should be numeric or bytes but was " + node_type(node)
        )
    try:
        data = decode_base64(node)
        if not data:
            raise ValueError("Zero length BigInteger")
        return decimal_from_bytes(schema, data)
    except (ValueError, DataError, NullPointerError) as error:
        raise DataError("Invalid bytes for Decimal field") from error
