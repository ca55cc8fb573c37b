"""The choices of `herd transform`'s options.

Invariant: imports nothing, so that `herd` need not load converters and transformations to list its commands.
"""

from __future__ import annotations

from enum import StrEnum


class Direction(StrEnum):
    """The direction of records through the chain."""

    SINK = "sink"
    SOURCE = "source"
    VALUES = "values"


class RecordForm(StrEnum):
    """The form of an input line."""

    AUTO = "auto"
    LINES = "lines"
    RECORDS = "records"
    TYPED = "typed"
