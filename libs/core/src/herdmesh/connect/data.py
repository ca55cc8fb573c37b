"""The Connect data model in Python: what a record, a schema and a value are.

Owns the types. Does not convert or transform them. Thin where nothing needs more yet: schemas describe, they do not
validate.

Schemaless values are plain Python: None, bool, int (Java long), float (Java double), str, bytes, list, dict. The Java
types Python has no own type for are marker subclasses (`Int32(5)` is an int), so that code that does not care sees
plain numbers and code that must print or refuse like Java can tell. `Decimal` is Java's BigDecimal.

Invariant: a value's Java class can be told from its Python type alone (`javavalues.java_class`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any


class Int8(int):
    """A Java Byte."""


class Int16(int):
    """A Java Short."""


class Int32(int):
    """A Java Integer."""


class BigInteger(int):
    """A Java BigInteger; has no Connect type of its own."""


class Float32(float):
    """A Java Float."""


class JavaDate(int):
    """A java.util.Date: epoch milliseconds. Value of the logical types Date, Time and Timestamp."""

    def to_datetime(self) -> datetime:
        """The instant in UTC. Raises OverflowError beyond year 9999."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(self))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct schema, in order."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """A Connect schema (reference data-model 1.1). `type` is the upper-case name: INT8 ... FLOAT64, BOOLEAN, STRING,
    BYTES, ARRAY, MAP, STRUCT. `parameters` is None or non-empty."""

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    default: Any = None
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None


OPTIONAL_STRING = Schema("STRING", optional=True)
OPTIONAL_BYTES = Schema("BYTES", optional=True)


@dataclass(slots=True)
class Struct:
    """A value of a struct schema: `values` by field name, a missing name is unset."""

    schema: Schema
    values: dict[str, Any]

    def __hash__(self) -> int:
        # A struct can be a map's key. Equal structs have equal names and fields; their values may not be hashable.
        return hash((self.schema.name, frozenset(self.values)))


@dataclass(slots=True)
class Header:
    """One record header; `schema` None = schemaless."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True)
class ConnectRecord:
    """One record on its way, source or sink.

    `partition` None lets the producer choose. `timestamp_ms` None = none. `offset` is the sink record's Kafka offset,
    None for a source record; `source_partition` and `source_offset` are the source's, None for a sink record. A
    transformation never changes those three.
    """

    topic: str | None
    partition: int | None = None
    key: Any = None
    value: Any = None
    timestamp_ms: int | None = None
    headers: list[Header] = field(default_factory=list[Header])
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    offset: int | None = None
    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Batch:
    """Many records of one topic and partition as columns of equal length: how the record loop and a chain exchange
    them.

    `keys` and `values` hold raw bytes (or None) on the Kafka side and Connect values on the connector's side. For a
    sink `partition` and `offsets` are Kafka's. For a source `partition` is None unless the connector chose one, and
    `offsets` is empty. `timestamps_ms` is empty when nobody needs timestamps, else one per record, None = none; empty
    `keys` means that no record has one. The schemas hold for all records; None = schemaless.
    """

    topic: str
    partition: int | None
    keys: Sequence[Any]
    values: Sequence[Any]
    offsets: Sequence[int] = ()
    timestamps_ms: Sequence[int | None] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
