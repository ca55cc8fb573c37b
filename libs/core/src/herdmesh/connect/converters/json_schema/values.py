"""Reference path between Connect values and the JSON of JsonSchemaConverter, one value at a time.

Owns the differences from JsonConverter: unions, maps whose keys are not strings, and the meaning of null and of absent
values; numbers, texts, bytes and logical types are the same (`json.nodes`, `json.texts`). Schemas without these
differences (`is_plain`) also have JsonConverter's fast paths. Source: Confluent's `JsonSchemaData.toConnectData`,
`fromConnectData`.

Invariant: every tree gives a value or a DataError; a written value is read back as that value.
"""

from __future__ import annotations

from typing import Any, cast

from herdmesh.connect.converters.json.nodes import node_type, value_of
from herdmesh.connect.converters.json.texts import Texts
from herdmesh.connect.converters.json_schema.options import KEY, VALUE, JsonSchemaOptions, is_object_map, is_union
from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import LOGICAL, Schema, Struct, check_value, map_key

_CONTAINERS = frozenset(("ARRAY", "MAP", "STRUCT"))
_INTEGRAL = frozenset(("INT8", "INT16", "INT32", "INT64"))


def is_plain(schema: Schema) -> bool:
    """True when values are written as in JsonConverter: the schema has no union and no map with keys other than
    strings.
    """
    match schema.type:
        case "STRUCT":
            return not is_union(schema) and all(is_plain(field.schema) for field in schema.fields)
        case "ARRAY":
            return is_plain(cast(Schema, schema.value_schema))
        case "MAP":
            return is_object_map(schema) and is_plain(cast(Schema, schema.value_schema))
        case _:
            return True


class Values:
    """Reader and writer of values with these options."""

    def __init__(self, options: JsonSchemaOptions) -> None:
        self._replace_null = not options.ignore_default
        self._texts = Texts(options.numeric, self._replace_null)

    @property
    def texts(self) -> Texts:
        """The writer of plain values."""
        return self._texts

    # --- reading

    def read(self, schema: Schema, node: Any) -> Any:
        """The value of a tree of `jackson.loads_node`; null becomes the default where there is one. Raises
        DataError."""
        if node is None:
            if schema.default is not None:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type} field")
        if schema.type not in _CONTAINERS or schema.name in LOGICAL:
            return value_of(schema, node, replace_null=True)
        if schema.type == "STRUCT":
            return self._read_union(schema, node) if is_union(schema) else self._read_struct(schema, node)
        if schema.type == "MAP":
            return self._read_map(schema, node)
        items: list[Any] = []
        if isinstance(node, list):
            items = cast("list[Any]", node)
        elif isinstance(node, dict):
            items = list(cast("dict[str, Any]", node).values())
        return [self.read(cast(Schema, schema.value_schema), one) for one in items]

    def _read_struct(self, schema: Schema, node: Any) -> Struct:
        if not isinstance(node, dict):
            raise DataError(f"Structs should be encoded as JSON objects, but found {node_type(node)}")
        members = cast("dict[str, Any]", node)
        values: list[Any] = []
        for field in schema.fields:
            if field.name in members:
                value = self.read(field.schema, members[field.name])
                if value is not None:
                    check_value(field.schema, value, field.name)
            else:
                value = field.schema.default
            values.append(value)
        return Struct(schema, values)

    def _read_map(self, schema: Schema, node: Any) -> dict[Any, Any]:
        of_key, of_value = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        if is_object_map(schema):
            if not isinstance(node, dict):
                raise DataError(
                    f"Maps with string fields should be encoded as JSON objects, but found {node_type(node)}"
                )
            return {name: self.read(of_value, one) for name, one in cast("dict[str, Any]", node).items()}
        if not isinstance(node, list):
            raise DataError(
                "Maps with non-string fields should be encoded as JSON array of objects, but found " + node_type(node)
            )
        read: dict[Any, Any] = {}
        for one in cast("list[Any]", node):
            if not isinstance(one, dict):
                raise DataError(f"Found invalid map entry instead of object: {node_type(one)}")
            entry = cast("dict[str, Any]", one)
            if len(entry) != 2:
                raise DataError(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key = self.read(of_key, entry[KEY]) if KEY in entry else of_key.default
            read[map_key(key)] = self.read(of_value, entry[VALUE]) if VALUE in entry else of_value.default
        return read

    def _read_union(self, schema: Schema, node: Any) -> Struct:
        best, most = -1, 0
        for field in schema.fields:
            if _is_instance(field.schema, node):
                best = field.index
                break
            matching = _matching(field.schema, node)
            if matching > most:
                best, most = field.index, matching
        if best < 0:
            raise DataError("Did not find matching oneof field for data")
        chosen = schema.fields[best]
        return Struct(schema).put(chosen.name, self.read(chosen.schema, node))

    # --- writing

    def text(self, schema: Schema, value: Any) -> str | None:
        """The JSON of a value that fits the schema; None where the value is left out. Raises DataError."""
        if value is None:
            if schema.default is not None and self._replace_null:
                return self.text(schema, schema.default)
            return "null" if schema.optional else None
        if schema.type not in _CONTAINERS or schema.name in LOGICAL:
            return self._texts.text(schema, value)
        match schema.type:
            case "ARRAY":
                of = cast(Schema, schema.value_schema)
                return "[" + ",".join([self.text(of, one) or "null" for one in value]) + "]"
            case "MAP":
                return self._map(schema, value)
            case _:
                return self._struct(schema, value)

    def _map(self, schema: Schema, value: dict[Any, Any]) -> str:
        of_key, of_value = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        pairs = [(self.text(of_key, key) or "null", self.text(of_value, one) or "null") for key, one in value.items()]
        if is_object_map(schema):
            return "{" + ",".join([f"{key}:{one}" for key, one in pairs]) + "}"
        return "[" + ",".join([f'{{"{KEY}":{key},"{VALUE}":{one}}}' for key, one in pairs]) + "]"

    def _struct(self, schema: Schema, value: Struct) -> str | None:
        if value.schema is not schema:
            raise DataError("Mismatching schema.")
        if is_union(schema):
            for field, one in zip(schema.fields, value.values, strict=True):
                one = field.schema.default if one is None and self._replace_null else one
                if one is not None:
                    return self.text(field.schema, one)
            return self.text(schema, None)
        members = (
            (field.name, self.text(field.schema, one)) for field, one in zip(schema.fields, value.values, strict=True)
        )
        return "{" + ",".join([f"{jackson.quote(name)}:{text}" for name, text in members if text is not None]) + "}"


def _is_instance(schema: Schema, node: Any) -> bool:
    """True when the node belongs to this schema of a union. For schemas that are no structs."""
    if schema.type in _INTEGRAL:
        return isinstance(node, int) and not isinstance(node, bool)
    match schema.type:
        case "FLOAT32" | "FLOAT64":
            return node_type(node) == "NUMBER"
        case "BOOLEAN":
            return isinstance(node, bool)
        case "STRING":
            return isinstance(node, str)
        case "ARRAY":
            return isinstance(node, list)
        case "MAP":
            return isinstance(node, dict | list)
        case _:
            return False  # also for bytes: the node is a text, never Jackson's own binary node


def _matching(schema: Schema, node: Any) -> int:
    """Number of the object's properties, at all depths, for which the struct has a field."""
    if schema.type != "STRUCT" or not isinstance(node, dict):
        return 0
    members = cast("dict[str, Any]", node)
    common = [field for field in schema.fields if field.name in members]
    return len(common) + sum(_matching(field.schema, members[field.name]) for field in common)
