"""Conversion from an Avro schema to a Connect schema.

Owns the rules and the reading of defaults; the other direction is `from_connect`. Source: Confluent's
`AvroData.toConnectSchema`, `defaultValueFromAvro`, `unionMemberFieldName`.

A record that contains itself has no Connect schema here (schemas are immutable and interned, so none can contain
itself); it is refused by name.

Invariant: a schema from `from_connect` is converted back to the original Connect schema, apart from what its options
leave out.
"""

from __future__ import annotations

from typing import Any, cast

from herdmesh.connect.converters.avro import options as names
from herdmesh.connect.converters.avro.options import AvroOptions
from herdmesh.connect.converters.avro.schemas import AvroTree, Node, is_null, kind_of
from herdmesh.connect.converters.registered_options import ANY_UNION, PRECISION, UNION_PREFIX
from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    SCALE,
    STRING,
    TEMPORAL,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    check_value,
    decimal_from_bytes,
    from_internal,
)

_SIMPLE = {
    "boolean": "BOOLEAN", "int": "INT32", "long": "INT64", "float": "FLOAT32", "double": "FLOAT64", "string": "STRING",
    "bytes": "BYTES", "fixed": "BYTES", "enum": "STRING",
}  # fmt: skip
_INT_LOGICAL = {"date": DATE, "time-millis": TIME}
_ABSENT = object()


def connect_schema(tree: AvroTree, options: AvroOptions, version: int | None = None) -> Schema | None:
    """The Connect schema; None for values without a schema. `version` applies where the schema itself has no version.

    Raises:
        DataError: Connect has no such schema.
    """
    root = tree.resolve(tree.root)
    if kind_of(root) == "record" and root["name"] == names.ANYTHING:
        return None
    return _Reading(tree, options).schema(root, version=version)


def is_map_entry(node: Node) -> bool:
    """True for a record that is an entry of a map whose keys are not strings."""
    return kind_of(node) == "record" and (
        node["name"] == f"{names.NAMESPACE}.{names.MAP_ENTRY}" or node.get("connect.internal.type") == names.MAP_ENTRY
    )


def plain_member(tree: AvroTree, node: Any, options: AvroOptions) -> Node | None:
    """The only type of a union, or the one beside null: such a union is no real union. None = the union is a real
    one."""
    if len(node) == 1 and options.flatten and not is_null(node[0]):
        return tree.resolve(node[0])
    others = [one for one in node if not is_null(one)]
    return tree.resolve(others[0]) if len(node) == 2 and len(others) == 1 else None


def member_names(tree: AvroTree, node: Any, options: AvroOptions) -> list[str | None]:
    """The field of the struct for each type of a union, None for null. Raises DataError when two types have the same
    field.
    """
    found: list[str | None] = []
    for index, one in enumerate(node):
        member = tree.resolve(one)
        if is_null(member):
            found.append(None)
            continue
        name = options.member_name(
            cast("dict[str, Any]", member).get("name", "") if isinstance(member, dict) else "", kind_of(member), index
        )
        if name in found:
            raise DataError("Multiple union schemas map to the Connect union field name")
        found.append(name)
    return found


class _Reading:
    """Conversion of one schema, with the records that enclose the current node."""

    def __init__(self, tree: AvroTree, options: AvroOptions) -> None:
        self._tree, self._options = tree, options
        self._within: list[str] = []
        self._unions = 0

    def schema(
        self, node: Node, *, optional: bool = False, default: Any = _ABSENT, doc: str | None = None,
        version: int | None = None,
    ) -> Schema:  # fmt: skip
        """`default` and `doc` are those of the field that has this schema."""
        node = self._tree.resolve(node)
        kind = kind_of(node)
        props = cast("dict[str, Any]", node) if isinstance(node, dict) else {}
        if kind == "union":
            plain = plain_member(self._tree, node, self._options)
            if plain is not None:
                return self.schema(plain, optional=optional or len(cast("list[Node]", node)) == 2, doc=doc)
            base = self._union(node)
        elif kind == "record":
            base = self._record(props)
        elif kind == "array":
            base = self._array(props)
        elif kind == "map":
            base = Schema("MAP", key_schema=STRING, value_schema=self.schema(props["values"]))
        elif kind == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        else:
            base = self._simple(kind, props)
        return self._finished(base, kind, node, props, optional, default, doc, version)

    def _finished(
        self, base: Schema, kind: str, node: Node, props: dict[str, Any], optional: bool, default: Any,
        doc: str | None, version: int | None,
    ) -> Schema:  # fmt: skip
        options = self._options
        parameters = dict(base.parameters or {})
        own_doc = props.get("connect.doc")
        if options.discard_docs:
            own_doc = doc if doc is not None else props.get("doc", own_doc)
            if options.meta and props.get("doc") is not None:
                parameters["connect.record.doc"] = props["doc"]
        elif not options.meta:
            own_doc = None
        parameters |= self._parameters(props)
        written = props.get("connect.default")
        if default is _ABSENT:
            default = written
        elif not options.discard_docs and options.meta and written is None:
            parameters[names.FIELD_DEFAULT] = "true"
        built = base.replace(
            optional=base.optional or optional,
            name=self._name(base, kind, props),
            version=self._version(base, props, version),
            doc=own_doc,
            parameters=parameters or None,
        )
        return self._with_default(built, node, default)

    def _parameters(self, props: dict[str, Any]) -> dict[str, str]:
        given = props.get("connect.parameters")
        found: dict[str, str] = {}
        if self._options.meta and given is not None:
            if not isinstance(given, dict):
                raise DataError(f"Expected JSON object for schema parameters but found: {given}")
            for key, value in cast("dict[str, Any]", given).items():
                if not isinstance(value, str):
                    raise DataError(f"Expected schema parameter values to be strings but found: {value}")
                found[key] = value
        return found | {key: str(value) for key, value in props.items() if key.startswith("avro")}

    def _version(self, base: Schema, props: dict[str, Any], version: int | None) -> int | None:
        own = props.get("connect.version")
        if own is not None and (not isinstance(own, int | float) or isinstance(own, bool)):
            raise DataError(f"Invalid Connect version found: {own}")
        wanted = version if own is None else int(own)
        if wanted is None or wanted < 0:
            return base.version
        if base.version is not None and base.version != wanted:
            raise DataError(
                f"Mismatched versions: version already added to SchemaBuilder ({base.version}) differs from version in "
                f"source schema ({wanted})"
            )
        return wanted

    def _name(self, base: Schema, kind: str, props: dict[str, Any]) -> str | None:
        name = props.get("connect.name")
        if name is not None and not isinstance(name, str):
            raise DataError(f"Invalid schema name: {name}")
        if name is None and (kind in ("record", "enum") or (kind == "fixed" and base.name != DECIMAL)):
            name = props["name"]
        if name is None or name.startswith(names.DEFAULT_NAME):
            return base.name
        if base.name is not None and base.name != name:
            raise DataError(
                f"Mismatched names: name already added to SchemaBuilder ({base.name}) differs from name in source "
                f"schema ({name})"
            )
        return name

    def _with_default(self, schema: Schema, node: Node, default: Any) -> Schema:
        """The schema with its default; a default that does not fit is left out, as in Connect."""
        try:
            value = self._default(schema, node, default)
            if value is None:
                return schema
            check_value(schema, value)
        except (ConnectError, KeyError, ValueError, TypeError, AttributeError, IndexError):
            return schema
        return schema.replace(default=value)

    def _default(self, schema: Schema, node: Node, value: Any) -> Any:
        if value is None:
            return None
        node = self._tree.resolve(node)
        kind = kind_of(node)
        match kind:
            case "union":
                plain = plain_member(self._tree, node, self._options)
                if plain is not None:
                    return self._default(schema, plain, value)
                first = member_names(self._tree, node, self._options)[0]
                if first is None:
                    return None
                inner = cast(Any, schema.field(first)).schema
                return Struct(schema).put(first, self._default(inner, node[0], value))
            case "array" if schema.type == "MAP":
                key, item = (field["type"] for field in self._tree.resolve(node["items"])["fields"])
                return {
                    self._default(cast(Schema, schema.key_schema), key, k):
                        self._default(cast(Schema, schema.value_schema), item, v)
                    for k, v in value
                }  # fmt: skip
            case "array":
                return [self._default(cast(Schema, schema.value_schema), node["items"], one) for one in value]
            case "map":
                item = cast(Schema, schema.value_schema)
                return {name: self._default(item, node["values"], one) for name, one in value.items()}
            case "record":
                return Struct(schema, [
                    self._default(field.schema, avro["type"], value.get(avro["name"], avro.get("default")))
                    for field, avro in zip(schema.fields, node["fields"], strict=True)
                ])  # fmt: skip
            case "bytes" | "fixed":
                data = value.encode("latin-1")
                return decimal_from_bytes(schema, data) if schema.name == DECIMAL else data
            case "float" | "double":
                return float(value)
            case _:
                return from_internal(schema, value) if schema.name in TEMPORAL else value

    def _simple(self, kind: str, props: dict[str, Any]) -> Schema:
        logical = str(props.get("logicalType", "")).lower()
        if kind == "enum":
            return self._enum(props)
        if kind == "int":
            if logical:
                name = _INT_LOGICAL.get(logical)
                return Schema("INT32", name=name, version=1 if name else None)
            given = props.get("connect.type")
            if given is not None and given not in ("int8", "int16"):
                raise DataError("Connect type annotation for Avro int field is null")
            return Schema("INT32" if given is None else given.upper())
        if kind == "long" and logical == "timestamp-millis":
            return Schema("INT64", name=TIMESTAMP, version=1)
        size = {names.FIXED_SIZE: str(props["size"])} if kind == "fixed" else {}
        if kind in ("bytes", "fixed") and logical == "decimal":
            return _decimal(props, size)
        if kind not in _SIMPLE:
            raise DataError(f"Couldn't translate unsupported schema type {kind}.")
        return Schema(_SIMPLE[kind], parameters=size or None)

    def _enum(self, props: dict[str, Any]) -> Schema:
        options, simple = self._options, props["name"].rpartition(".")[2]
        parameters: dict[str, str] = {}
        if options.meta and props.get("doc") is not None:
            parameters["connect.enum.doc" if options.discard_docs else names.ENUM_DOC + simple] = props["doc"]
        if options.meta and not options.discard_docs and props.get("default") is not None:
            parameters[names.ENUM_DEFAULT + simple] = props["default"]
        prefix = options.enum
        parameters[prefix] = props["name"]
        for index, symbol in enumerate(props["symbols"]):
            parameters[f"{prefix}.{symbol}"] = str(index) if options.general_sums else symbol
        return Schema("STRING", parameters=parameters)

    def _array(self, props: dict[str, Any]) -> Schema:
        element = self._tree.resolve(props["items"])
        if not is_map_entry(element):
            return Schema("ARRAY", value_schema=self.schema(element))
        fields = {field["name"]: field["type"] for field in element["fields"]}
        if fields.keys() != {"key", "value"}:
            raise DataError(
                "Found map encoded as array of key-value pairs, but array elements do not match the expected format."
            )
        return Schema("MAP", key_schema=self.schema(fields["key"]), value_schema=self.schema(fields["value"]))

    def _record(self, props: dict[str, Any]) -> Schema:
        options, name = self._options, props["name"]
        if name in self._within:
            raise DataError(f"The Avro record {name} contains itself: such schemas have no Connect schema here")
        self._within.append(name)
        docs = options.meta and not options.discard_docs
        parameters: dict[str, str] = {}
        if docs and props.get("doc") is not None:
            parameters[names.RECORD_DOC] = props["doc"]
        fields: list[tuple[str, Schema]] = []
        for field in props["fields"]:
            if docs and field.get("doc") is not None:
                parameters[names.FIELD_DOC + field["name"]] = field["doc"]
            default = field.get("default", _ABSENT)
            made = self.schema(field["type"], default=default, doc=field.get("doc"))
            own = field.get("connect.parameters")
            if options.meta and isinstance(own, dict):
                made = made.replace(parameters={**(made.parameters or {}), **cast("dict[str, str]", own)})
            fields.append((field["name"], made))
        self._within.pop()
        return Schema("STRUCT", parameters=parameters or None, fields=fields)

    def _union(self, node: Any) -> Schema:
        options, name = self._options, names.UNION
        parameters: dict[str, str] | None = None
        if options.general_sums:
            name = f"{UNION_PREFIX}{self._unions}"
            self._unions += 1
            parameters = {ANY_UNION: name}
        fields: list[tuple[str, Schema]] = []
        for field, member in zip(member_names(self._tree, node, options), node, strict=True):
            if field is not None:
                fields.append((field, self.schema(member, optional=True)))
        return Schema("STRUCT", any(map(is_null, node)), name, parameters=parameters, fields=fields)


def _decimal(props: dict[str, Any], size: dict[str, str]) -> Schema:
    scale, precision = props.get("scale"), props.get("precision")
    parameters = {SCALE: str(scale if isinstance(scale, int) else 0)}
    if precision is not None and (not isinstance(precision, int) or isinstance(precision, bool)):
        raise DataError(
            "precision property must be a JSON Integer. https://avro.apache.org/docs/1.9.1/spec.html#Decimal"
        )
    if precision is not None and precision != names.DEFAULT_PRECISION:
        parameters[PRECISION] = str(precision)
    return Schema("BYTES", name=DECIMAL, version=1, parameters={**parameters, **size})
