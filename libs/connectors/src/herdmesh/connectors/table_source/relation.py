"""A table, view or query as a source reads it: its SQL, its topic and its source partition.

Owns no SQL of rows: that is each source's plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Relation:
    """One table, view or query."""

    label: str
    """For messages."""
    source: str
    """Its text in SQL's FROM."""
    topic: str
    schema_name: str | None
    """The name of its records' schema; None = a query, whose schema has no name."""
    partition: Mapping[str, Any]
    """The source partition, as the offsets topic has it."""
