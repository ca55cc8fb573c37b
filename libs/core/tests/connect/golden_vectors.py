"""Reading the golden vectors: their files, and the tagged form of values (golden README).

Owns the mapping from a vector's value to the data model and back to comparable form. Owns no test.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from herdmesh.connect.data import (
    BigInteger,
    Field,
    Float32,
    Int8,
    Int16,
    Int32,
    JavaDate,
    Schema,
    Struct,
)

Vector = dict[str, Any]

_FOLDER = Path(__file__).parent / "golden"
_TYPES = {"float": "FLOAT32", "double": "FLOAT64"}
_LOGICAL = "org.apache.kafka.connect.data."
_MARKS = {"INT8": Int8, "INT16": Int16, "INT32": Int32}


def vectors(name: str) -> list[Vector]:
    """Every line of a golden file."""
    with (_FOLDER / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def unbase64(text: str | None) -> bytes | None:
    """Bytes of a `*_b64` member."""
    return None if text is None else base64.b64decode(text)


class Opaque:
    """A Java object of a class the data model does not have; prints as Java printed it."""

    def __init__(self, java_class: str, text: str) -> None:
        self.java_class = java_class
        self.text = text

    def __str__(self) -> str:
        return self.text


def schema_of(schema: Mapping[str, Any] | None) -> Schema | None:
    """A schema in JsonConverter's schema JSON."""
    if schema is None:
        return None
    kind: str = schema["type"]
    return Schema(
        type=_TYPES.get(kind) or kind.upper(),
        optional=schema.get("optional", False),
        name=schema.get("name"),
        version=schema.get("version"),
        doc=schema.get("doc"),
        parameters=schema.get("parameters"),
        default=schema.get("default"),
        fields=tuple(Field(field["field"], _must(schema_of(field))) for field in schema.get("fields", ())),
        key_schema=schema_of(schema.get("keys")),
        value_schema=schema_of(schema.get("items") or schema.get("values")),
    )


def _must(schema: Schema | None) -> Schema:
    assert schema is not None
    return schema


def value_of(value: Any, schema: Schema | None = None) -> Any:
    """A vector's value as the data model has it."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(members) <= 2:
            tag, content = next(iter(members.items()), ("", None))
            if tag.startswith("$"):
                return _tagged(tag, content, members, schema)
        fields = {field.name: field.schema for field in schema.fields} if schema is not None else {}
        if schema is not None and schema.type == "STRUCT" and fields.keys() == members.keys():
            # A Struct has all its fields; anything less was a Map given under a struct schema.
            return Struct(schema, {name: value_of(item, fields.get(name)) for name, item in members.items()})
        inner = schema.value_schema if schema is not None else None
        return {name: value_of(item, inner) for name, item in members.items()}
    if isinstance(value, list):
        inner = schema.value_schema if schema is not None else None
        return [value_of(item, inner) for item in cast("list[Any]", value)]
    if schema is not None and value is not None and not isinstance(value, str | bool):
        return _typed(value, schema)
    return value


def _typed(number: Any, schema: Schema) -> Any:
    """A plain number under a schema."""
    if schema.type == "FLOAT32":
        return Float32(number)
    if schema.type == "FLOAT64":
        return float(number)
    return _MARKS.get(schema.type, int)(number)


def _tagged(tag: str, content: Any, members: Vector, schema: Schema | None) -> Any:
    if tag in ("$f32", "$f64", "$f"):
        return (Float32 if tag == "$f32" else float)(str(content).replace("Infinity", "inf"))
    if tag in ("$i8", "$i16", "$i32", "$i64"):
        return {"$i8": Int8, "$i16": Int16, "$i32": Int32, "$i64": int}[tag](content)
    if tag in ("$bytes", "$bytebuffer"):
        data = base64.b64decode(content)
        return data if tag == "$bytes" else memoryview(data)
    if tag == "$decimal":
        unscaled, scale = content
        sign, digits = (1, unscaled[1:]) if unscaled.startswith("-") else (0, unscaled)
        return Decimal((sign, tuple(map(int, digits)), -scale))
    if tag == "$map":
        key_schema = schema.key_schema if schema is not None else None
        return {value_of(key, key_schema): value_of(item) for key, item in content}
    if tag == "$struct":
        return value_of(content, schema_of(members["schema"]))
    if tag == "$java":
        return Opaque(content, members["string"])
    if tag == "$bigint":
        return BigInteger(content)
    milliseconds = content * 86_400_000 if tag == "$date" else content
    return JavaDate(milliseconds)


def comparable(value: Any) -> Any:
    """A value in a form whose equality is that of the vectors: types told apart, floats by bits, maps unordered."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return ("map", sorted(((comparable(key), comparable(item)) for key, item in items), key=repr))
    if isinstance(value, list | tuple):
        return ("list", [comparable(item) for item in cast("list[Any]", value)])
    if isinstance(value, bytes | bytearray | memoryview):
        return ("bytes", bytes(cast(bytes, value)))
    if isinstance(value, Float32):
        return ("Float32", Float32(value).hex())
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, Decimal):
        return ("Decimal", value.as_tuple())
    if isinstance(value, Opaque):
        return ("java", value.java_class, value.text)
    return (type(value).__name__, value)
