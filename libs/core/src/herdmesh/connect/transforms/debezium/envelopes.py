"""Envelopes of Debezium's change events, and the references to their fields in settings.

Owns the definition of an envelope, and the syntax in which `add.fields` and `add.headers` name its fields.

Invariant: a reference is resolved once per schema; it reads the field's own value, without its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.errors import DataError, IllegalArgumentError, NullPointerError
from herdmesh.connect.model import Field, Schema, SchemaBuilder, Struct, java_class

_ROOT = frozenset(("op", "ts_ms", "ts_us", "ts_ns"))
_TRANSACTION = frozenset(("id", "data_collection_order", "total_order"))


def is_envelope(schema: Schema | None) -> bool:
    """True when values under this schema are change events."""
    return schema is not None and schema.name is not None and schema.name.endswith(".Envelope")


def typed_field(schema: Schema, name: str, type: str) -> Field:
    """The field, as Java's `Struct.getString` and similar methods find it. Raises DataError for a missing field or one
    of another type.
    """
    field = schema.field(name)
    if field is None:
        raise DataError(f"{name} is not a valid field name")
    if field.schema.type != type:
        raise DataError(f"Field '{name}' is not of type {type}")
    return field


def known_field(schema: Schema, name: str) -> Field:
    """The field, as Java's ExtractField finds it. Raises IllegalArgumentError when there is none."""
    field = schema.field(name)
    if field is None:
        raise IllegalArgumentError(f"Unknown field: {name}")
    return field


def required_struct(value: Any, schema: Schema | None, purpose: str) -> Struct:
    """The value as a struct, as Java's `Requirements.requireStruct`. Raises DataError for any other value."""
    if type(value) is not Struct:
        found = "null" if value is None else java_class(value, schema)
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {found}")
    return value


@dataclass(frozen=True, slots=True)
class Found:
    """Referenced field in one envelope schema: the index of its struct (None = the envelope), its index in that struct,
    and its schema in the result.
    """

    name: str
    outer: int | None
    place: int
    schema: Schema

    def expression(self, values: str) -> str:
        """Expression for the field's value; `values` names the envelope's list."""
        if self.outer is None:
            return f"{values}[{self.place}]"
        return f"(None if (outer := {values}[{self.outer}]) is None else outer.values[{self.place}])"

    def value(self, envelope: Struct) -> Any:
        """The field's value."""
        if self.outer is None:
            return envelope.values[self.place]
        outer = cast("Struct | None", envelope.values[self.outer])
        return None if outer is None else outer.values[self.place]


@dataclass(frozen=True, slots=True)
class Reference:
    """Field that a setting names: its struct (None = the envelope), its name there, and its name in the result."""

    outer: str | None
    field: str
    name: str

    @classmethod
    def of(cls, prefix: str, text: str) -> Reference:
        """Parse `field`, `struct.field` or either with `:new name`. Raises IllegalArgumentError for more than one new
        name.
        """
        source, *names = text.split(":")
        parts = source.split(".")
        field = parts[0] if len(parts) == 1 else parts[1]
        outer = _outer_of(field) if len(parts) == 1 else parts[0]
        if len(names) > 1:
            raise IllegalArgumentError(f"Unexpected field name: {text}")
        return cls(outer, field, prefix + (names[0] if names else field if len(parts) == 1 else f"{outer}_{field}"))

    def find(self, envelope: Schema) -> Found | None:
        """The field in this schema; None = there is none. Raises NullPointerError when there is no such struct."""
        root = envelope.field(self.field)
        if self.outer is None:
            return None if root is None else self._found(None, root)
        outer = envelope.field(self.outer)
        if outer is None:
            raise NullPointerError(f"the change event has no field {self.outer}, which {self.outer}.{self.field} names")
        field = outer.schema.field(self.field)
        if field is not None:
            return self._found(outer.index, field)
        return None if root is None else self._found(None, root)

    def _found(self, outer: int | None, field: Field) -> Found:
        return Found(self.name, outer, field.index, SchemaBuilder.like(field.schema).optional().build())


def _outer_of(field: str) -> str | None:
    if field in _TRANSACTION:
        return "transaction"
    if field in _ROOT:
        return None
    return "updateDescription" if field == "updateDescription" else "source"


def find_all(references: Sequence[Reference], envelope: Schema) -> list[Found]:
    """The fields of those references that this schema has."""
    return [found for found in (one.find(envelope) for one in references) if found is not None]
