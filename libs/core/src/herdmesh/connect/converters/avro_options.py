"""What AvroConverter's options say of the mapping between Connect and Avro, and the names both directions use.

Owns the definitions and `AvroOptions`. Source: Confluent's `AvroDataConfig`, `AbstractDataConfig`, `AvroData`.

Invariant: an option means the same in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from herdmesh.connect.config import ConfigKey, Importance, Type
from herdmesh.connect.schemas import Schema
from herdmesh.connect.validators import at_least

NAMESPACE = "io.confluent.connect.avro"
DEFAULT_NAME = f"{NAMESPACE}.ConnectDefault"
MAP_ENTRY = "MapEntry"
UNION, ENUM = f"{NAMESPACE}.Union", f"{NAMESPACE}.Enum"
ANY_UNION, ANY_ENUM = "org.apache.kafka.connect.data.Union", "org.apache.kafka.connect.data.Enum"
UNION_PREFIX = "connect_union_"
RECORD_DOC, ENUM_DOC, FIELD_DOC = f"{NAMESPACE}.record.doc", f"{NAMESPACE}.enum.doc.", f"{NAMESPACE}.field.doc."
FIELD_DEFAULT, ENUM_DEFAULT = f"{NAMESPACE}.field.default", f"{NAMESPACE}.enum.default."
FIXED_SIZE, PRECISION = "connect.fixed.size", "connect.decimal.precision"
DEFAULT_PRECISION = 64
ANYTHING = f"{NAMESPACE}.Anything"

AVRO_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("schemas.cache.config", Type.INT, 1000, Importance.LOW,
              "The maximum number of schemas remembered as converted.", at_least(1)),
    ConfigKey("generalized.sum.type.support", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether enums and unions are named as the other formats name them."),
    ConfigKey("ignore.default.for.nullables", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether null stays null where the field has a default."),
    ConfigKey("enhanced.avro.schema.support", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether enums stay enums, and union members keep their namespaces."),
    ConfigKey("scrub.invalid.names", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether names Avro does not allow are changed into ones it does."),
    ConfigKey("connect.meta.data", Type.BOOLEAN, True, Importance.LOW,
              "Whether Connect's names, versions, parameters and docs are kept in Avro schemas."),
    ConfigKey("discard.type.doc.default", Type.BOOLEAN, False, Importance.LOW,
              "Whether only docs and defaults of fields are kept, not those of types."),
    ConfigKey("allow.optional.map.keys", Type.BOOLEAN, False, Importance.LOW,
              "Whether a map with optional string keys is an Avro map."),
    ConfigKey("flatten.singleton.unions", Type.BOOLEAN, True, Importance.LOW,
              "Whether a union of one type is that type."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """The settings of the mapping; see `AVRO_KEYS`."""

    general_sums: bool = False
    ignore_default: bool = False
    enhanced: bool = False
    scrub: bool = False
    meta: bool = True
    discard_docs: bool = False
    optional_keys: bool = False
    flatten: bool = True

    @classmethod
    def of(cls, parsed: dict[str, Any]) -> AvroOptions:
        """From parsed settings."""
        return cls(*(parsed[key.name] for key in AVRO_KEYS[1:]))

    def scrubbed(self, name: str) -> str:
        """A simple name as Avro allows it, if it is to be scrubbed."""
        if not self.scrub or not name or (name.isascii() and name.isidentifier()):
            return name
        encoded = quote_plus(name, safe="*").replace("~", "%7E")  # as Java's URLEncoder
        encoded = f"x{encoded}" if encoded[0].isdigit() else encoded
        return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in encoded)

    def full_name(self, name: str) -> str:
        """A full name, each part scrubbed."""
        return ".".join(map(self.scrubbed, name.split(".")))

    def member_name(self, name: str, kind: str, index: int) -> str:
        """The field of a union's struct that holds a member. `name`: its full name, "" when it has none."""
        if self.general_sums:
            return f"{UNION_PREFIX}field_{index}"
        if not name:
            return kind
        return self.full_name(name) if self.enhanced else self.full_name(name).rpartition(".")[2]


def is_union(schema: Schema) -> bool:
    """Whether a struct stands for a union, one field for each member."""
    return schema.type == "STRUCT" and (schema.name == UNION or ANY_UNION in (schema.parameters or {}))


def is_enum(schema: Schema) -> bool:
    """Whether a string stands for an enum's symbol."""
    parameters = schema.parameters or {}
    return schema.type == "STRING" and (ENUM in parameters or ANY_ENUM in parameters)


def is_fixed(schema: Schema) -> bool:
    """Whether bytes are of a fixed size."""
    return schema.type == "BYTES" and schema.name is not None and FIXED_SIZE in (schema.parameters or {})
