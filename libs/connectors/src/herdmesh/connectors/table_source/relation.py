"""A table, view or query as a source reads it: its SQL, its topic and its source partition.

Owns no SQL of rows: that is in each source's plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Relation:
    """One table, view or query."""

    label: str
    """Name for messages."""
    source: str
    """Text for SQL's FROM."""
    topic: str
    schema_name: str | None
    """Name of the records' schema; None = a query, whose schema has no name."""
    partition: Mapping[str, Any]
    """Source partition, as in the offsets topic."""
