"""Options of JsonSchemaConverter for the mapping between Connect and JSON Schema, and the names that both directions
use.

Owns the definitions and `JsonSchemaOptions`. Source: Confluent's `JsonSchemaDataConfig`, `AbstractDataConfig`,
`JsonSchemaData`.

Invariant: an option means the same in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from herdmesh.connect.config import ConfigKey, Importance, Type, Validator, one_of_ignoring_case
from herdmesh.connect.converters.registered_options import (
    COMMON_KEYS,
    FLATTEN_SINGLETONS,
    CommonOptions,
    has_symbols,
    is_any_union,
)
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.model import Schema

NAMESPACE = "io.confluent.connect.json"
ONE_OF, ENUM = f"{NAMESPACE}.OneOf", f"{NAMESPACE}.Enum"
NULL_SYMBOL = "<NULL>"
KEY, VALUE = "key", "value"


def _only_false(field: str, value: Any) -> None:
    if value:
        raise ConfigError.for_value(field, "true", "this is not supported", fix="leave it out or write false")


_NOT_DONE = Validator("must be false", _only_false)

JSON_SCHEMA_KEYS: tuple[ConfigKey, ...] = (
    *COMMON_KEYS,
    ConfigKey("object.additional.properties", Type.BOOLEAN, True, Importance.MEDIUM,
              "Whether objects of generated schemas may have additional properties."),
    ConfigKey("use.optional.for.nonrequired", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether a property that is not required is an optional field."),
    ConfigKey("decimal.format", Type.STRING, "BASE64", Importance.LOW,
              "How decimals are written: BASE64 or NUMERIC, case-insensitive.",
              one_of_ignoring_case("NUMERIC", "BASE64")),
    FLATTEN_SINGLETONS,
    ConfigKey("json.fail.invalid.schema", Type.BOOLEAN, False, Importance.MEDIUM,
              "Refused: payloads are not validated against the schema here.", _NOT_DONE),
    ConfigKey("preserve.additional.properties", Type.BOOLEAN, False, Importance.MEDIUM,
              "Refused: properties the schema does not name are left out.", _NOT_DONE),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaOptions(CommonOptions):
    """The settings of the mapping; see `JSON_SCHEMA_KEYS`."""

    own_enum = ENUM

    open_objects: bool = True
    optional_properties: bool = False
    numeric: bool = False
    flatten: bool = True

    @classmethod
    def of(cls, parsed: dict[str, Any]) -> JsonSchemaOptions:
        """Create from parsed settings."""
        return cls(
            general_sums=parsed["generalized.sum.type.support"],
            ignore_default=parsed["ignore.default.for.nullables"],
            open_objects=parsed["object.additional.properties"],
            optional_properties=parsed["use.optional.for.nonrequired"],
            numeric=parsed["decimal.format"].upper() == "NUMERIC",
            flatten=parsed["flatten.singleton.unions"],
        )


def is_union(schema: Schema) -> bool:
    """True for a struct that stands for a union, one field for each of its schemas."""
    return schema.type == "STRUCT" and (schema.name == ONE_OF or is_any_union(schema))


def is_enum(schema: Schema) -> bool:
    """True for a string that is one of several symbols."""
    return schema.type == "STRING" and has_symbols(schema, ENUM)


def is_object_map(schema: Schema) -> bool:
    """True for a map that is an object in JSON, not an array of entries."""
    key = schema.key_schema
    return key is not None and key.type == "STRING" and not key.optional
