"""Expansion of an outbox payload: JSON as a struct, with a schema inferred from it (Debezium's JsonSchemaData, 3.6.1).

Owns the inference of schemas and names.

Invariant: a payload is expanded as a whole or not at all; every value fits the inferred schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.model import OPTIONAL_STRING, Schema, SchemaBuilder, Struct, check_value

_BOOLEAN, _INT32, _INT64, _FLOAT64, _BYTES = (
    SchemaBuilder(name).optional().build() for name in ("BOOLEAN", "INT32", "INT64", "FLOAT64", "BYTES")
)
_KNOWN_MOST = 1_000
"""Maximum number of cached schemas: equal ones are one object, so that records of one shape stay together."""
_NOT_AVRO = re.compile(r"[^A-Za-z0-9_]")
_NOT_AVRO_FIRST = re.compile(r"[^A-Za-z_]")
_NOT_UNICODE_FIRST = re.compile(r"[^A-Za-z]")
_NOT_UNICODE = re.compile(r"[^A-Za-z0-9]")


def _avro(name: str) -> str:
    first = name[0]
    if _NOT_AVRO_FIRST.match(first):
        first = f"_{first}" if first.isdigit() else "_"
    return first + _NOT_AVRO.sub("_", name[1:])


def _avro_unicode(name: str) -> str:
    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"_u{units[at : at + 4]}" for at in range(0, len(units), 4))

    return _NOT_UNICODE_FIRST.sub(escape, name[:1]) + _NOT_UNICODE.sub(escape, name[1:])


NAME_ADJUSTMENTS: dict[str, Callable[[str], str]] = {
    "none": lambda name: name,
    "avro": _avro,
    "avro_unicode": _avro_unicode,
}
"""Function that adjusts a member's name, by field.name.adjustment.mode."""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_READER = json.JSONDecoder(parse_constant=_refuse)


class JsonPayload:
    """Expander of JSON texts. `keep_nulls`: members that are null become optional bytes, else they are left out."""

    def __init__(self, *, keep_nulls: bool, adjustment: str) -> None:
        self._null = _BYTES if keep_nulls else None
        self._adjust = NAME_ADJUSTMENTS[adjustment]
        self._known: dict[Schema, Schema] = {}

    def expand(self, name: str, text: str) -> Struct:
        """Expand a JSON object to a struct whose schema has this name. Raises DataError for any other text, and for an
        object without a possible schema.
        """
        if not text.startswith(("{", "[")):
            raise DataError(f"a payload that starts with {text[:1]!r} is not a JSON object")
        try:
            node = _READER.raw_decode(text)[0]  # like Jackson, ignores text after the value
        except (ValueError, RecursionError) as error:
            raise DataError(f"the payload is not JSON: {error}") from None
        if not isinstance(node, dict):
            raise DataError("only JSON objects are expanded, and the payload is an array")
        schema = self._struct(name, cast("dict[str, Any]", node))
        schema = self._known.get(schema, schema)
        if len(self._known) >= _KNOWN_MOST:
            self._known.clear()
        self._known[schema] = schema
        made = self._value(node, schema)
        check_value(schema, made)
        return made

    def _schema(self, key: str | None, node: Any) -> Schema | None:
        if node is None:
            return self._null
        if isinstance(node, bool):
            return _BOOLEAN
        if isinstance(node, str):
            return OPTIONAL_STRING
        if isinstance(node, list):
            elements = cast("list[Any]", node)
            return SchemaBuilder.array(self._element(key, elements)).optional().build() if elements else None
        if isinstance(node, dict):
            return self._struct(key, cast("dict[str, Any]", node))
        if isinstance(node, int) and -(1 << 63) <= node < 1 << 63:
            return _INT32 if -(1 << 31) <= node < 1 << 31 else _INT64
        return _FLOAT64

    def _struct(self, key: str | None, node: dict[str, Any]) -> Schema:
        builder = SchemaBuilder("STRUCT").optional()
        if key is not None:
            builder.name(key)
        names: set[str] = set()
        for member, item in node.items():
            if not member:
                raise DataError("a member without a name cannot be a field")
            name = self._adjust(member)
            schema = self._schema(f"{key}.{name}" if key and key.strip() else name, item)
            if schema is not None and name not in names:
                names.add(name)
                builder.field(name, schema)
        return builder.build()

    def _element(self, key: str | None, elements: list[Any]) -> Schema:
        first = next((one for one in elements if one is not None), None)
        kind = _kind(first)
        numbers = {id(self._schema(None, one)) for one in elements if one is not None} if kind == "number" else ()
        if any(one is not None and _kind(one) != kind for one in elements) or len(numbers) > 1:
            raise DataError(f"array {key} has elements of several types")
        if isinstance(first, dict):
            found = dict.fromkeys(self._struct(key, one) for one in elements if one is not None)
            return _merged(list(found))
        schema = self._schema(None, first)
        if schema is None:
            raise DataError(f"array {key} has no element that determines its type")
        return schema

    def _value(self, node: Any, schema: Schema) -> Any:
        if isinstance(node, dict):
            given = cast("dict[str, Any]", node)
            members = {self._adjust(name): item for name, item in reversed(given.items())}
            values = [
                self._value(members[field.name], field.schema) if field.name in members else None
                for field in schema.fields
            ]
            return Struct(schema, values)
        if isinstance(node, list):
            of_element = schema.value_schema
            assert of_element is not None
            return [self._value(one, of_element) for one in cast("list[Any]", node)]
        return node


def _kind(node: Any) -> str:
    return "number" if isinstance(node, int | float) and not isinstance(node, bool) else type(node).__name__


def _merged(schemas: list[Schema]) -> Schema:
    """One schema for objects of several schemas: it has the fields of all. Bytes, which stand for null, give way to
    another type. Debezium documents no order of the fields; here it is the order of the array. Debezium makes the
    merged schema required.
    """
    if len(schemas) == 1:
        return schemas[0]
    fields: dict[str, Schema] = {}
    for schema in schemas:
        for field in schema.fields:
            known = fields.get(field.name)
            if known is None or (known.type == "BYTES" and field.schema.type != "BYTES"):
                fields[field.name] = field.schema
    builder = SchemaBuilder("STRUCT")
    if schemas[0].name is not None:
        builder.name(schemas[0].name)
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()
