"""Conversion from a Connect schema to an Avro schema.

Owns the rules and the writing of defaults; the other direction is `to_connect`. Source: Confluent's
`AvroData.fromConnectSchema`, `addAvroRecordField`, `defaultValueFromConnect`.

Invariant: equal Connect schemas give equal texts, in the order in which Java's converter writes them.
"""

from __future__ import annotations

from typing import Any, cast

from herdmesh.connect.converters.avro import options as names
from herdmesh.connect.converters.avro.options import AvroOptions, is_fixed, is_union
from herdmesh.connect.converters.avro.schemas import Node, valid_default
from herdmesh.connect.converters.registered_options import PRECISION
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    TEMPORAL,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    decimal_to_bytes,
    scale_of,
    to_internal,
)

_SIMPLE = {
    "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "long", "FLOAT32": "float", "FLOAT64": "double",
    "BOOLEAN": "boolean", "STRING": "string", "BYTES": "bytes",
}  # fmt: skip
_LOGICAL = {DECIMAL: "decimal", DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}

ANYTHING: Node = {
    "type": "record", "name": names.ANYTHING, "fields": [
        *(
            {"name": kind, "type": ["null", kind], "default": None}
            for kind in ("boolean", "bytes", "double", "float", "int", "long", "string")
        ),
        {"name": "array", "type": ["null", {"type": "array", "items": names.ANYTHING}], "default": None},
        {"name": "map", "default": None, "type": ["null", {"type": "array", "items": {
            "type": "record", "name": f"{names.NAMESPACE}.{names.MAP_ENTRY}", "fields": [
                {"name": "key", "type": names.ANYTHING}, {"name": "value", "type": names.ANYTHING},
            ],
        }}]},
    ],
}  # fmt: skip
"""Avro schema of schemaless values."""


def avro_schema(schema: Schema | None, options: AvroOptions) -> Node:
    """The tree of the Avro schema. Raises DataError when Avro has no such schema."""
    return ANYTHING if schema is None else _Writing(options).node(schema)


class _Writing:
    """Conversion of one schema, with the named types defined so far."""

    def __init__(self, options: AvroOptions) -> None:
        self._options = options
        self._defined: dict[str, Schema] = {}
        self._trees: dict[str, Node] = {}
        self._unnamed = 0

    def node(self, schema: Schema, *, bare: bool = False) -> Node:
        """The node; `bare` leaves null out, as for a member of a union."""
        if schema.type == "STRUCT" and is_union(schema):
            members = [self.node(_required(field.schema), bare=True) for field in schema.fields]
            return ["null", *members] if schema.optional and not bare else members
        if schema.type == "STRUCT" and schema.optional:
            record = self.node(_required(schema))
            return record if bare else ["null", record]
        made = self._base(schema)
        if schema.optional and not bare:
            return [made, "null"] if schema.default is not None else ["null", made]
        return made

    def _base(self, schema: Schema) -> Node:
        options, parameters = self._options, schema.parameters or {}
        match schema.type:
            case "STRUCT":
                return self._named(schema, self._record)
            case "STRING" if (options.general_sums or options.enhanced) and names.is_enum(schema):
                return self._named(schema, self._enum)
            case "BYTES" if is_fixed(schema):
                return self._named(schema, self._fixed)
            case "ARRAY":
                made: dict[str, Any] = {"type": "array", "items": self.node(cast(Schema, schema.value_schema))}
            case "MAP":
                made = self._map(schema)
            case _:
                made = {"type": _SIMPLE[schema.type]}
        if schema.name == DECIMAL:
            made |= {"scale": scale_of(schema), "precision": _precision(parameters)}
        return self._annotated(made, schema)

    def _named(self, schema: Schema, make: Any) -> Node:
        name = self._name(schema)
        before = self._defined.get(name)
        if before is not None:
            if _comparable(before) is not _comparable(schema):
                raise DataError(
                    f"Two schemas are called {name}: Avro needs a distinct name for each. Rename one "
                    "(SetSchemaMetadata)."
                )
            return name
        self._defined[name] = schema
        made = make(name, schema)
        self._trees[name] = made
        return self._annotated(made, schema)

    def _name(self, schema: Schema) -> str:
        parameters = schema.parameters or {}
        if schema.type == "STRING":
            return parameters[self._options.enum]
        if schema.name is not None:
            return self._options.full_name(schema.name)
        self._unnamed += 1
        return f"{names.DEFAULT_NAME}{self._unnamed if self._unnamed > 1 else ''}"

    def _record(self, name: str, schema: Schema) -> dict[str, Any]:
        options, parameters = self._options, schema.parameters or {}
        made: dict[str, Any] = {"type": "record", "name": name}
        made["doc"] = parameters.get("connect.record.doc" if options.discard_docs else names.RECORD_DOC)
        docs = {} if options.discard_docs else parameters
        made["fields"] = [
            self._field(options.scrubbed(field.name), field.schema, docs.get(names.FIELD_DOC + field.name))
            for field in schema.fields
        ]
        return made

    def _enum(self, name: str, schema: Schema) -> dict[str, Any]:
        options, parameters = self._options, schema.parameters or {}
        simple = (schema.name or names.DEFAULT_NAME).rpartition(".")[2]
        prefix = f"{options.enum}."
        made: dict[str, Any] = {"type": "enum", "name": name}
        made["doc"] = parameters.get("connect.enum.doc" if options.discard_docs else names.ENUM_DOC + simple)
        made["symbols"] = [key[len(prefix) :] for key in parameters if key.startswith(prefix)]
        default = parameters.get(names.ENUM_DEFAULT + simple)
        if default is not None and not options.discard_docs:
            made["default"] = default
        return made

    def _fixed(self, name: str, schema: Schema) -> dict[str, Any]:
        parameters = schema.parameters or {}
        made: dict[str, Any] = {"type": "fixed", "name": name, "size": int(parameters[names.FIXED_SIZE])}
        if schema.name == DECIMAL:
            made |= {"scale": scale_of(schema), "precision": _precision(parameters)}
        return made

    def _map(self, schema: Schema) -> dict[str, Any]:
        key, value = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        if is_avro_map(schema, self._options):
            return {"type": "map", "values": self.node(value)}
        name = f"{names.NAMESPACE}.{names.MAP_ENTRY}" if schema.name is None else self._options.full_name(schema.name)
        entry: Node = name
        before = self._defined.setdefault(name, schema)
        if before is schema and name not in self._trees:
            self._trees[name] = entry = {"type": "record", "name": name}
            entry["fields"] = [self._field("key", key, None), self._field("value", value, None)]
            if schema.name is not None:
                entry["connect.internal.type"] = names.MAP_ENTRY
        elif before.type != "MAP" or (before.key_schema, before.value_schema) != (key, value):
            raise DataError(f"Two kinds of maps without string keys need two names: give them names (one is {name})")
        return {"type": "array", "items": entry}

    def _field(self, name: str, schema: Schema, doc: str | None) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": self.node(schema)}
        doc = schema.doc if self._options.discard_docs else doc
        if doc is not None:
            made["doc"] = doc
        if schema.default is not None:
            default = default_json(schema, schema.default, self._options)
            if valid_default(self._trees, made["type"], default):
                made["default"] = default
        elif schema.optional:
            made["default"] = None
        return made

    def _annotated(self, made: dict[str, Any], schema: Schema) -> Node:
        """The node with Connect's own properties and the logical type."""
        options, parameters = self._options, dict(schema.parameters or {})
        if options.meta:
            if schema.doc is not None:
                made["connect.doc"] = schema.doc
            if schema.version is not None:
                made["connect.version"] = schema.version
            kept = parameters if options.discard_docs else {**parameters}
            flagged = names.FIELD_DEFAULT in kept and not options.discard_docs
            if flagged:
                kept = {key: value for key, value in kept.items() if key != names.FIELD_DEFAULT}
            if kept:
                made["connect.parameters"] = kept
            if schema.default is not None and not flagged:
                made["connect.default"] = default_json(schema, schema.default, options)
            if schema.name is not None:
                made["connect.name"] = schema.name
            if schema.type in ("INT8", "INT16"):
                made["connect.type"] = schema.type.lower()
        if schema.name in _LOGICAL:
            made["logicalType"] = _LOGICAL[schema.name]
        made.update((key, value) for key, value in parameters.items() if key.startswith("avro"))
        return made["type"] if made.keys() == {"type"} else made


def is_avro_map(schema: Schema, options: AvroOptions) -> bool:
    """True when a map is a map in Avro too, not an array of entries."""
    key = cast(Schema, schema.key_schema)
    return key.type == "STRING" and (not key.optional or options.optional_keys)


def default_json(schema: Schema, value: Any, options: AvroOptions) -> Any:
    """A default in Avro's JSON form."""
    if value is None:
        return None
    if schema.name == DECIMAL:
        return decimal_to_bytes(schema, value).decode("latin-1")
    if schema.name in TEMPORAL:
        return to_internal(schema, value)
    match schema.type:
        case "BYTES":
            return bytes(value).decode("latin-1")
        case "ARRAY":
            element = cast(Schema, schema.value_schema)
            return [default_json(element, one, options) for one in value]
        case "MAP":
            key, item = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
            if is_avro_map(schema, options):
                return {name: default_json(item, one, options) for name, one in value.items()}
            return [[default_json(key, k, options), default_json(item, v, options)] for k, v in value.items()]
        case "STRUCT":
            struct = cast(Struct, value)
            fields = {
                options.scrubbed(field.name): default_json(field.schema, struct.get(field.name), options)
                for field in schema.fields
            }
            return next(iter(fields.values()), None) if is_union(schema) else fields
        case "FLOAT32" | "FLOAT64":
            return float(value)
        case _:
            return value


def _required(schema: Schema) -> Schema:
    return schema.replace(optional=False) if schema.optional else schema


def _comparable(schema: Schema) -> Schema:
    return schema.replace(optional=False, default=None)


def _precision(parameters: Any) -> int:
    return int(parameters.get(PRECISION, names.DEFAULT_PRECISION))
