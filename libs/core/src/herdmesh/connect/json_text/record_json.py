"""Lossless JSON form of Connect data, which `herd transform` reads and prints, and the golden vectors use.

Owns the form. A schema is JsonConverter's schema JSON. Under a schema a value whose class fits it is plain JSON, and a
struct is an object of all its fields; everything else carries a tag:

    {"$i8": 1}  {"$i16": 1}  {"$i32": 1}  {"$i64": 1}      integers without a schema, or not the one their schema names
    {"$f32": 1.5}  {"$f64": 1.5}  {"$f": "NaN"}            floats, the same; and values that JSON has no number for
    {"$bytes": "AQ=="}  {"$bytebuffer": "AQ=="}            bytes, in Base64
    {"$decimal": ["1234", 2]}  {"$bigint": "1"}            unscaled number and scale; an integer of any size
    {"$date": days}  {"$time": ms}  {"$timestamp": ms}     java.util.Date under such a schema ($timestamp also without)
    {"$javadate": ms}                                      java.util.Date that its schema does not accept
    {"$map": [[key, value], ...]}                          a map with keys that are not strings
    {"$struct": {...}, "schema": {...}}                    a struct under another schema, or none
    {"$java": class, "string": "..."}                      any other object, which no schema accepts

A plain number without a schema is a Java Long, or a Double when it has a fraction or an exponent.

Invariant: `value_of(value_to(v, s), s)` is v, types included.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import DAY_MS, float32, float_text
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    FLOATS,
    INTEGERS,
    TIME,
    TIMESTAMP,
    BigInteger,
    ConnectRecord,
    Float32,
    Float64,
    Header,
    Int8,
    Int16,
    Int32,
    Int64,
    JavaDate,
    Schema,
    Struct,
    fits,
    map_key,
)

_JSON_TYPES = {"FLOAT32": "float", "FLOAT64": "double"}
_TYPES = {text: kind for kind, text in _JSON_TYPES.items()}
_INTEGERS = {"$i8": Int8, "$i16": Int16, "$i32": Int32, "$i64": Int64}
_INTEGER_TAGS: dict[type[object], str] = {kind: tag for tag, kind in _INTEGERS.items()}
_SCHEMA_OF_TAG = {"$i8": "INT8", "$i16": "INT16", "$i32": "INT32", "$i64": "INT64"}
_DATE_TAGS = {DATE: "$date", TIME: "$time", TIMESTAMP: "$timestamp"}


@dataclass(frozen=True, slots=True)
class JavaObject:
    """A Java object of a class outside the data model; prints as Java printed it."""

    java_class: str
    text: str

    def __str__(self) -> str:
        return self.text


# --- reading


def schema_of(text: Mapping[str, Any] | None) -> Schema | None:
    """Read a schema in JsonConverter's form; None = no schema."""
    if text is None:
        return None
    kind: str = text["type"]
    made = Schema(
        _TYPES.get(kind) or kind.upper(),
        optional=text.get("optional", False),
        name=text.get("name"),
        version=text.get("version"),
        doc=text.get("doc"),
        parameters=text.get("parameters"),
        fields=[(field["field"], _known(schema_of(field))) for field in text.get("fields") or ()],
        key_schema=schema_of(text.get("keys")),
        value_schema=schema_of(text.get("items") or text.get("values")),
    )
    default = text.get("default")
    return made if default is None else made.replace(default=_default_of(default, made))


def value_of(text: Any, schema: Schema | None = None) -> Any:
    """Read a value under that schema (None = schemaless). Raises DataError for an unknown tag."""
    if isinstance(text, dict):
        members = cast("dict[str, Any]", text)
        tag = next(iter(members), "")
        if tag.startswith("$") and len(members) <= 2:
            return _tagged(tag, members[tag], members, schema)
        if schema is not None and schema.type == "STRUCT":
            if schema.places.keys() == members.keys():
                return Struct(schema, [value_of(members[field.name], field.schema) for field in schema.fields])
            return {name: value_of(item) for name, item in members.items()}
        _, inner = Schema.inner(schema)
        return {name: value_of(item, inner) for name, item in members.items()}
    if isinstance(text, list):
        _, inner = Schema.inner(schema)
        return [value_of(item, inner) for item in cast("list[Any]", text)]
    if schema is not None and not isinstance(text, bool) and isinstance(text, int | float):
        return _number(text, schema)
    return text


def record_of(text: Mapping[str, Any]) -> ConnectRecord:
    """Read a record; every member but `topic` may be absent."""
    key_schema, value_schema = schema_of(text.get("keySchema")), schema_of(text.get("valueSchema"))
    headers = [
        Header(header["key"], value_of(header.get("value"), schema := schema_of(header.get("schema"))), schema)
        for header in text.get("headers") or ()
    ]
    return ConnectRecord(
        topic=text.get("topic"),
        partition=text.get("partition"),
        key=value_of(text.get("key"), key_schema),
        value=value_of(text.get("value"), value_schema),
        timestamp_ms=text.get("timestamp"),
        headers=headers,
        key_schema=key_schema,
        value_schema=value_schema,
        offset=text.get("kafkaOffset"),
        source_partition=text.get("sourcePartition"),
        source_offset=text.get("sourceOffset"),
    )


def _known(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("a field has no schema")
    return schema


def _number(number: float, schema: Schema) -> Any:
    if schema.type == "FLOAT32":
        return struct.unpack(">f", struct.pack(">f", number))[0]
    return float(number) if schema.type == "FLOAT64" else number


def _tagged(tag: str, content: Any, members: Mapping[str, Any], schema: Schema | None) -> Any:
    if tag in _INTEGERS:
        # A Long without a schema is Python's own int.
        return int(content) if tag == "$i64" and schema is None else _INTEGERS[tag](content)
    if tag in ("$f32", "$f64", "$f"):
        number = float(str(content).replace("Infinity", "inf"))
        return Float32(float32(number)) if tag == "$f32" else Float64(number) if tag == "$f64" and schema else number
    if tag == "$struct":
        return value_of(content, schema_of(members["schema"]))
    if tag == "$map":
        of_key, of_value = Schema.inner(schema)
        return {map_key(value_of(key, of_key)): value_of(item, of_value) for key, item in content}
    if tag == "$java":
        return JavaObject(content, members["string"])
    simple = _SIMPLE.get(tag)
    if simple is None:
        raise DataError(f"unknown tag {tag}")
    return simple(content)


def _decimal(content: tuple[str, int]) -> Decimal:
    unscaled, scale = content
    negative = unscaled.startswith("-")
    return Decimal((int(negative), tuple(map(int, unscaled.lstrip("-"))), -scale))


_SIMPLE: Mapping[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$bytebuffer": lambda content: memoryview(base64.b64decode(content)),
    "$decimal": _decimal,
    "$bigint": lambda content: BigInteger(int(content)),
    "$date": lambda content: JavaDate(content * DAY_MS),
    "$time": JavaDate,
    "$timestamp": JavaDate,
    "$javadate": JavaDate,
}


def _default_of(text: Any, schema: Schema) -> Any:
    """Read a default, which is in JsonConverter's payload form."""
    if schema.name == DECIMAL and isinstance(text, str):
        unscaled = int.from_bytes(base64.b64decode(text), "big", signed=True)
        return _decimal((str(unscaled), int((schema.parameters or {}).get("scale", "0"))))
    if schema.name in _DATE_TAGS and isinstance(text, int):
        return JavaDate(text * DAY_MS if schema.name == DATE else text)
    if schema.type == "BYTES" and isinstance(text, str):
        return base64.b64decode(text)
    if schema.type == "STRUCT" and isinstance(text, dict):
        members = cast("dict[str, Any]", text)
        return Struct(schema, [_default_of(members.get(field.name), field.schema) for field in schema.fields])
    if schema.type == "MAP" and isinstance(text, list):
        pairs = cast("list[tuple[Any, Any]]", text)
        of_key, of_value = _known(schema.key_schema), _known(schema.value_schema)
        return {_default_of(key, of_key): _default_of(item, of_value) for key, item in pairs}
    if schema.type in ("FLOAT32", "FLOAT64") and isinstance(text, str):
        return float(text.replace("Infinity", "inf"))
    _, inner = Schema.inner(schema)
    if isinstance(text, list) and inner is not None:
        return [_default_of(item, inner) for item in cast("list[Any]", text)]
    if isinstance(text, dict) and inner is not None:
        return {name: _default_of(item, inner) for name, item in cast("dict[str, Any]", text).items()}
    return value_of(text, schema)


# --- writing


def schema_to(schema: Schema | None) -> dict[str, Any] | None:
    """Write a schema in JsonConverter's form, with the members in its order."""
    if schema is None:
        return None
    text: dict[str, Any] = {"type": _JSON_TYPES.get(schema.type, schema.type.lower())}
    if schema.type == "ARRAY":
        text["items"] = schema_to(schema.value_schema)
    elif schema.type == "MAP":
        text |= {"keys": schema_to(schema.key_schema), "values": schema_to(schema.value_schema)}
    elif schema.type == "STRUCT":
        text["fields"] = [{**(schema_to(field.schema) or {}), "field": field.name} for field in schema.fields]
    text["optional"] = schema.optional
    for name in ("name", "version", "doc"):
        if getattr(schema, name) is not None:
            text[name] = getattr(schema, name)
    if schema.parameters:
        text["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        text["default"] = _default_to(schema.default, schema)
    return text


def value_to(value: Any, schema: Schema | None = None) -> Any:
    """Write a value under that schema (None = schemaless)."""
    if value is None or isinstance(value, bool | str):
        return value
    kind = cast("type[object]", type(value))
    plain = schema is not None and fits(schema, value)
    if isinstance(value, Struct):
        members = {
            field.name: value_to(item, field.schema)
            for field, item in zip(value.schema.fields, value.values, strict=True)
        }
        return members if value.schema is schema else {"$struct": members, "schema": schema_to(value.schema)}
    if isinstance(value, list | tuple):
        _, inner = Schema.inner(schema if plain else None)
        return [value_to(item, inner) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return _map_to(cast("dict[Any, Any]", value), schema if plain else None)
    if isinstance(value, JavaDate):
        return _date_to(int(value), schema)
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, memoryview):
        return {"$bytebuffer": base64.b64encode(cast(bytes, value)).decode()}
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        return {"$decimal": [("-" if sign else "") + "".join(map(str, digits)), -int(exponent)]}
    if isinstance(value, BigInteger):
        return {"$bigint": str(int(value))}
    if isinstance(value, int):
        # A plain number under a logical name is written as the underlying number.
        return (
            int(value)
            if plain or (kind is int and schema is not None and schema.type in INTEGERS)
            else {_INTEGER_TAGS.get(kind, "$i64"): int(value)}
        )
    if isinstance(value, float):
        named = kind is float and schema is not None and schema.type in FLOATS
        return _float_to(value, kind, schema, plain=plain or named)
    if isinstance(value, JavaObject):
        return {"$java": value.java_class, "string": value.text}
    return {"$java": f"{kind.__module__}.{kind.__qualname__}", "string": str(value)}


def record_to(record: ConnectRecord) -> dict[str, Any]:
    """Write a record, with all members that it has."""
    text: dict[str, Any] = {
        "kind": "source" if record.offset is None else "sink",
        "topic": record.topic,
        "partition": record.partition,
        "keySchema": schema_to(record.key_schema),
        "key": value_to(record.key, record.key_schema),
        "valueSchema": schema_to(record.value_schema),
        "value": value_to(record.value, record.value_schema),
        "timestamp": record.timestamp_ms,
        "headers": [
            {"key": header.key, "schema": schema_to(header.schema), "value": value_to(header.value, header.schema)}
            for header in record.headers
        ],
    }
    if record.offset is not None:
        text["kafkaOffset"] = record.offset
    return text


def _map_to(value: dict[Any, Any], schema: Schema | None) -> Any:
    of_key, of_value = Schema.inner(schema)
    if all(type(key) is str for key in value):
        return {key: value_to(item, of_value) for key, item in value.items()}
    return {"$map": [[value_to(key, of_key), value_to(item, of_value)] for key, item in value.items()]}


def _date_to(milliseconds: int, schema: Schema | None) -> dict[str, int]:
    tag = "$timestamp" if schema is None else _DATE_TAGS.get(schema.name or "")
    if tag is None or (tag == "$date" and milliseconds % DAY_MS) or (tag == "$time" and not 0 <= milliseconds < DAY_MS):
        return {"$javadate": milliseconds}
    return {tag: milliseconds // DAY_MS if tag == "$date" else milliseconds}


def _float_to(value: float, kind: type[object], schema: Schema | None, *, plain: bool) -> Any:
    number: Any = float(value)
    if math.isfinite(value) and (kind is Float32 or (schema is not None and schema.type == "FLOAT32")):
        number = float(float_text(value))  # the shortest number that parses to this float
    if not math.isfinite(number):
        number = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if plain:
        return number if isinstance(number, float) else {"$f": number}
    return {"$f32" if kind is Float32 else "$f64": number}


def _default_to(value: Any, schema: Schema) -> Any:
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        return base64.b64encode(
            unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        ).decode()
    if isinstance(value, JavaDate):
        return int(value) // DAY_MS if schema.name == DATE else int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(cast(bytes, value)).decode()
    if isinstance(value, Struct):
        return {
            field.name: None if item is None else _default_to(item, field.schema)
            for field, item in zip(value.schema.fields, value.values, strict=True)
        }
    of_key, inner = Schema.inner(schema)
    if isinstance(value, list | tuple) and inner is not None:
        return [_default_to(item, inner) for item in cast("list[Any]", value)]
    if isinstance(value, dict) and inner is not None and of_key is not None:
        pairs = cast("dict[Any, Any]", value)
        if of_key.type == "STRING":
            return {key: _default_to(item, inner) for key, item in pairs.items()}
        return [[_default_to(key, of_key), _default_to(item, inner)] for key, item in pairs.items()]
    if isinstance(value, float) and math.isfinite(value) and schema.type == "FLOAT32":
        return float(float_text(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return cast("object", value)
