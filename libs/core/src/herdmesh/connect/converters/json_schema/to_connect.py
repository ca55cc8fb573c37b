"""Conversion from a JSON Schema to a Connect schema.

Owns the rules; the other direction is `from_connect`. Source: Confluent's `JsonSchemaData.toConnectSchema`,
`allOfToConnectSchema`.

Differences from Confluent's converter: a schema that contains itself is refused by name (schemas are immutable and
interned, so none can contain itself), and so is a schema that allows anything (Confluent's makes a Variant of it).
Properties without `connect.index` are in the order of the text, where Java uses the order of a hash map, and two
properties with the same index are both kept.

Invariant: a schema from `from_connect` is converted back to the original Connect schema, apart from what its options
leave out.
"""

from __future__ import annotations

from typing import Any, cast

from herdmesh.connect.converters.json_schema import options as names
from herdmesh.connect.converters.json_schema.options import JsonSchemaOptions
from herdmesh.connect.converters.json_schema.tree import JsonTree, Part, SchemaPlace
from herdmesh.connect.converters.json_schema.values import Values
from herdmesh.connect.converters.registered_options import ANY_UNION, UNION_PREFIX
from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.model import STRING, Schema, check_value

_NUMBERS = {
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "float32": "FLOAT32", "float64": "FLOAT64",
    "bytes": "BYTES",
}  # fmt: skip
_COMBINED = frozenset(("allOf", "anyOf", "oneOf"))


def connect_schema(tree: JsonTree, options: JsonSchemaOptions, version: int | None = None) -> Schema:
    """The Connect schema. `version` applies where the schema itself has no version. Raises DataError when Connect has
    no such schema.
    """
    try:
        return _Reading(tree, options).schema(tree.root, version=version)
    except RecursionError as error:
        raise DataError("Not a JSON Schema: nested too deeply") from error


class _Reading:
    """Conversion of one schema, with the schemas that enclose the current one."""

    def __init__(self, tree: JsonTree, options: JsonSchemaOptions) -> None:
        self._tree, self._options = tree, options
        self._values = Values(options)
        self._within: list[int] = []
        self._unions = 0

    def schema(self, place: SchemaPlace, *, version: int | None = None, optional: bool = False) -> Schema:
        """The Connect schema; `optional` comes from the position that the schema is used at."""
        return self._of(self._tree.part(place), version, optional)

    def _of(self, part: Part, version: int | None, optional: bool) -> Schema:
        if part.kind == "$ref":
            return self.schema(self._tree.resolve(part.place), version=version, optional=optional)
        here = id(part.place.node)
        if here in self._within:
            title = part.place.members.get("title", "without a title")
            raise DataError(f"The JSON Schema {title!r} contains itself: such schemas have no Connect schema here")
        self._within.append(here)
        try:
            if part.kind in _COMBINED:
                return self._combined(part, version, optional)
            return self._finished(self._base(part), part.place, version, optional)
        finally:
            self._within.pop()

    def _base(self, part: Part) -> Schema:
        members = part.place.members
        match part.kind:
            case "boolean":
                return Schema("BOOLEAN")
            case "integer" | "number":
                given = members.get("connect.type")
                if given is None:
                    return Schema("INT64" if part.kind == "integer" else "FLOAT64")
                if given not in _NUMBERS:
                    raise DataError(f"Unsupported type {given}")
                return Schema(_NUMBERS[given])
            case "string":
                return Schema("BYTES" if members.get("connect.type") == "bytes" else "STRING")
            case "const":
                return self._enum([members["const"]])
            case "enum":
                symbols = members["enum"]
                if not isinstance(symbols, list):
                    raise DataError(f"Not a JSON Schema: enum needs values, not {symbols!r}")
                return self._enum(cast("list[Any]", symbols))
            case "array":
                return self._array(part.place)
            case "object":
                return self._object(part.place)
            case "null":
                raise DataError("Unsupported schema type null: Connect has no schema for null alone")
            case "any":
                raise DataError("A JSON Schema that allows anything has no Connect schema here: name a type")
            case _:
                raise DataError(f"Unsupported schema type {part.kind}")

    def _enum(self, values: list[Any]) -> Schema:
        parameters = {self._options.enum: ""}
        for index, value in enumerate(values):
            symbol = names.NULL_SYMBOL if value is None else _text(value)
            parameters[f"{self._options.enum}.{symbol}"] = str(index) if self._options.general_sums else symbol
        return Schema("STRING", parameters=parameters)

    def _array(self, place: SchemaPlace) -> Schema:
        items = place.members.get("items")
        if not isinstance(items, dict | bool):
            raise DataError("Array schema did not specify the items type")
        item = place.at(items)  # pyright: ignore[reportUnknownArgumentType]
        entry = self._tree.resolve(item)
        if place.members.get("connect.type") == "map" and self._tree.part(entry).kind == "object":
            key, value = self._properties(entry).get(names.KEY), self._properties(entry).get(names.VALUE)
            if key is None or value is None:
                raise DataError("A map as an array needs items with the properties key and value")
            return Schema("MAP", key_schema=self.schema(key), value_schema=self.schema(value))
        return Schema("ARRAY", value_schema=self.schema(item))

    def _object(self, place: SchemaPlace) -> Schema:
        members = place.members
        if members.get("connect.type") == "map":
            values = members.get("additionalProperties")
            if not isinstance(values, dict | bool):
                raise DataError("A map as an object needs additionalProperties, the schema of its values")
            return Schema("MAP", key_schema=STRING, value_schema=self.schema(place.at(values)))  # pyright: ignore[reportUnknownArgumentType]
        properties = list(self._properties(place).items())
        order = [_whole(one.members.get("connect.index"), at) for at, (_, one) in enumerate(properties)]
        properties = [properties[at] for at in sorted(range(len(properties)), key=lambda at: order[at])]
        return Schema("STRUCT", fields=self._fields(properties, self._required(place)))

    def _properties(self, place: SchemaPlace) -> dict[str, SchemaPlace]:
        properties: Any = place.members.get("properties", {})
        if not isinstance(properties, dict):
            raise DataError(f"Not a JSON Schema: properties must be an object, not {properties!r}")
        return {name: place.at(one) for name, one in cast("dict[str, Any]", properties).items()}

    def _required(self, place: SchemaPlace) -> frozenset[str]:
        required = place.members.get("required")
        return frozenset(map(str, cast("list[Any]", required))) if isinstance(required, list) else frozenset()

    def _fields(self, properties: list[tuple[str, SchemaPlace]], required: frozenset[str]) -> list[tuple[str, Schema]]:
        loose = self._options.optional_properties
        return [(name, self.schema(one, optional=loose and name not in required)) for name, one in properties]

    # --- combinations of several schemas

    def _combined(self, part: Part, version: int | None, optional: bool) -> Schema:
        members = sorted(part.members, key=lambda one: self._tree.part(one).kind not in _COMBINED)
        if len(members) == 1 and self._options.flatten:
            return self.schema(members[0])
        if part.kind == "allOf":
            return self._all(members, version, optional)
        others = [one for one in members if self._tree.part(one).kind != "null"]
        if len(members) == 2 and len(others) == 1:
            return self.schema(others[0], version=version, optional=True)
        general = self._options.general_sums
        name = names.ONE_OF
        if general:
            name = f"{UNION_PREFIX}{self._unions}"
            self._unions += 1
        prefix = f"{UNION_PREFIX}field_" if general else f"{name}.field."
        fields = [(f"{prefix}{at}", self.schema(one, optional=True)) for at, one in enumerate(others)]
        built = Schema(
            "STRUCT", len(others) < len(members), name, parameters={ANY_UNION: name} if general else None, fields=fields
        )
        return self._finished(built, part.place, version, optional)

    def _all(self, members: list[SchemaPlace], version: int | None, optional: bool) -> Schema:
        properties: dict[str, SchemaPlace] = {}
        required: set[str] = set()
        for one in members:
            self._collect(one, properties, required, 0)
        if properties:
            fields = self._fields(list(properties.items()), frozenset(required))
            return Schema("STRUCT", optional, fields=fields)
        kinds = {self._tree.part(one).kind: one for one in members}
        number = kinds.get("integer", kinds.get("number"))
        chosen = next((kinds[kind] for kind in ("oneOf", "anyOf", "allOf") if kind in kinds), None)
        if chosen is None:
            text = kinds.get("string")
            if "const" in kinds:
                chosen = text or number
            elif "enum" in kinds:
                chosen = kinds["enum"] if text is not None else number
            elif text is not None:
                chosen = number or text
            else:
                chosen = kinds.get("$ref")
        if chosen is None:
            raise DataError(f"Unsupported allOf of {', '.join(kinds)}")
        return self.schema(chosen, version=version, optional=optional)

    def _collect(self, place: SchemaPlace, properties: dict[str, SchemaPlace], required: set[str], depth: int) -> None:
        if depth > 50:
            raise DataError("An allOf contains itself: such schemas have no Connect schema here")
        place = self._tree.resolve(place)
        part = self._tree.part(place)
        if part.kind == "allOf":
            for one in part.members:
                self._collect(one, properties, required, depth + 1)
        elif part.kind == "object":
            found = self._properties(place)
            properties.update(found)
            required.difference_update(found)
            required.update(self._required(place) & found.keys())

    # --- attributes that a schema declares

    def _finished(self, base: Schema, place: SchemaPlace, version: int | None, optional: bool) -> Schema:
        members = place.members
        own = members.get("connect.version")
        title, description = members.get("title"), members.get("description")
        built = base.replace(
            name=base.name if base.name is not None or not isinstance(title, str) else title,
            version=own if isinstance(own, int) else version,
            doc=description if isinstance(description, str) else None,
            parameters={**(base.parameters or {}), **_parameters(members)} or None,
        )
        default = members.get("default")
        if default is not None:
            built = self._with_default(built, default)
        return built.replace(optional=True) if optional else built

    def _with_default(self, schema: Schema, default: Any) -> Schema:
        try:
            value = self._values.read(schema, default)
            check_value(schema, value)
        except ConnectError as error:
            raise DataError(f"Invalid default value {default!r} for {schema}: {error}") from error
        return schema.replace(default=value)


def _parameters(members: dict[str, Any]) -> dict[str, str]:
    given = members.get("connect.parameters")
    if not isinstance(given, dict):
        return {}
    return {name: str(value) for name, value in cast("dict[str, Any]", given).items()}


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
