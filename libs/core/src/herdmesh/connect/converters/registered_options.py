"""Shared options of the three formats with a schema registry.

Owns the options that all of them accept, their values, and the names with one meaning in each: enums and unions as
`generalized.sum.type.support` names them, and names scrubbed as in Java. Options of one format: `avro.options`,
`json_schema.options`, `protobuf.options`. Source: Confluent's `AbstractDataConfig`.

Invariant: an option of all formats is defined once, and comes first and in the same order in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote_plus

from herdmesh.connect.config import ConfigKey, Importance, Type, at_least
from herdmesh.connect.model import Schema

ANY_UNION, ANY_ENUM = "org.apache.kafka.connect.data.Union", "org.apache.kafka.connect.data.Enum"
UNION_PREFIX = "connect_union_"
PRECISION = "connect.decimal.precision"

COMMON_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("schemas.cache.config", Type.INT, 1000, Importance.LOW,
              "The maximum number of converted schemas that are cached.", at_least(1)),
    ConfigKey("generalized.sum.type.support", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether enums and unions are named as the other formats name them."),
    ConfigKey("ignore.default.for.nullables", Type.BOOLEAN, False, Importance.MEDIUM,
              "Whether null stays null where the field has a default."),
)  # fmt: skip
FLATTEN_SINGLETONS = ConfigKey(
    "flatten.singleton.unions", Type.BOOLEAN, True, Importance.LOW, "Whether a union of one type is that type."
)


def scrub_key(format_name: str) -> ConfigKey:
    """The option to scrub names, for a format that does not allow all names."""
    return ConfigKey(
        "scrub.invalid.names", Type.BOOLEAN, False, Importance.MEDIUM,
        f"Whether names {format_name} does not allow are changed into ones it does.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Settings of all three formats; see `COMMON_KEYS`."""

    own_enum: ClassVar[str]
    """The format's own name of the parameter that marks an enum."""

    general_sums: bool = False
    ignore_default: bool = False

    @property
    def enum(self) -> str:
        """The parameter that marks an enum; followed by a dot and a symbol, the parameter of that symbol."""
        return ANY_ENUM if self.general_sums else self.own_enum


def scrubbed(name: str, *, first: str = "") -> str:
    """A simple name of letters, digits and underscores that begins with no digit, and with none of `first`."""
    if not name or (name.isascii() and name.isidentifier() and name[0] not in first):
        return name
    encoded = quote_plus(name, safe="*").replace("~", "%7E")  # as Java's URLEncoder
    encoded = f"x{encoded}" if encoded[0].isdigit() or encoded[0] in first else encoded
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in encoded)


def is_any_union(schema: Schema) -> bool:
    """True for a schema that is marked as a union by any format."""
    return ANY_UNION in (schema.parameters or {})


def has_symbols(schema: Schema, own_enum: str) -> bool:
    """True for a schema that is marked as an enum, by the format's own parameter or the common one."""
    parameters = schema.parameters or {}
    return own_enum in parameters or ANY_ENUM in parameters
