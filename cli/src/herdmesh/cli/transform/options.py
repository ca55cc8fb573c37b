"""The choices of `herd transform`'s options.

Invariant: imports nothing, so that `herd` need not load converters and transformations to list its commands.
"""

from __future__ import annotations

from enum import StrEnum


class Direction(StrEnum):
    """Which way records go through the chain."""

    SINK = "sink"
    SOURCE = "source"
    VALUES = "values"


class RecordForm(StrEnum):
    """What a line of the input is."""

    AUTO = "auto"
    LINES = "lines"
    RECORDS = "records"
    TYPED = "typed"


class Output(StrEnum):
    """What is printed of a record."""

    JSON = "json"
    VALUE = "value"
