"""Options of AvroConverter for the mapping between Connect and Avro, and the names that both directions use.

Owns the definitions and `AvroOptions`. Source: Confluent's `AvroDataConfig`, `AbstractDataConfig`, `AvroData`.

Invariant: an option means the same in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from herdmesh.connect.config import ConfigKey, Importance, Type
from herdmesh.connect.converters.registered_options import (
    COMMON_KEYS,
    FLATTEN_SINGLETONS,
    UNION_PREFIX,
    CommonOptions,
    has_symbols,
    is_any_union,
    scrub_key,
    scrubbed,
)
from herdmesh.connect.model import Schema

NAMESPACE = "io.confluent.connect.avro"
DEFAULT_NAME = f"{NAMESPACE}.ConnectDefault"
MAP_ENTRY = "MapEntry"
UNION, ENUM = f"{NAMESPACE}.Union", f"{NAMESPACE}.Enum"
RECORD_DOC, ENUM_DOC, FIELD_DOC = f"{NAMESPACE}.record.doc", f"{NAMESPACE}.enum.doc.", f"{NAMESPACE}.field.doc."
FIELD_DEFAULT, ENUM_DEFAULT = f"{NAMESPACE}.field.default", f"{NAMESPACE}.enum.default."
FIXED_SIZE = "connect.fixed.size"
DEFAULT_PRECISION = 64
ANYTHING = f"{NAMESPACE}.Anything"

AVRO_KEYS: tuple[ConfigKey, ...] = (
    *COMMON_KEYS,
    ConfigKey("enhanced.avro.schema.support", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether enums stay enums, and union members keep their namespaces."),
    scrub_key("Avro"),
    ConfigKey("connect.meta.data", Type.BOOLEAN, True, Importance.LOW,
              "Whether Connect's names, versions, parameters and docs are kept in Avro schemas."),
    ConfigKey("discard.type.doc.default", Type.BOOLEAN, False, Importance.LOW,
              "Whether only docs and defaults of fields are kept, not those of types."),
    ConfigKey("allow.optional.map.keys", Type.BOOLEAN, False, Importance.LOW,
              "Whether a map with optional string keys is an Avro map."),
    FLATTEN_SINGLETONS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions(CommonOptions):
    """The settings of the mapping; see `AVRO_KEYS`."""

    own_enum = ENUM

    enhanced: bool = False
    scrub: bool = False
    meta: bool = True
    discard_docs: bool = False
    optional_keys: bool = False
    flatten: bool = True

    @classmethod
    def of(cls, parsed: dict[str, Any]) -> AvroOptions:
        """Create from parsed settings."""
        return cls(
            general_sums=parsed["generalized.sum.type.support"],
            ignore_default=parsed["ignore.default.for.nullables"],
            enhanced=parsed["enhanced.avro.schema.support"],
            scrub=parsed["scrub.invalid.names"],
            meta=parsed["connect.meta.data"],
            discard_docs=parsed["discard.type.doc.default"],
            optional_keys=parsed["allow.optional.map.keys"],
            flatten=parsed["flatten.singleton.unions"],
        )

    def scrubbed(self, name: str) -> str:
        """A simple name changed to the form that Avro allows, if the options request it."""
        return scrubbed(name) if self.scrub else name

    def full_name(self, name: str) -> str:
        """A full name with each part scrubbed."""
        return ".".join(map(self.scrubbed, name.split(".")))

    def member_name(self, name: str, kind: str, index: int) -> str:
        """Name of the struct field for a member of a union. `name`: the member's full name, "" when it has none."""
        if self.general_sums:
            return f"{UNION_PREFIX}field_{index}"
        if not name:
            return kind
        return self.full_name(name) if self.enhanced else self.full_name(name).rpartition(".")[2]


def is_union(schema: Schema) -> bool:
    """True for a struct that stands for a union, one field for each member."""
    return schema.type == "STRUCT" and (schema.name == UNION or is_any_union(schema))


def is_enum(schema: Schema) -> bool:
    """True for a string that stands for an enum's symbol."""
    return schema.type == "STRING" and has_symbols(schema, ENUM)


def is_fixed(schema: Schema) -> bool:
    """True for bytes of a fixed size."""
    return schema.type == "BYTES" and schema.name is not None and FIXED_SIZE in (schema.parameters or {})
