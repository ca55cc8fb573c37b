"""Plan for reading one table or query: its SQL for each mode, and conversion of rows to batches.

Owns one relation's plan: the selected columns, the start place, the order, and the
columns of a batch. When to read: `task`; where a batch ends: `sweep`. The connection's
time zone must be `db.timezone` (`opened`): a timestamp without a zone is compared in it.

Invariant: rows come in the order of their places, so a reader that has a row has all visible ones before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from herdmesh.connect.model import StructColumn
from herdmesh.connectors.postgres.connection import Connection, connect, errors_translated, quoted
from herdmesh.connectors.postgres.source.catalog import SourceColumn
from herdmesh.connectors.postgres.source.moments import MINUS_INFINITY_US, moment_sql
from herdmesh.connectors.postgres.source.settings import KEY_COLUMNS, SourceSettings
from herdmesh.connectors.postgres.source.skipped_hours import SkippedHours
from herdmesh.connectors.postgres.types import (
    EPOCH_US,
    ColumnReader,
    PgType,
    numeric_shape,
    read_raw,
    reading_of,
    schema_of,
)
from herdmesh.connectors.postgres.types import MINUS_INFINITY_US as RAW_MINUS_INFINITY_US
from herdmesh.connectors.table_source import Mode, Relation, TablePlace
from herdmesh.connectors.table_source.settings import INCREMENTING, TIMESTAMP, ZONE
from herdmesh.sdk import ConfigError, DataError, Schema, SourceBatch

Row = tuple[Any, ...]
#: Qualifies column names that could be confused with selected names (ORDER BY).
_ROWS = "herdmesh_rows"
_SESSION = """
SELECT set_config('TimeZone', %s, false), set_config('datestyle', 'ISO', false),
    set_config('extra_float_digits', '1', false), set_config('lc_monetary', 'C', false)
"""
"""Session settings so that any server can read the texts that the server prints (ranges, composites, money), whatever
the role's or the database's settings are: 02.03.2024 is ambiguous. The order of day and month in a query's own
constants is not changed.
"""


def opened(settings: SourceSettings) -> Connection:
    """Open a connection for plans, in the configured time zone,
    with texts that any server reads. Raises like `connect`.
    """
    connection = connect(settings.connection)
    try:
        with errors_translated(f"{ZONE}: {settings.types.zone} cannot be set", field=ZONE):
            connection.execute(_SESSION, (settings.types.zone,))
    except BaseException:
        connection.close()
        raise
    read_raw(connection)
    return connection


class Order:
    """The order of rows in a relation: SQL expressions of its columns. Needs no types."""

    def __init__(self, settings: SourceSettings, number: str | None, moments: Sequence[str]) -> None:
        """`number`, `moments`: names of columns, as in the server."""
        self._mode = settings.mode
        self._delay_ms = settings.delay_ms
        self.number = f"{_ROWS}.{quoted(number)}" if number is not None else ""
        names = [f"{_ROWS}.{quoted(one)}" for one in moments]
        self.moment = names[0] if len(names) == 1 else f"coalesce({', '.join(names)})" if names else ""

    @property
    def columns(self) -> list[str]:
        """Return the expressions selected after a row's own
        columns: its moment and its number, if the mode has them.
        """
        moment = [f"({self.moment})::timestamptz"] if self.moment else []
        return [*moment, *([f"{self.number}::int8"] if self.number else [])]

    def by(self, direction: str) -> str:
        """Return the ORDER BY clause, "" if the mode has no order."""
        terms = [f"{one} {direction}" for one in (self.moment, self.number) if one]
        return f" ORDER BY {', '.join(terms)}" if terms else ""

    def between(self, after: TablePlace, upto: int | None = None) -> str:
        """Return the WHERE clause for rows after a place, with numbers
        up to `upto`, and with moments that are old enough now.
        """
        if self._mode is Mode.BULK:
            return ""
        terms = [f"{self.number} IS NOT NULL"] if not self.moment and upto is None else []
        if self.moment:
            delay = f" - {self._delay_ms} * INTERVAL '1 ms'" if self._delay_ms else ""
            terms.append(f"{self.moment} < statement_timestamp(){delay}")
        if self.moment and after.moment_us is not None:
            moment = moment_sql(after.moment_us)
            if self.number and after.number is not None:
                terms.append(f"({self.moment}, {self.number}) > ({moment}, {after.number})")
            else:
                terms.append(f"{self.moment} > {moment}")
        elif not self.moment and after.number is not None:
            terms.append(f"{self.number} > {after.number}")
        if upto is not None:
            terms.append(f"{self.number} <= {upto}")
        return f" WHERE {' AND '.join(terms)}"

    def last(self, source: str) -> str:
        """Return a query for the place of the present last row, as a text."""
        text = " || '/' || ".join(f"({one})::text" for one in (self.moment, self.number) if one)
        return f"SELECT {text} FROM {source} AS {_ROWS}{self.between(TablePlace())}{self.by('DESC')} LIMIT 1"


class SourcePlan:
    """Plan for reading one relation with these columns."""

    def __init__(
        self, relation: Relation, columns: Sequence[SourceColumn], settings: SourceSettings, serial: str = ""
    ) -> None:
        """`serial`: the column with automatic numbers, for a config that names none.

        Raises ConfigError for columns that are missing, or whose type gives no place or no key.
        """
        self.relation = relation
        self._columns = tuple(columns)
        mode = settings.mode
        number = self._column(settings.incrementing or serial, INCREMENTING) if mode.has_number else None
        moments = [self._column(name, TIMESTAMP) for name in settings.timestamps]
        if number is not None:
            _require_type(number, INCREMENTING, relation, _is_whole)
        for moment in moments:
            _require_type(moment, TIMESTAMP, relation, _is_moment)
        if settings.requires_not_null:
            _require_not_null(number, moments, relation)
        self.order = Order(settings, number and number.name, [one.name for one in moments])
        self._has_moment, self._has_number = bool(moments), number is not None
        self._width = self._has_moment + self._has_number
        is_local = any(one.type.name == "timestamp" for one in moments)
        self._skipped = SkippedHours(settings.types.zone) if is_local else None
        readings = [(column.name, reading_of(column.type, settings.types)) for column in columns]
        self._readers = [(name, reading.column) for name, reading in readings]
        self._selected = [reading.sql(quoted(name)) for name, reading in readings]
        fields = [(column.name, schema_of(column, settings.types)) for column in columns]
        self._schema = Schema("STRUCT", name=relation.schema_name, fields=fields)
        keys = [self._column(name, KEY_COLUMNS) for name in settings.key_columns]
        self._key_places = [self._columns.index(one) for one in keys]
        self._key_schema = _key_schema([fields[at] for at in self._key_places])
        self._suffix = f" {settings.suffix}" if settings.suffix else ""

    def reads(self, columns: Sequence[SourceColumn]) -> bool:
        """True when the plan is for these columns."""
        return self._columns == tuple(columns)

    def query(self, after: TablePlace, upto: int | None = None) -> str:
        """Return the query for the rows after a place, in order; `upto`: maximum number."""
        selected = ", ".join([*self._selected, *self.order.columns])
        where = self.order.between(after, upto)
        return f"SELECT {selected} FROM {self.relation.source} AS {_ROWS}{where}{self.order.by('ASC')}{self._suffix}"

    def highest(self, after: TablePlace) -> str:
        """Return a query for the highest number after a place; it gives null if there is none."""
        where = self.order.between(after)
        return f"SELECT max({self.order.number})::int8 FROM {self.relation.source} AS {_ROWS}{where}"

    def ties(self, one: Row, other: Row) -> bool:
        """True when no place lies between two rows: they have the same place, or are in an hour that the zone's clock
        skips, whose local times are not in the order of their moments.
        """
        width = self._width
        if width == 0:
            return False
        return one[-width:] == other[-width:] or (
            self._skipped is not None and self._skipped.have_both(one[-width], other[-width])
        )

    def place_after(self, rows: Sequence[Row]) -> TablePlace:
        """Return the place after all of these rows, at least one, and all rows before them."""
        last = rows[-1]
        if self._skipped is None or not self._skipped.have_both(last[-self._width], last[-self._width]):
            return self.place(last)
        return self.place(max(takewhile(partial(self.ties, last), reversed(rows)), key=lambda row: row[-self._width :]))

    def place(self, row: Row) -> TablePlace:
        """Return the place after a row."""
        if not self._has_moment:
            return TablePlace(row[-1] if self._has_number else None)
        moment, number = (row[-2], row[-1]) if self._has_number else (row[-1], None)
        return TablePlace(number, moment + EPOCH_US if moment != RAW_MINUS_INFINITY_US else MINUS_INFINITY_US)

    def batch(self, rows: Sequence[Row], place: TablePlace) -> SourceBatch:
        """Convert rows to a batch, with the offset of a place. Raises DataError, with the column, for a value that
        Connect cannot represent.
        """
        raw = list(zip(*rows, strict=True))
        fields = [self._read(name, reader, raw[at]) for at, (name, reader) in enumerate(self._readers)]
        count = len(rows)
        keys: Sequence[Any] = ()
        if len(self._key_places) == 1:
            keys = fields[self._key_places[0]]
        elif self._key_places:
            assert self._key_schema is not None
            keys = StructColumn(self._key_schema, [fields[at] for at in self._key_places], count)
        return SourceBatch(
            self.relation.topic,
            StructColumn(self._schema, fields, count),
            self.relation.partition,
            place.offset(),
            keys=keys,
            key_schema=self._key_schema,
            value_schema=self._schema,
        )

    def _read(self, name: str, reader: ColumnReader | None, raw: Sequence[Any]) -> Sequence[Any]:
        if reader is None:
            return raw
        try:
            return reader(raw)
        except DataError as error:
            raise DataError(f"column {name} of {self.relation.label}: {error}") from error

    def _column(self, name: str, key: str) -> SourceColumn:
        """Return the column of that name, or the only one whose name differs only in case."""
        exact = [column for column in self._columns if column.name == name]
        found = exact or [column for column in self._columns if column.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        known = ", ".join(column.name for column in self._columns) or "none"
        if not name:
            message = f"{key}: {self.relation.label} has no serial or identity column"
        else:
            message = f"{key}: {self.relation.label} has no column {name}; it has {known}"
        raise ConfigError(message, field=key, fix="name one of its columns")


def _key_schema(fields: Sequence[tuple[str, Schema]]) -> Schema | None:
    if len(fields) == 1:
        return fields[0][1]
    return Schema("STRUCT", fields=fields) if fields else None


def _is_whole(type: PgType) -> str:
    if type.name in ("int2", "int4", "int8", "oid"):
        return ""
    shape = numeric_shape(type.typmod) if type.name == "numeric" else None
    is_small = shape is not None and shape[1] <= 0 and shape[0] - shape[1] < 19
    return "" if is_small else "a whole number of up to 18 digits"


def _is_moment(type: PgType) -> str:
    return "" if type.name in ("timestamptz", "timestamp", "date") else "a timestamp or date"


def _require_type(column: SourceColumn, key: str, relation: Relation, wanted: Callable[[PgType], str]) -> None:
    wish = wanted(column.type)
    if wish:
        raise ConfigError(
            f"{key}: column {column.name} of {relation.label} is of type {column.type.name}, not {wish}",
            field=key,
            fix=f"name a column with {wish}",
        )


def _require_not_null(number: SourceColumn | None, moments: Sequence[SourceColumn], relation: Relation) -> None:
    """Check that a timestamp column is not nullable; of several,
    one is enough. Columns of a query cannot be checked.
    """
    if relation.schema_name is None:
        return
    if number is not None and number.nullable:
        key, named = INCREMENTING, number.name
    elif moments and all(moment.nullable for moment in moments):
        key, named = TIMESTAMP, ", ".join(moment.name for moment in moments)
    else:
        return
    raise ConfigError(
        f"{key}: {named} of {relation.label} may be null, and rows where it is null would not be read",
        field=key,
        fix="ALTER TABLE ... SET NOT NULL, or validate.non.null=false",
    )
