"""Pieces of files that column formats share.

Owns the piece that has nothing but tombstones: it goes into whatever file there is. Invariant: `FOUND` is the shape of
values without a schema, equal to no other shape.
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
    """So many rows without any value."""

    count: int
    nbytes: int = 0


def nulls_of(values: Sequence[Any], schema: Schema | None) -> Nulls | None:
    """The piece, if there is nothing but tombstones; under a schema they are the schema's."""
    return Nulls(len(values)) if schema is None and set(map(type, values)) == _NULL else None
