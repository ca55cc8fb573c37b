"""What the events of a table are like: keys, rows and envelopes, in Debezium's shape.

Owns their schemas, and reading rows of texts into columns of their fields. What a table is like in the database:
`cdc_catalog`; what a value becomes: `cdc_types`.

Invariant: two tables that are alike have the same schema objects, and a required field never has null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herdmesh.connect.errors import DataError
from herdmesh.connect.schemas import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
)
from herdmesh.connect.struct_column import StructColumn
from herdmesh.worker.connectors.postgres.cdc_config import CdcSettings
from herdmesh.worker.connectors.postgres.cdc_types import Labels, Reading, reading_of
from herdmesh.worker.connectors.postgres.pgoutput import Cell, Relation, Row, Toast
from herdmesh.worker.connectors.postgres.types import PgType

SNAPSHOT_WORDS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"

SOURCE = Schema(
    "STRUCT", False, "io.debezium.connector.postgresql.Source", 1,
    fields=(
        ("version", STRING), ("connector", STRING), ("name", STRING), ("ts_ms", INT64),
        ("snapshot", Schema("STRING", True, "io.debezium.data.Enum", 1, parameters={"allowed": SNAPSHOT_WORDS},
                            default="false")),
        ("db", STRING), ("sequence", OPTIONAL_STRING), ("ts_us", OPTIONAL_INT64), ("ts_ns", OPTIONAL_INT64),
        ("schema", STRING), ("table", STRING), ("txId", OPTIONAL_INT64), ("lsn", OPTIONAL_INT64),
        ("xmin", OPTIONAL_INT64),
    ),
)  # fmt: skip
_TRANSACTION = Schema(
    "STRUCT", True, "event.block", 1,
    fields=(("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)),
)  # fmt: skip
_ENVELOPE_VERSION = 2
HEARTBEAT_KEY = Schema(
    "STRUCT", False, "io.debezium.connector.common.ServerNameKey", 1, fields=(("serverName", STRING),)
)
HEARTBEAT_VALUE = Schema("STRUCT", False, "io.debezium.connector.common.Heartbeat", 1, fields=(("ts_ms", INT64),))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server's catalog says of a relation beyond what it says of itself in the stream."""

    not_null: frozenset[str]
    primary_key: tuple[str, ...]
    """In the key's order."""
    types: Mapping[tuple[int, int], PgType]
    """By the type's oid and modifier."""
    labels: Labels


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a row."""

    name: str
    place: int
    """In the rows as the server sends them."""
    optional: bool
    reading: Reading

    def values(self, table: str, cells: Sequence[Cell]) -> list[Any]:
        """Its values. Raises DataError that names it."""
        reading = self.reading
        try:
            if Toast.UNCHANGED in cells:
                return self._with_unchanged(cells)
            values = reading.values(cells)  # pyright: ignore[reportArgumentType]
        except (DataError, ValueError, ArithmeticError) as error:
            raise DataError(f"column {self.name} of {table} cannot be read: {error}") from error
        if not self.optional and None in cells:
            return [reading.empty if value is None else value for value in values]
        return values

    def _with_unchanged(self, cells: Sequence[Cell]) -> list[Any]:
        reading = self.reading
        values = reading.values([None if cell is Toast.UNCHANGED else cell for cell in cells])
        stand_in = reading.unchanged
        if stand_in is None and not self.optional:
            stand_in = reading.empty
        if not self.optional:
            values = [reading.empty if value is None else value for value in values]
        return [
            stand_in if cell is Toast.UNCHANGED else value for cell, value in zip(cells, values, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A captured table, as it is from one place in the log on."""

    schema: str
    name: str
    topic: str
    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    """Empty = its records have no key."""
    row: Schema
    """Of `before` and `after`."""
    key: Schema | None
    envelope: Schema

    @property
    def full_name(self) -> str:
        """`schema.table`."""
        return f"{self.schema}.{self.name}"

    def is_like(self, other: Table) -> bool:
        """Whether records of both may be in one batch."""
        return self._likeness() == other._likeness()

    def _likeness(self) -> tuple[object, ...]:
        places = [column.place for column in (*self.columns, *self.key_columns)]
        return self.topic, id(self.envelope), id(self.key), places

    def key_of(self, row: Row) -> tuple[Cell, ...]:
        """The key of a row, as the server's texts."""
        return tuple([row[column.place] for column in self.key_columns])

    def rows(self, rows: Sequence[Row | None]) -> Sequence[Any]:
        """A column of structs, None where there is no row. Raises DataError for a value that cannot be read."""
        present = [row for row in rows if row is not None]
        if not present:
            return [None] * len(rows)
        made = StructColumn(self.row, self._fields(self.columns, list(zip(*present, strict=True))), len(present))
        if len(present) == len(rows):
            return made
        left = iter(made)
        return [None if row is None else next(left) for row in rows]

    def keys(self, keys: Sequence[tuple[Cell, ...]]) -> Sequence[Any]:
        """A column of keys; empty where the table has none."""
        if self.key is None:
            return ()
        columns = list(zip(*keys, strict=True))
        fields = [column.values(self.full_name, cells) for column, cells in zip(self.key_columns, columns, strict=True)]
        return StructColumn(self.key, fields, len(keys))

    def _fields(self, columns: Sequence[Column], cells: Sequence[Sequence[Cell]]) -> list[list[Any]]:
        name = self.full_name
        return [column.values(name, cells[column.place]) for column in columns]


def table_of(relation: Relation, facts: Facts, settings: CdcSettings) -> Table:
    """What the events of a relation are like."""
    topic = settings.topic(relation.schema, relation.table)
    full_name = f"{relation.schema}.{relation.table}"
    columns = tuple(_column(relation, place, facts, settings) for place in range(len(relation.columns)))
    chosen = tuple(column for column in columns if settings.columns.has(f"{full_name}.{column.name}"))
    keys = tuple(_column(relation, place, facts, settings, may_be_null=False) for place in _key_places(relation, facts))
    row = Schema(
        "STRUCT", True, f"{topic}.Value",
        fields=tuple((one.name, one.reading.schema) for one in chosen),
    )  # fmt: skip
    envelope = Schema(
        "STRUCT", False, f"{topic}.Envelope", _ENVELOPE_VERSION,
        fields=(
            ("before", row), ("after", row), ("source", SOURCE), ("transaction", _TRANSACTION), ("op", STRING),
            ("ts_ms", OPTIONAL_INT64), ("ts_us", OPTIONAL_INT64), ("ts_ns", OPTIONAL_INT64),
        ),
    )  # fmt: skip
    key = None
    if keys:
        key = Schema("STRUCT", False, f"{topic}.Key", fields=tuple((one.name, one.reading.schema) for one in keys))
    return Table(relation.schema, relation.table, topic, chosen, keys, row, key, envelope)


def _column(relation: Relation, place: int, facts: Facts, settings: CdcSettings, *, may_be_null: bool = True) -> Column:
    name, type_oid, modifier, _ = relation.columns[place]
    optional = may_be_null and name not in facts.not_null
    type = facts.types[type_oid, modifier]
    return Column(name, place, optional, reading_of(type, settings.modes, facts.labels, optional=optional))


def _key_places(relation: Relation, facts: Facts) -> list[int]:
    """Where the columns of the primary key are; those of the index, where that is the replica identity: of what is
    deleted no more is known. The catalog may know a later primary key than the relation, which then counts. A key has
    no nulls."""
    names = facts.primary_key
    told = tuple(column.name for column in relation.columns if column.is_key)
    if relation.replica_identity == "i" or (relation.replica_identity == "d" and set(told) != set(names)):
        names = told
    places = {column.name: place for place, column in enumerate(relation.columns)}
    return [places[name] for name in names if name in places]
