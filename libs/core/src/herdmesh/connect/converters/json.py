"""JsonConverter: JSON is the value, in Connect's numbers and Jackson's bytes; with `schemas.enable`, in an envelope.

Owns the converter's settings, the rules about null and the envelope `{"schema":...,"payload":...}`, written for
primitive values and read for text, numbers and booleans, which is what Connect's file connectors exchange; values of
other schemas are refused record by record. Reading and writing JSON: `jackson`.

Invariant: a JSON `null` is a value when read (None) and a tombstone when written schemaless, as in Connect; what is
read from an envelope is schemaless from then on, and is never anything else than Java's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from herdmesh.connect import jackson
from herdmesh.connect.converters import definitions
from herdmesh.connect.converters.base import Converter, Schemas
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.schemas import STRING, Schema

_JSON_TYPES = {
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
}
_PRIMITIVES = frozenset(_JSON_TYPES)
_READ_AS: dict[str, type] = {"string": str, "boolean": bool, "int32": int, "int64": int, "double": float}
_INT32_MAX = 2**31 - 1
_ENVELOPE_NEEDED = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)


class JsonConverter(Converter):
    """`org.apache.kafka.connect.json.JsonConverter` (reference transforms-converters 4)."""

    java_class = "org.apache.kafka.connect.json.JsonConverter"
    config_def = definitions.JSON_CONVERTER

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._schemas: bool = settings["schemas.enable"]
        content = settings["schema.content"]
        if content:
            raise ConfigError(
                f"Invalid value {content} for configuration schema.content: a fixed schema is not built yet",
                field="schema.content",
                fix="leave it out",
            )

    def read(self, data: bytes | None, /) -> tuple[Schema | None, Any]:
        if not self._schemas or data is None:
            return None, jackson.loads(data)
        return None, _opened(jackson.loads(data))

    def write(self, value: Any, schema: Schema | None, /) -> bytes | None:
        if schema is None:
            if value is None:
                return None
            return b'{"schema":null,"payload":%b}' % jackson.dumps(value) if self._schemas else jackson.dumps(value)
        if schema.type not in _PRIMITIVES or schema.name is not None:
            raise DataError(f"JsonConverter cannot write values of schema type {schema.type} yet")
        if value is None and schema.default is None and not schema.optional:
            raise DataError("Conversion error: null value for field that is required and has no default value")
        payload = jackson.dumps(schema.default if value is None else value)
        return b'{"schema":%b,"payload":%b}' % (_schema_json(schema), payload) if self._schemas else payload

    def write_many(self, values: Sequence[Any], schema: Schema | None, /) -> list[bytes | None]:
        if schema is not _TEXT or not self._schemas or not _ONLY_TEXT.issuperset(map(type, values)):
            return super().write_many(values, schema)
        head = b'{"schema":%b,"payload":' % _schema_json(_TEXT)
        return [b"%b%b}" % (head, jackson.dumps(value)) for value in values]

    def read_many(self, data: Sequence[bytes | None], /) -> tuple[Schemas, list[Any]]:
        values = jackson.loads_many(data)
        if not self._schemas:
            return None, values
        return None, [None if raw is None else _opened(value) for raw, value in zip(data, values, strict=True)]


_TEXT = STRING
_ONLY_TEXT = frozenset((str,))


def _schema_json(schema: Schema) -> bytes:
    """A primitive schema in the envelope's order of members."""
    members: dict[str, Any] = {"type": _JSON_TYPES[schema.type], "optional": schema.optional}
    if schema.version is not None:
        members["version"] = schema.version
    if schema.doc is not None:
        members["doc"] = schema.doc
    if schema.parameters:
        members["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        members["default"] = schema.default
    return jackson.dumps(members)


def _opened(envelope: Any) -> Any:
    """The payload of an envelope. Raises DataError for anything else, and for what is not read yet."""
    if not isinstance(envelope, dict):
        raise DataError(_ENVELOPE_NEEDED)
    members = cast("dict[str, Any]", envelope)
    if members.keys() != {"schema", "payload"}:
        raise DataError(_ENVELOPE_NEEDED)
    schema: Any = members["schema"]
    payload: Any = members["payload"]
    if schema is None:
        return payload
    if not isinstance(schema, dict) or "type" not in schema:
        raise DataError("Schema must contain 'type' field")
    described = cast("dict[str, Any]", schema)
    kind: Any = described["type"]
    if payload is None and described.keys() == {"type", "optional"} and described["optional"] is True:
        return None
    # Java narrows, rounds and blanks what does not fit; here only what fits is read.
    if "name" not in described and isinstance(kind, str) and type(payload) is _READ_AS.get(kind):
        number: Any = payload
        if kind == "double":
            return number + 0.0  # Java reads -0.0 as 0.0 here
        if kind != "int32" or -_INT32_MAX - 1 <= number <= _INT32_MAX:
            return number
    raise DataError(f"JsonConverter cannot read a value of the schema {jackson.dumps(described).decode()} yet")
