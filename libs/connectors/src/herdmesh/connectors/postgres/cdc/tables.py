"""Event schemas of captured tables: keys, rows and envelopes, in Debezium's form.

Owns the schemas, and converting rows of texts to columns of their fields. The table in the database: `catalog`; the
form of values: `types`.

Today's catalog defines whether a column may be null, and rows may be older. A null in a column that must have none is
therefore not replaced, but raised as `NullFound`: the caller continues with the table that `loosened` returns.

Invariant: two equal tables have the same schema objects; a required field never has null, and no field has a value that
the server did not send, except the placeholder and, in the row before a change, the columns outside of its identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

from herdmesh.connect.model import INT64, OPTIONAL_INT64, OPTIONAL_STRING, STRING, StructColumn
from herdmesh.connectors.postgres.cdc.pgoutput import Cell, Relation, Row, Toast
from herdmesh.connectors.postgres.cdc.settings import PREFIX, TABLES, CdcSettings
from herdmesh.connectors.postgres.cdc.types import EventReading, Labels, reading_of
from herdmesh.connectors.postgres.connection import quoted
from herdmesh.connectors.postgres.types import PgType
from herdmesh.sdk import ConfigError, DataError, Schema

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
    """Facts of the server's catalog about a relation that the stream does not contain."""

    not_null: frozenset[str]
    primary_key: tuple[str, ...]
    """In the key's order; by the columns' names in the relation."""
    types: Mapping[tuple[int, int], PgType]
    """By the type's oid and modifier."""
    labels: Labels


@dataclass(frozen=True, slots=True)
class EventColumn:
    """A field of a row."""

    name: str
    place: int
    """Place in the rows that the server sends."""
    optional: bool
    reading: EventReading

    def values(self, table: str, cells: Sequence[Cell]) -> list[Any]:
        """Convert the values of the column.

        Raises:
            NullFound: a value is null, and the column is not optional.
            DataError: a value is invalid; names the column.
        """
        return self._values(table, cells, set(map(type, cells)))

    def _values(self, table: str, cells: Sequence[Cell], kinds: set[type]) -> list[Any]:
        """`kinds`: the types of the cells."""
        if NoneType in kinds and not self.optional:
            raise NullFound(f"column {self.name} of {table} is null, and must not be", self.name)
        reading = self.reading
        try:
            if Toast in kinds:
                return self._with_stand_ins(cells)
            read = reading.values if NoneType in kinds else reading.read
            return read(cells)  # pyright: ignore[reportArgumentType]
        except (DataError, ValueError, ArithmeticError) as error:
            raise DataError(f"column {self.name} of {table} cannot be read: {error}") from error

    def _with_stand_ins(self, cells: Sequence[Cell]) -> list[Any]:
        reading = self.reading
        if reading.unchanged is None and Toast.UNCHANGED in cells:
            raise DataError("the server left its value out as unchanged, which it never does for this type")
        stand_ins = {Toast.UNCHANGED: reading.unchanged, Toast.UNKNOWN: None if self.optional else reading.empty}
        values = reading.values([None if isinstance(cell, Toast) else cell for cell in cells])
        return [
            stand_ins[cell] if isinstance(cell, Toast) else value for cell, value in zip(cells, values, strict=True)
        ]  # fmt: skip

    def key_values(self, table: str, cells: Sequence[Cell]) -> list[Any]:
        """Convert the values of the column for keys. Raises like
        `values`, and DataError for a value that was not sent.
        """
        kinds = set(map(type, cells))
        if Toast in kinds:
            raise DataError(
                f"column {self.name} of {table} is part of the key, and the server did not send it because it is "
                "stored out of line and did not change: update the server to a release since February 2022 (14.2, 13.6 "
                "or newer)"
            )
        try:
            return self._values(table, cells, kinds)
        except NullFound as null:
            raise NullFound(f"{null}, as part of the key", self.name, of_key=True) from None


class NullFound(DataError):
    """A null where today's catalog allows none: the row is older than the catalog."""

    def __init__(self, message: str, column: str, *, of_key: bool = False) -> None:
        super().__init__(message)
        self.column = column
        self.of_key = of_key


@dataclass(frozen=True, slots=True)
class Table:
    """Description of a captured table, valid from one log position on."""

    schema: str
    name: str
    topic: str
    columns: tuple[EventColumn, ...]
    key_columns: tuple[EventColumn, ...]
    """Empty = its records have no key."""
    row: Schema
    """Schema of `before` and `after`."""
    key: Schema | None
    envelope: Schema
    origin: tuple[Relation, Facts, CdcSettings]
    """The facts from which it was built."""

    @property
    def full_name(self) -> str:
        """`schema.table`."""
        return f"{self.schema}.{self.name}"

    def key_of(self, row: Row) -> tuple[Cell, ...]:
        """Return the key of a row, as the server's texts."""
        return tuple([row[column.place] for column in self.key_columns])

    def rows(self, rows: Sequence[Row | None]) -> Sequence[Any]:
        """Return a column of structs, None for a missing row. Raises like `EventColumn.values`."""
        present = [row for row in rows if row is not None]
        if not present:
            return [None] * len(rows)
        made = StructColumn(self.row, self._fields(self.columns, list(zip(*present, strict=True))), len(present))
        if len(present) == len(rows):
            return made
        left = iter(made)
        return [None if row is None else next(left) for row in rows]

    def keys(self, keys: Sequence[tuple[Cell, ...]]) -> Sequence[Any]:
        """Return a column of keys; empty if the table has none. Raises like `EventColumn.key_values`."""
        if self.key is None:
            return ()
        columns = list(zip(*keys, strict=True))
        name = self.full_name
        fields = [column.key_values(name, cells) for column, cells in zip(self.key_columns, columns, strict=True)]
        return StructColumn(self.key, fields, len(keys))

    def loosened(self, column: str) -> Table:
        """Return the table with this column nullable. Its key is unchanged."""
        relation, facts, settings = self.origin
        made = table_of(relation, replace(facts, not_null=facts.not_null - {column}), settings)
        return made if self.key is not None else made.without_key()

    def without_key(self) -> Table:
        """Return the table without a key, for rows older than the key."""
        return replace(self, key_columns=(), key=None)

    def _fields(self, columns: Sequence[EventColumn], cells: Sequence[Sequence[Cell]]) -> list[list[Any]]:
        name = self.full_name
        return [column.values(name, cells[column.place]) for column in columns]


def table_of(relation: Relation, facts: Facts, settings: CdcSettings) -> Table:
    """Return the description of a relation's events."""
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
    return Table(relation.schema, relation.table, topic, chosen, keys, row, key, envelope, (relation, facts, settings))


def check_topics(tables: Iterable[tuple[str, str]], settings: CdcSettings) -> None:
    """Refuse two tables, by schema and name, whose changes would
    go to one topic, where consumers could not distinguish them.

    Characters that a topic name cannot have become underscores, and
    a dot in a name looks like the one between schema and table.

    Raises:
        ConfigError: with both.
    """
    found: dict[str, tuple[str, str]] = {}
    for schema, name in tables:
        topic = settings.topic(schema, name)
        other = found.setdefault(topic, (schema, name))
        if other != (schema, name):
            raise ConfigError(
                f'tables {quoted(*other)} and {quoted(schema, name)} would both go to topic "{topic}": '
                "Kafka allows only ASCII letters, digits, dots, underscores and hyphens in topic names",
                field=TABLES[3],
                fix=f"leave one of them out ({TABLES[3]}), capture it with another {PREFIX}, or rename it",
            )


def _column(
    relation: Relation, place: int, facts: Facts, settings: CdcSettings, *, may_be_null: bool = True
) -> EventColumn:
    name, type_oid, modifier, _ = relation.columns[place]
    optional = may_be_null and name not in facts.not_null
    type = facts.types[type_oid, modifier]
    return EventColumn(name, place, optional, reading_of(type, settings.modes, facts.labels, optional=optional))


def _key_places(relation: Relation, facts: Facts) -> list[int]:
    """Return the places of the primary key's columns; of the index, if that is the
    replica identity, because a deleted row has only these. The catalog may have
    a later primary key than the relation, which then counts. A key has no nulls.
    """
    names = facts.primary_key
    told = tuple(column.name for column in relation.columns if column.is_key)
    if relation.replica_identity == "i" or (relation.replica_identity == "d" and set(told) != set(names)):
        names = told
    places = {column.name: place for place, column in enumerate(relation.columns)}
    return [places[name] for name in names if name in places]
