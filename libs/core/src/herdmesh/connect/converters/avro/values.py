"""Conversion of values between Connect and fastavro, compiled once for each schema.

Owns the schema for fastavro (`wire_schema`) and the functions for values. Source: Confluent's
`AvroData.toConnectData`, `fromConnectData`.

The schema for fastavro has its own names without namespaces (`wire_name`), because in fastavro nested records, and
names without a namespace, inherit one. An enum with symbols that fastavro would refuse is represented by the int of its
bytes.

Each type of a real union is wrapped in a record of one field, named after the type's position. The name passes the type
to fastavro when writing and returns it when reading: a record's bytes are its fields' bytes, so Avro's bytes stay the
same.

Invariant: the input and output of the functions depend on the schema alone; a part without conversion costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from herdmesh.connect.converters.avro.options import AvroOptions
from herdmesh.connect.converters.avro.schemas import AvroTree, Node, is_null, kind_of
from herdmesh.connect.converters.avro.to_connect import is_map_entry, member_names, plain_member
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import (
    DECIMAL,
    TEMPORAL,
    Float32,
    Int8,
    Int16,
    Int32,
    Schema,
    Struct,
    decimal_from_bytes,
    decimal_to_bytes,
    from_internal,
    java_class,
    map_key,
    to_internal,
)

Change = Callable[[Any], Any]
_MEMBER = "union_member"
_PLAIN_SYMBOL = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def wire_name(full: str) -> str:
    """The name in fastavro's schema for a full name: unique, and without a namespace."""
    return "t_" + full.replace("_", "_u").replace(".", "_d")


def is_enum_by_number(node: Node) -> bool:
    """True when fastavro gets the enum as the int of its symbol's index. Java accepts letters of any script in
    symbols."""
    return kind_of(node) == "enum" and not all(map(_PLAIN_SYMBOL.fullmatch, node["symbols"]))


def wire_schema(tree: AvroTree, options: AvroOptions) -> Any:
    """The schema for fastavro: the same bytes, without logical types."""
    done: set[str] = set()
    members = 0

    def wire(node: Node) -> Any:
        nonlocal members
        node = tree.resolve(node)
        kind = kind_of(node)
        if kind == "union":
            if plain_member(tree, node, options) is not None:
                return [wire(one) for one in node]
            made: list[Any] = []
            for index, one in enumerate(node):
                if is_null(one):
                    made.append("null")
                    continue
                members += 1
                name = f"{_MEMBER}{members}"
                made.append({"type": "record", "name": name, "fields": [{"name": f"m{index}", "type": wire(one)}]})
            return made
        if kind == "array":
            return {"type": "array", "items": wire(node["items"])}
        if kind == "map":
            return {"type": "map", "values": wire(node["values"])}
        if kind not in ("record", "enum", "fixed"):
            return kind
        if is_enum_by_number(node):
            return "int"
        name = wire_name(node["name"])
        if name in done:
            return name
        done.add(name)
        if kind == "record":
            fields = [{**_own(field), "type": wire(field["type"])} for field in node["fields"]]
            return {"type": "record", "name": name, "fields": fields}
        if kind == "enum":
            return {"type": "enum", "name": name, "symbols": node["symbols"]}
        return {"type": "fixed", "name": name, "size": node["size"]}

    return wire(tree.root)


def _own(field: dict[str, Any]) -> dict[str, Any]:
    return {"name": field["name"], **({"default": field["default"]} if "default" in field else {})}


def reader(tree: AvroTree, options: AvroOptions, schema: Schema | None, node: Node) -> Change | None:
    """Conversion from fastavro's values of the tree's node to Connect's; None = no conversion is needed."""
    return _from_anything if schema is None else _Values(tree, options).reading(schema, node)


def writer(tree: AvroTree, options: AvroOptions, schema: Schema | None) -> Change | None:
    """Conversion from Connect's values, which fit the schema, to fastavro's for the tree's wire schema; None = no
    conversion is needed.
    """
    return _to_anything if schema is None else _Values(tree, options).writing(schema, tree.root, ())


class _Values:
    """Compiler of the conversion functions of one tree."""

    def __init__(self, tree: AvroTree, options: AvroOptions) -> None:
        self._tree, self._options = tree, options

    # --- reading

    def reading(self, schema: Schema, node: Node) -> Change | None:
        node = self._tree.resolve(node)
        kind = kind_of(node)
        if kind == "union":
            plain = plain_member(self._tree, node, self._options)
            if plain is None:
                return self._read_union(schema, node)
            change = self.reading(schema, plain)
            return None if change is None else (lambda value: None if value is None else change(value))
        if is_enum_by_number(node):
            return dict(enumerate(cast("list[str]", node["symbols"]))).__getitem__
        if schema.name == DECIMAL:
            return lambda value: decimal_from_bytes(schema, value)
        if schema.name in TEMPORAL:
            return lambda value: from_internal(schema, value)
        match schema.type:
            case "INT8":
                return lambda value: (value + 0x80 & 0xFF) - 0x80
            case "INT16":
                return lambda value: (value + 0x8000 & 0xFFFF) - 0x8000
            case "ARRAY":
                return _each(self.reading(cast(Schema, schema.value_schema), node["items"]))
            case "MAP":
                return self._read_map(schema, node)
            case "STRUCT":
                return self._read_record(schema, node)
            case _:
                return None

    def _read_map(self, schema: Schema, node: Any) -> Change | None:
        value_schema = cast(Schema, schema.value_schema)
        if kind_of(node) == "map":
            change = self.reading(value_schema, node["values"])
            return None if change is None else (lambda m: {key: change(value) for key, value in m.items()})
        types = {field["name"]: field["type"] for field in self._tree.resolve(node["items"])["fields"]}
        key = self.reading(cast(Schema, schema.key_schema), types["key"]) or _same
        value = self.reading(value_schema, types["value"]) or _same
        return lambda entries: {map_key(key(one["key"])): value(one["value"]) for one in entries}

    def _read_record(self, schema: Schema, node: Any) -> Change:
        bound: dict[str, Any] = {"S": schema, "Struct": Struct}
        parts: list[str] = []
        for field, avro in zip(schema.fields, node["fields"], strict=True):
            change = self.reading(field.schema, avro["type"])
            item = f"d[{avro['name']!r}]"
            if change is not None:
                bound[f"f{field.index}"] = change
                item = f"f{field.index}({item})"
            parts.append(item)
        return _compiled(f"lambda d: Struct(S, [{', '.join(parts)}])", bound)

    def _read_union(self, schema: Schema, node: Any) -> Change:
        known: dict[str, tuple[int, Change]] = {}
        place = 0
        for index, (name, one) in enumerate(zip(member_names(self._tree, node, self._options), node, strict=True)):
            if name is None:
                continue
            known[f"m{index}"] = place, self.reading(schema.fields[place].schema, one) or _same
            place += 1
        width = len(schema.fields)

        def read(value: Any) -> Any:
            if value is None:
                return None
            ((member, inner),) = value.items()
            at, change = known[member]
            values: list[Any] = [None] * width
            values[at] = change(inner)
            return Struct(schema, values)

        return read

    # --- writing

    def writing(self, schema: Schema, node: Node, names_above: tuple[str, ...]) -> Change | None:
        node = self._tree.resolve(node)
        if kind_of(node) == "union":
            return self._write_union(schema, node, names_above)
        change = self._write_value(schema, node, names_above)
        default = schema.default
        if default is None or self._options.ignore_default:
            return change
        inner = change or _same
        return lambda value: inner(default if value is None else value)

    def _write_value(self, schema: Schema, node: Any, names_above: tuple[str, ...]) -> Change | None:
        if is_enum_by_number(node):
            return {symbol: place for place, symbol in enumerate(node["symbols"])}.__getitem__
        if schema.name == DECIMAL:
            size: int | None = node["size"] if kind_of(node) == "fixed" else None
            return lambda value: _padded(decimal_to_bytes(schema, value), size)
        if schema.name in TEMPORAL:
            return lambda value: to_internal(schema, value)
        match schema.type:
            case "BYTES":
                return lambda value: value if type(value) is bytes else bytes(value)
            case "ARRAY":
                return _each(self.writing(cast(Schema, schema.value_schema), node["items"], names_above))
            case "MAP":
                return self._write_map(schema, node, names_above)
            case "STRUCT":
                return self._write_record(schema, node, names_above)
            case _:
                return None

    def _write_map(self, schema: Schema, node: Any, names_above: tuple[str, ...]) -> Change | None:
        value_schema = cast(Schema, schema.value_schema)
        if kind_of(node) == "map":
            change = self.writing(value_schema, node["values"], names_above)
            return None if change is None else (lambda m: {key: change(value) for key, value in m.items()})
        element = self._tree.resolve(node["items"])
        if not is_map_entry(element):
            raise DataError(f"A map with keys of {cast(Schema, schema.key_schema).type} cannot be written as {node}")
        types = {field["name"]: field["type"] for field in element["fields"]}
        key = self.writing(cast(Schema, schema.key_schema), types["key"], names_above) or _same
        value = self.writing(value_schema, types["value"], names_above) or _same
        return lambda m: [{"key": key(k), "value": value(v)} for k, v in m.items()]

    def _write_record(self, schema: Schema, node: Any, names_above: tuple[str, ...]) -> Change:
        if node["name"] in names_above:
            raise DataError(f"The Avro record {node['name']} contains itself: such schemas cannot be written here")
        above = (*names_above, node["name"])
        types = {field["name"]: field for field in node["fields"]}
        bound: dict[str, Any] = {}
        parts: list[str] = []
        for field in schema.fields:
            avro = types.get(self._options.scrubbed(field.name))
            if avro is None:
                continue  # the latest version, which is used for writing, does not have the field
            change = self.writing(field.schema, avro["type"], above)
            item = f"v[{field.index}]"
            if change is not None:
                bound[f"f{field.index}"] = change
                item = f"f{field.index}({item})"
            parts.append(f"{avro['name']!r}: {item}")
        record = _compiled(f"lambda v: {{{', '.join(parts)}}}", bound)
        return lambda struct: record(struct.values)

    def _write_union(self, schema: Schema, node: Any, names_above: tuple[str, ...]) -> Change | None:
        plain = plain_member(self._tree, node, self._options)
        default = None if self._options.ignore_default else schema.default
        if plain is not None:
            change = self._write_value(schema, plain, names_above)
            if change is None and default is None:
                return None
            inner = change or _same
            name = wire_name(plain["name"]) if kind_of(plain) == "record" else None

            def write_plain(value: Any) -> Any:
                value = default if value is None else value
                if value is None:
                    return None
                return inner(value) if name is None else (name, inner(value))  # saves fastavro the search for the type

            return write_plain
        fields = {name: at for at, name in enumerate(member_names(self._tree, node, self._options)) if name is not None}
        if schema.type == "STRUCT" and schema.fields and len(schema.fields) == len(fields):
            places = list(fields.values())
        else:
            raise DataError(f"A value of {schema} cannot be written as a union of {len(fields)} types")
        known = [
            (f"m{at}", self.writing(field.schema.replace(optional=False), node[at], names_above) or _same)
            for field, at in zip(schema.fields, places, strict=True)
        ]

        def write(value: Any) -> Any:
            value = default if value is None else value
            if value is None:
                return None
            for (member, change), one in zip(known, value.values, strict=True):
                if one is not None:
                    return {member: change(one)}
            return None

        return write


def _compiled(source: str, bound: dict[str, Any]) -> Change:
    return eval(source, bound)  # the source is generated: names only enter through repr


def _each(change: Change | None) -> Change | None:
    return None if change is None else (lambda items: [change(one) for one in items])


def _same(value: Any) -> Any:
    return value


def _padded(unscaled: bytes, size: int | None) -> bytes:
    if size is None:
        return unscaled
    if len(unscaled) > size:
        raise DataError(f"Unscaled value byte array length {len(unscaled)} is greater than fixed size {size}")
    return (b"\xff" if unscaled[0] & 0x80 else b"\0") * (size - len(unscaled)) + unscaled


_KINDS = ("boolean", "bytes", "double", "float", "int", "long", "string", "array", "map")


def _from_anything(one: Any) -> Any:
    """A schemaless value: the first of its fields that is set, as in Confluent's converter."""
    for kind in _KINDS:
        value = one[kind]
        if value is None:
            continue
        match kind:
            case "float":
                return Float32(value)
            case "int":
                return Int32(value)
            case "array":
                return [_from_anything(item) for item in value]
            case "map":
                return {map_key(_from_anything(item["key"])): _from_anything(item["value"]) for item in value}
            case _:
                return value
    return None


def _to_anything(value: Any) -> Any:
    made: dict[str, Any] = dict.fromkeys(_KINDS)
    match value:
        case None:
            pass
        case bool():
            made["boolean"] = value
        case bytes() | bytearray() | memoryview():
            made["bytes"] = bytes(cast(bytes, value))
        case Float32():
            made["float"] = float(value)
        case float():
            made["double"] = value
        case Int8() | Int16() | Int32():
            made["int"] = int(value)
        case int() if type(value).__name__ in ("int", "Int64"):
            made["long"] = int(value)
        case str():
            made["string"] = value
        case list() | tuple():
            made["array"] = [_to_anything(one) for one in cast("list[Any]", value)]
        case dict():
            made["map"] = [
                {"key": _to_anything(key), "value": _to_anything(item)}
                for key, item in cast("dict[Any, Any]", value).items()
            ]
        case _:
            raise DataError(f"Unknown Java type for schemaless data: class {java_class(value)}")
    return made
