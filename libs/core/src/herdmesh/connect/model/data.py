"""Values and records of the Connect data model.

Owns the types. Schemas: `schemas`. Check of a value against a schema: `checks`. Converts and transforms nothing.

Values without a schema are plain Python: None, bool, int (Java long), float (Java double), str, bytes, list, dict. Java
types that Python lacks are marker subclasses (`Int32(5)` is an int): ordinary code sees plain numbers, and code that
must print or refuse like Java can distinguish them. `Decimal` is Java's BigDecimal.

Under a schema a plain int or float stands for the Java class that the schema names (5 under INT8 is a Byte), so that
reading a record creates no object per number; a marker stands for its own class alone (`Int64(5)` under INT8 is a Long,
and does not fit).

Invariant: a value's Java class follows from its Python type and its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import msgspec

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.schemas import Schema

NO_TIMESTAMP_MS: Final = -1
"""The timestamp of a record without one, as Kafka writes it (docs/reference/connect/data-model.md, section 2.1)."""


class Int8(int):
    """A Java Byte."""


class Int16(int):
    """A Java Short."""


class Int32(int):
    """A Java Integer."""


class BigInteger(int):
    """A Java BigInteger; it has no Connect type."""


class Int64(int):
    """A Java Long under a schema that requires another class; everywhere else a plain int is a Long."""


class Float32(float):
    """A Java Float."""


class Float64(float):
    """A Java Double under a schema that requires another class; everywhere else a plain float is a Double."""


class JavaDate(int):
    """A java.util.Date: epoch milliseconds. Value of the logical types Date, Time and Timestamp."""

    def to_datetime(self) -> datetime:
        """The instant in UTC. Raises OverflowError beyond year 9999."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(self))


class MapKey(dict[Any, Any]):
    """A map as a key of another map. Like every key it must not be changed."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self)


def map_key(value: Any) -> Any:
    """The form of a value as the key of a map: a list becomes a tuple, a map a `MapKey`."""
    if isinstance(value, list):
        return tuple(map(map_key, cast("list[Any]", value)))
    if isinstance(value, dict) and not isinstance(value, MapKey):
        return MapKey(cast("dict[Any, Any]", value))
    return value


class Struct:
    """A value of a struct schema (docs/reference/connect/data-model.md, section 1.5).

    `values` has one item for each field of the schema, in its order; None = not set. A default applies when a field is
    read by `get`, not in `values`, as in Java.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, values: list[Any] | None = None) -> None:
        """`values` is used without a check and without a copy. Raises DataError when the schema is not of type
        STRUCT."""
        if schema.type != "STRUCT":
            raise DataError(f"Not a struct schema: {schema}")
        self.schema = schema
        self.values: list[Any] = [None] * len(schema.fields) if values is None else values

    def put(self, name: str, value: Any) -> Struct:
        """Set a field; returns the struct. Raises DataError for an unknown field or a value that does not fit."""
        from herdmesh.connect.model.checks import check_value  # that module needs this module itself

        place = self._place(name)
        check_value(self.schema.fields[place].schema, value, name)
        self.values[place] = value
        return self

    def get(self, name: str) -> Any:
        """The field's value, or its default when it has none. Raises DataError for an unknown field."""
        place = self._place(name)
        value = self.values[place]
        return self.schema.fields[place].schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """The field's value as it was set. Raises DataError for an unknown field."""
        return self.values[self._place(name)]

    def get_typed(self, name: str, schema_type: str) -> Any:
        """The value of a field of this type (`INT32`), as it was set, as Java's `getInt32` and similar methods return
        it. Raises DataError for an unknown field or a field of another type.
        """
        place = self._place(name)
        if self.schema.fields[place].schema.type != schema_type:
            raise DataError(f"Field '{name}' is not of type {schema_type}")
        return self.values[place]

    def validate(self) -> None:
        """Raise DataError for a required field without a value, and for a value that does not fit."""
        from herdmesh.connect.model.checks import check_struct  # that module needs this module itself

        check_struct(self)

    def _place(self, name: str) -> int:
        place = self.schema.places.get(name)
        if place is None:
            raise DataError(f"{name} is not a valid field name")
        return place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema is other.schema and self.values == other.values

    def __hash__(self) -> int:
        # A struct can be a map's key; its values may not be hashable.
        return hash(self.schema)

    def __repr__(self) -> str:
        return f"Struct({self.schema!r}, {self.values!r})"

    def __str__(self) -> str:
        """Java's `toString`: fields that are null are left out, and no default is shown."""
        from herdmesh.connect.model.java_values import java_text  # that module needs this module itself

        return java_text(self)

    def frozen(self, freeze: Callable[[Any], Any]) -> tuple[Any, ...]:
        """A hashable form, for `Schema`."""
        return Struct, self.schema, tuple(freeze(value) for value in self.values)


@dataclass(slots=True)
class Header:
    """One record header; `schema` None = schemaless."""

    key: str
    value: Any
    schema: Schema | None = None


class ConnectRecord(msgspec.Struct, gc=False, eq=False):
    """One source or sink record on its way through a chain.

    `partition` None lets the producer choose. `timestamp_ms` None = no timestamp. `offset` is a sink record's Kafka
    offset, None for a source record; `source_partition` and `source_offset` belong to a source record, None for a sink
    record. A transformation never changes those three.

    A msgspec struct, which costs a fifth of a dataclass to create; `msgspec.structs.replace` creates a changed copy. No
    field may refer to the record itself: Python's garbage collector would not find that cycle and never free it.
    """

    topic: str | None
    partition: int | None = None
    key: Any = None
    value: Any = None
    timestamp_ms: int | None = None
    headers: list[Header] = msgspec.field(default_factory=list[Header])
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    offset: int | None = None
    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None
    original_topic: str | None = None
    """The topic that a sink record was read from; `partition` and `offset` refer to it even when a transformation
    changed `topic` (KIP-793). Neither this field nor `origin` counts when two records are compared.
    """
    origin: Any = None
    """The record as it was read, for reports about a record of a `RecordSinkTask`. `msgspec.structs.replace` keeps it,
    as Java's `newRecord` does; a newly created record has none.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConnectRecord) and _columns(self)[:-2] == _columns(other)[:-2]

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # it can be changed

    def __repr__(self) -> str:
        columns = zip(self.__struct_fields__, _columns(self)[:-1], strict=False)
        return f"ConnectRecord({', '.join(f'{name}={value!r}' for name, value in columns)})"


def _columns(record: ConnectRecord) -> tuple[Any, ...]:
    return msgspec.structs.astuple(record)


@dataclass(slots=True)
class Batch:
    """Records of one partition and one shape as columns of equal length: the unit that the record loop and a chain
    exchange.

    `keys` and `values` have raw bytes (or None) on the Kafka side and Connect values on the connector's side; `headers`
    has pairs of name and bytes on the Kafka side and `Header`s on the connector's. For a sink `partition` and `offsets`
    are Kafka's. For a source `partition` is None unless the connector chose one, and `offsets` is empty.
    `timestamps_ms` is empty when nobody needs timestamps, else it has one per record, None = no timestamp. Empty `keys`
    or `headers` mean that no record has any. The schemas apply to all records; None = schemaless. `topics` is empty
    unless the records go to several topics: then it replaces `topic`; `partitions` replaces `partition` in the same
    way. `places` is for the caller of a chain: the indexes of these records in the batch that it passed, else empty.
    """

    topic: str
    partition: int | None
    keys: Sequence[Any]
    values: Sequence[Any]
    offsets: Sequence[int] = ()
    timestamps_ms: Sequence[int | None] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    headers: Sequence[list[Any]] = ()
    topics: Sequence[str] = ()
    places: Sequence[int] = ()
    partitions: Sequence[int | None] = ()
