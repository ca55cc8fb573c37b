"""Conversion from a Connect schema to a JSON Schema.

Owns the rules; the other direction is `to_connect`. Source: Confluent's `JsonSchemaData.rawSchemaFromConnectSchema`.

Invariant: equal Connect schemas give equal texts. (Java's text has the same members, some in the order of a hash map: a
registry may store a schema of Java's converter and one of this converter as two versions.)
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from herdmesh.connect.converters.json_schema import options as names
from herdmesh.connect.converters.json_schema.options import JsonSchemaOptions, is_enum, is_object_map, is_union
from herdmesh.connect.converters.json_schema.values import Values
from herdmesh.connect.model import DECIMAL, Schema

_INTEGERS = frozenset(("INT8", "INT16", "INT32", "INT64"))
_NULL = {"type": "null"}


def json_schema(schema: Schema, options: JsonSchemaOptions) -> str:
    """The text of the schema."""
    return msgspec.json.encode(_Writing(options).node(schema)).decode()


class _Writing:
    """Conversion of schemas with these options."""

    def __init__(self, options: JsonSchemaOptions) -> None:
        self._options = options
        self._values = Values(options)

    def node(self, schema: Schema, index: int | None = None, *, bare: bool = False) -> dict[str, Any]:
        """The schema; `index` is its index in a struct, and `bare` leaves null out, as in a union."""
        placed = {} if index is None else {"connect.index": index}
        if is_union(schema):
            members = [self.node(_required(field.schema), field.index, bare=True) for field in schema.fields]
            return {"oneOf": [_NULL, *members] if schema.optional else members, **placed}
        if schema.type == "STRUCT" and schema.optional:
            return {"oneOf": [_NULL, self.node(_required(schema))], **placed}
        made, connect_type = self._base(schema)
        said: dict[str, Any] = {}
        if schema.name is not None:
            said["title"] = schema.name
        if schema.doc is not None:
            said["description"] = schema.doc
        if schema.default is not None:
            text = self._values.text(schema, schema.default)
            said["default"] = None if text is None else msgspec.Raw(text.encode())
        own = {**said, **made, **self._own(schema, connect_type)}
        if schema.optional and not bare:
            return {"oneOf": [_NULL, own], **placed}
        return {**own, **placed}

    def _own(self, schema: Schema, connect_type: str | None) -> dict[str, Any]:
        """Connect's own properties."""
        found: dict[str, Any] = {}
        if connect_type is not None:
            found["connect.type"] = connect_type
        if schema.version is not None:
            found["connect.version"] = schema.version
        kept = {key: one for key, one in (schema.parameters or {}).items() if not key.startswith(names.NAMESPACE)}
        if kept:
            found["connect.parameters"] = kept
        return found

    def _base(self, schema: Schema) -> tuple[dict[str, Any], str | None]:
        """The members for the type, and `connect.type`."""
        match schema.type:
            case "BOOLEAN":
                return {"type": "boolean"}, None
            case "STRING":
                return (self._enum(schema) if is_enum(schema) else {"type": "string"}), None
            case "BYTES":
                numeric = schema.name == DECIMAL and self._options.numeric
                return {"type": "number" if numeric else "string"}, "bytes"
            case "ARRAY":
                return {"type": "array", "items": self.node(cast(Schema, schema.value_schema))}, None
            case "MAP":
                return self._map(schema), "map"
            case "STRUCT":
                made: dict[str, Any] = {"type": "object"}
                if schema.fields:
                    made["properties"] = {field.name: self.node(field.schema, field.index) for field in schema.fields}
                if not self._options.open_objects:
                    made["additionalProperties"] = False
                return made, None
            case _:
                return {"type": "integer" if schema.type in _INTEGERS else "number"}, schema.type.lower()

    def _enum(self, schema: Schema) -> dict[str, Any]:
        prefix = f"{self._options.enum}."
        symbols = [key[len(prefix) :] for key in schema.parameters or {} if key.startswith(prefix)]
        return {"enum": [None if one == names.NULL_SYMBOL else one for one in symbols]}

    def _map(self, schema: Schema) -> dict[str, Any]:
        value = cast(Schema, schema.value_schema)
        if is_object_map(schema):
            return {"type": "object", "additionalProperties": self.node(value)}
        entry = {names.KEY: self.node(cast(Schema, schema.key_schema), 0), names.VALUE: self.node(value, 1)}
        return {"type": "array", "items": {"type": "object", "properties": entry}}


def _required(schema: Schema) -> Schema:
    return schema.replace(optional=False) if schema.optional else schema
