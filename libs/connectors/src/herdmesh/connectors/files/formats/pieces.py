"""Pieces of files that column formats share.

Owns the piece that consists of tombstones alone: it fits any file. Invariant: `FOUND` is the shape of values without a
schema, equal to no other shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from herdmesh.sdk import Schema

FOUND: Final = "found"
_NULL: Final = {type(None)}


@dataclass(frozen=True, slots=True)
class Nulls:
    """A number of rows without any value."""

    count: int
    nbytes: int = 0


def nulls_of(values: Sequence[Any], schema: Schema | None) -> Nulls | None:
    """Return the piece if all values are tombstones without a schema,
    else None; with a schema, tombstones belong to the schema's piece.
    """
    return Nulls(len(values)) if schema is None and set(map(type, values)) == _NULL else None
