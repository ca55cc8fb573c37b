"""Reader of fields of records' values, with their schemas.

Owns looking up a field by its name: the exact name first, then `a.b` as a path within
structs and maps. Invariant: a missing field reads as null, as does a field of a
tombstone, or of a value that does not fit its schema (the format refuses such a value).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.model import LOGICAL
from herdmesh.sdk import Schema, Struct


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reader of one field, for values of one schema."""

    read: Callable[[Any], Any]
    schema: Schema | None
    """The field's schema; None = the field has no schema or is missing."""


class FieldReaders:
    """Readers of some fields, created once for each schema."""

    def __init__(self, names: Sequence[str], *, defaults: bool = True) -> None:
        """`defaults`: read a null as the default of its schema, if there is one."""
        self._names = names
        self._defaults = defaults
        self._schema: Schema | None = None
        self._readers = [FieldReader(_any_field(name), None) for name in names]
        self._schemaless = self._readers

    def under(self, schema: Schema | None) -> Sequence[FieldReader]:
        """Return the readers for values with this schema, in the order of the names."""
        if schema is None:
            return self._schemaless
        if schema is not self._schema:
            self._schema = schema
            self._readers = [self._reader(name, schema) for name in self._names]
        return self._readers

    def _reader(self, name: str, schema: Schema) -> FieldReader:
        steps: list[Callable[[Any], Any]] = []
        found: Schema | None = schema
        whole = schema.type == "STRUCT" and name in schema.places
        for part in (name,) if whole else name.split("."):
            if found is None or found.name in LOGICAL:
                return FieldReader(_nothing, None)
            if found.type == "STRUCT" and part in found.places:
                field = found.fields[found.places[part]]
                steps.append(_member(field.index, field.schema.default if self._defaults else None))
                found = field.schema
            elif found.type == "MAP":
                found = found.value_schema
                steps.append(_item(part, None if found is None or not self._defaults else found.default))
            else:
                return FieldReader(_nothing, None)
        return FieldReader(steps[0] if len(steps) == 1 else _through(steps), found)


def _nothing(_value: Any) -> None:
    return None


def _member(place: int, default: Any) -> Callable[[Any], Any]:
    def read(struct: Any) -> Any:
        if type(struct) is not Struct or place >= len(struct.values):
            return None
        value = struct.values[place]
        return default if value is None else value

    return read


def _item(key: str, default: Any) -> Callable[[Any], Any]:
    def read(members: Any) -> Any:
        if type(members) is not dict or key not in members:
            return None
        value = cast("dict[Any, Any]", members)[key]
        return default if value is None else value

    return read


def _through(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return read


def _any_field(name: str) -> Callable[[Any], Any]:
    """Return a reader of a field for values without a schema."""
    path = name.split(".")

    def read(row: Any) -> Any:
        if not isinstance(row, dict):
            return None
        found: Any = cast("dict[str, Any]", row)
        if name in found:
            return found[name]
        for part in path:
            if not isinstance(found, dict):
                return None
            found = cast("dict[str, Any]", found).get(part)
        return found

    return read
