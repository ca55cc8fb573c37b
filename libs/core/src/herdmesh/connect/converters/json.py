"""JsonConverter without schemas: JSON is the value, in Connect's numbers and Jackson's bytes.

Owns the converter's settings and the rules about null. Reading and writing JSON: `jackson`.

Invariant: a JSON `null` is a value when read (None) and a tombstone when written schemaless, as in Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from herdmesh.connect import jackson
from herdmesh.connect.config import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.converters.base import CONVERTER_TYPE, Converter
from herdmesh.connect.data import Schema
from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.validators import one_of_ignoring_case

_PRIMITIVES = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES")


def _key(
    name: str, kind: Type, default: Any, importance: Importance, doc: str, place: tuple[str, int], title: str
) -> ConfigKey:
    validator = one_of_ignoring_case("NUMERIC", "BASE64") if name == "decimal.format" else None
    return ConfigKey(name, kind, default, importance, doc, validator, place[0], place[1], "MEDIUM", title)


class JsonConverter(Converter):
    """`org.apache.kafka.connect.json.JsonConverter` with `schemas.enable=false` (reference transforms-converters 4)."""

    java_class = "org.apache.kafka.connect.json.JsonConverter"
    config_def = ConfigDef(
        CONVERTER_TYPE,
        _key("schemas.enable", Type.BOOLEAN, True, Importance.HIGH,
             "Include schemas within each of the serialized values and keys.", ("Schemas", 0), "Enable Schemas"),
        _key("schemas.cache.size", Type.INT, 1000, Importance.HIGH,
             "The maximum number of schemas that can be cached in this converter instance.",
             ("Schemas", 1), "Schema Cache Size"),
        _key("schema.content", Type.STRING, None, Importance.HIGH,
             "When set, this is used as the schema for all messages, and should be a JSON schema.",
             ("Schemas", 2), "Schema Content"),
        _key("decimal.format", Type.STRING, "BASE64", Importance.LOW,
             "Controls which format this converter will serialize decimals in.",
             ("Serialization", 0), "Decimal Format"),
        _key("replace.null.with.default", Type.BOOLEAN, True, Importance.LOW,
             "Whether to replace fields that have a default value and that are null to the default value.",
             ("Serialization", 1), "Replace null with default"),
    )  # fmt: skip

    def _set_up(self, settings: dict[str, Any]) -> None:
        if settings["schemas.enable"]:
            raise ConfigError(
                "Invalid value true for configuration schemas.enable: JSON with embedded schemas is not built yet",
                field="schemas.enable",
                fix="set it to false (Connect's default is true, so it has to be written)",
            )
        content = settings["schema.content"]
        if content:
            raise ConfigError(
                f"Invalid value {content} for configuration schema.content: a fixed schema is not built yet",
                field="schema.content",
                fix="leave it out",
            )

    def to_connect(self, data: bytes | None, /) -> Any:
        return jackson.loads(data)

    def from_connect(self, value: Any, /, schema: Schema | None = None) -> bytes | None:
        if schema is None:
            return None if value is None else jackson.dumps(value)
        if schema.type not in _PRIMITIVES or schema.name is not None:
            raise DataError(f"JsonConverter cannot write values of schema type {schema.type} yet")
        if value is None and schema.default is None and not schema.optional:
            raise DataError("Conversion error: null value for field that is required and has no default value")
        return jackson.dumps(schema.default if value is None else value)

    def to_connect_many(self, data: Sequence[bytes | None], /) -> list[Any]:
        return jackson.loads_many(data)
