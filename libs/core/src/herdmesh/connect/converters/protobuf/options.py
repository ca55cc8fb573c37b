"""Options of ProtobufConverter for the mapping between Connect and Protobuf, and the names that both directions use.

Owns the definitions and `ProtobufOptions`. Source: Confluent's `ProtobufDataConfig`, `AbstractDataConfig`,
`ProtobufData`.

Invariant: an option means the same in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from herdmesh.connect.config import ConfigKey, Importance, Type
from herdmesh.connect.converters.registered_options import (
    COMMON_KEYS,
    CommonOptions,
    has_symbols,
    is_any_union,
    scrub_key,
    scrubbed,
)
from herdmesh.connect.model import Schema

NAMESPACE = "io.confluent.connect.protobuf"
DEFAULT_NAME = "ConnectDefault"
ENUM, UNION = f"{NAMESPACE}.Enum", f"{NAMESPACE}.Union"
TAG, TYPE, WRAPPER = f"{NAMESPACE}.Tag", f"{NAMESPACE}.Type", f"{NAMESPACE}.Wrapper"
CONNECT_TYPE = "connect.type"

PROTOBUF_KEYS: tuple[ConfigKey, ...] = (
    *COMMON_KEYS,
    ConfigKey("enhanced.protobuf.schema.support", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether names keep their packages."),
    scrub_key("Protobuf"),
    ConfigKey("int.for.enums", Type.BOOLEAN, False, Importance.MEDIUM, "Whether enums are read as numbers."),
    ConfigKey("optional.for.nullables", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether fields that may be null are labelled optional."),
    ConfigKey("optional.for.proto2", Type.BOOLEAN, True, Importance.MEDIUM,
              "Whether optional fields of proto2 that are not set are null."),
    ConfigKey("wrapper.for.nullables", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether fields that may be null are of Google's wrapper types."),
    ConfigKey("wrapper.for.raw.primitives", Type.BOOLEAN, True, Importance.MEDIUM,
              "Whether a message of a wrapper type is read as the value in it."),
    ConfigKey("generate.struct.for.nulls", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether messages that are not set are read as ones of defaults."),
    ConfigKey("generate.index.for.unions", Type.BOOLEAN, True, Importance.LOW,
              "Whether the field of a oneof has the oneof's index after its name."),
    ConfigKey("flatten.unions", Type.BOOLEAN, False, Importance.LOW,
              "Whether the fields of a oneof are fields of the struct itself."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufOptions(CommonOptions):
    """The settings of the mapping; see `PROTOBUF_KEYS`."""

    own_enum = ENUM

    enhanced: bool = False
    scrub: bool = False
    int_enums: bool = False
    optional_label: bool = False
    optional_proto2: bool = True
    wrappers: bool = False
    raw_wrappers: bool = True
    null_structs: bool = False
    indexed_unions: bool = True
    flat_unions: bool = False

    @classmethod
    def of(cls, parsed: dict[str, Any]) -> ProtobufOptions:
        """Create from parsed settings."""
        return cls(
            general_sums=parsed["generalized.sum.type.support"],
            ignore_default=parsed["ignore.default.for.nullables"],
            enhanced=parsed["enhanced.protobuf.schema.support"],
            scrub=parsed["scrub.invalid.names"],
            int_enums=parsed["int.for.enums"],
            optional_label=parsed["optional.for.nullables"],
            optional_proto2=parsed["optional.for.proto2"],
            wrappers=parsed["wrapper.for.nullables"],
            raw_wrappers=parsed["wrapper.for.raw.primitives"],
            null_structs=parsed["generate.struct.for.nulls"],
            indexed_unions=parsed["generate.index.for.unions"],
            flat_unions=parsed["flatten.unions"],
        )

    def scrubbed(self, name: str) -> str:
        """A simple name changed to the form that Protobuf allows, if the options request it."""
        return scrubbed(name, first="_") if self.scrub else name


def is_union(schema: Schema) -> bool:
    """True for a struct that stands for a oneof, one field for each of its fields."""
    if schema.type != "STRUCT":
        return False
    return (schema.name is not None and schema.name.startswith(UNION)) or is_any_union(schema)


def is_enum(schema: Schema) -> bool:
    """True for a string or number that is one of several symbols."""
    return schema.type in ("STRING", "INT32") and has_symbols(schema, ENUM)
