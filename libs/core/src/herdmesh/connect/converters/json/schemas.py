"""Schemas in JsonConverter's JSON: `{"type":"int32","optional":false,...}` to a Schema and back
(docs/reference/connect/transforms-converters.md, sections 4.1 and 4.2).

Owns the members, their order and the errors.

Invariant: the result of `text_of` is read back as the same schema, unless it has a default that Java itself cannot read
back (a struct's).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from herdmesh.connect.converters.json.nodes import value_of
from herdmesh.connect.errors import DataError, SchemaBuilderError
from herdmesh.connect.json_text import quote
from herdmesh.connect.model import Schema, SchemaBuilder

_NAMES = {
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
    "ARRAY": "array",
    "MAP": "map",
    "STRUCT": "struct",
}
_PRIMITIVES = {text: kind for kind, text in _NAMES.items() if kind not in ("ARRAY", "MAP", "STRUCT")}


def schema_of(node: Any, *, replace_null: bool) -> Schema | None:
    """The schema that a node describes; None for null.

    Raises:
        DataError: the node is no schema, with Connect's text.
        SchemaBuilderError: the schema cannot be built, for example because its default does not fit.
    """
    if node is None:
        return None
    members = cast("dict[str, Any]", node) if isinstance(node, dict) else {}
    kind = members.get("type")
    if not isinstance(kind, str):
        raise DataError("Schema must contain 'type' field")
    builder = _builder(kind, members, replace_null=replace_null)
    if members.get("optional") is True:
        builder.optional()
    else:
        builder.required()
    if isinstance(name := members.get("name"), str):
        builder.name(name)
    version = members.get("version")
    if isinstance(version, int) and not isinstance(version, bool):
        builder.version((version + 0x80000000 & 0xFFFFFFFF) - 0x80000000)
    if isinstance(doc := members.get("doc"), str):
        builder.doc(doc)
    if isinstance(parameters := members.get("parameters"), dict):
        for name, value in cast("dict[str, Any]", parameters).items():
            if not isinstance(value, str):
                raise DataError("Schema parameters must have string values.")
            builder.parameter(name, value)
    if "default" in members:
        _put_default(builder, members["default"], replace_null=replace_null)
    return builder.build()


def _builder(kind: str, members: dict[str, Any], *, replace_null: bool) -> SchemaBuilder:
    if kind in _PRIMITIVES:
        return SchemaBuilder(_PRIMITIVES[kind])
    if kind == "array":
        if members.get("items") is None:
            raise DataError("Array schema did not specify the element type")
        return SchemaBuilder.array(schema_of(members["items"], replace_null=replace_null))
    if kind == "map":
        if "keys" not in members:
            raise DataError("Map schema did not specify the key type")
        if "values" not in members:
            raise DataError("Map schema did not specify the value type")
        return SchemaBuilder.map(
            schema_of(members["keys"], replace_null=replace_null),
            schema_of(members["values"], replace_null=replace_null),
        )
    if kind != "struct":
        raise DataError(f"Unknown schema type: {kind}")
    fields = members.get("fields")
    if not isinstance(fields, list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    builder = SchemaBuilder("STRUCT")
    for field in cast("list[Any]", fields):
        name = cast("dict[str, Any]", field).get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        builder.field(name, schema_of(field, replace_null=replace_null))
    return builder


def _put_default(builder: SchemaBuilder, node: Any, *, replace_null: bool) -> None:
    value = value_of(builder.build(), node, replace_null=replace_null)
    if builder.type == "STRUCT" and value is not None:
        # Java compares the default's schema with the builder, which equals no schema.
        raise SchemaBuilderError("Invalid default value")
    builder.default_value(value)


def text_of(schema: Schema | None, default_text: Callable[[Schema], str], field: str | None = None) -> str:
    """The schema's JSON; `default_text` writes its default. `field` is the name of the struct field with this schema.
    None = no schema, which is possible for the elements of an array.
    """
    if schema is None:
        return "null"
    parts = [f'"type":"{_NAMES[schema.type]}"']
    if schema.type == "ARRAY":
        parts.append(f'"items":{text_of(schema.value_schema, default_text)}')
    elif schema.type == "MAP":
        parts.append(f'"keys":{text_of(schema.key_schema, default_text)}')
        parts.append(f'"values":{text_of(schema.value_schema, default_text)}')
    elif schema.type == "STRUCT":
        fields = (text_of(one.schema, default_text, one.name) for one in schema.fields)
        parts.append(f'"fields":[{",".join(fields)}]')
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{quote(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{quote(schema.doc)}')
    if schema.parameters:
        members = (f"{quote(name)}:{quote(value)}" for name, value in schema.parameters.items())
        parts.append(f'"parameters":{{{",".join(members)}}}')
    if schema.default is not None:
        parts.append(f'"default":{default_text(schema)}')
    if field is not None:
        parts.append(f'"field":{quote(field)}')
    return "{" + ",".join(parts) + "}"
