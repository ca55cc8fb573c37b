"""Struct column: structs of one schema stored field by field.

Owns the column, which gives structs to code that reads them one by one, and whole fields to code that does not need the
structs (a chain whose steps only move fields, a writer).

Invariant: a field whose schema is not optional has no null. Once the structs were handed out, only they are valid,
because they may be changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.lazy_column import LazyColumn
from herdmesh.connect.model.schemas import Schema

Fields = Sequence[Sequence[Any]]
"""A column for each field of a schema, in its order. Columns are shared and must not be changed."""


class StructColumn(LazyColumn[Struct]):
    """Column of structs of one schema, none of them null."""

    def __init__(self, schema: Schema, fields: Fields, count: int) -> None:
        """Each of `fields` has `count` values."""
        # Not a method: the reference cycle would keep it and all its values until a garbage collection, which is rare.
        super().__init__(range(count), partial(_structs, schema, fields))
        self.schema = schema
        self._fields = fields

    @property
    def fields(self) -> Fields | None:
        """The columns of the fields; None once the structs were read one by one."""
        return self._fields if self._items is None else None


def _structs(schema: Schema, fields: Fields, places: Sequence[int]) -> list[Struct]:
    new = Struct.__new__
    made: list[Struct] = []
    for values in zip(*fields, strict=True) if fields else [()] * len(places):
        struct = new(Struct)  # its constructor takes twice as long
        struct.schema = schema
        struct.values = list(values)
        made.append(struct)
    return made
