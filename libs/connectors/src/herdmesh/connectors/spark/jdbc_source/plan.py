"""Plan for reading one table or query: the SQL for each mode,
the place of each row, and conversion of rows to batches.

Owns one relation's plan. Where a batch ends: `sweep`; executing the SQL: `database`.

A place is Confluent's: the number of a row, the timestamp of its last change, or both (`table_source.offsets`).
Timestamps are read to the microsecond. Some databases have finer ones, or report other timestamps than they compare
(SQL Server's `datetime`). So rows of one microsecond are sent together; the rows that SQL finds after a place may begin
with rows that were sent already, and those are skipped (`already`).

Invariant: the statement selects every visible row after the place, in the order of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow
import pyarrow.compute

from herdmesh.connectors.spark.jdbc_source.database import Columns, JdbcColumn, Parameter
from herdmesh.connectors.spark.jdbc_source.settings import JdbcSettings, topic_name
from herdmesh.connectors.table_source import QUERY_PARTITION, Mode, Relation, TablePlace, table_partition
from herdmesh.connectors.table_source.settings import INCREMENTING, QUERY, TIMESTAMP, URL, ZONE
from herdmesh.sdk import ConfigError, DataError, SourceBatch
from herdmesh.sdk.arrow import arrow_source_batch

pa: Any = pyarrow
_compute: Any = pyarrow.compute
_ROWS: Final = "herdmesh_rows"
_WHOLE: Final = ("byte", "short", "integer", "long")
_INT64: Final = range(-(1 << 63), 1 << 63)

RowPlace = tuple[int, int]
"""Moment in microseconds since 1970, and number; 0 if the mode does not have it."""


def relation_of(table: str, settings: JdbcSettings) -> Relation:
    """Return the relation of a table."""
    name = topic_name(table)
    return Relation(table, f"{table} {_ROWS}", settings.topic_prefix + name, name, table_partition(table))


def query_relation(settings: JdbcSettings) -> Relation:
    """Return the relation of the query. A line break follows the query, because it may end with a comment."""
    return Relation("the query", f"({settings.query}\n) {_ROWS}", settings.topic_prefix, None, QUERY_PARTITION)


class JdbcPlan:
    """Plan for reading one relation with these columns."""

    def __init__(self, relation: Relation, columns: Columns, quoted: Sequence[str], settings: JdbcSettings) -> None:
        """`quoted`: the columns' names for SQL. Raises ConfigError
        for columns that are missing, or that give no place.
        """
        self.relation = relation
        self.columns = columns
        self._settings = settings
        self._places = {one.name: f"{_ROWS}.{name}" for one, name in zip(columns.columns, quoted, strict=True)}
        if len(self._places) < len(quoted):
            raise ConfigError(f"{QUERY}: two of its columns have the same name: {', '.join(quoted)}", field=QUERY,
                              fix="give them different names with AS")  # fmt: skip
        mode = settings.mode
        self._number = self._column(settings.incrementing, INCREMENTING) if mode.has_number else None
        self._moments = [self._column(name, TIMESTAMP) for name in settings.timestamps]
        self._check_types()
        if settings.requires_not_null and relation.schema_name is not None:
            self._check_not_null()

    def statement(self, after: TablePlace, before_us: int | None) -> tuple[str, list[Parameter]]:
        """Return the SQL of the rows after a place, in order.
        `before_us`: moments must be earlier; None without moments.
        """
        where, parameters = self._where(after, before_us)
        moment, number = self._moment_sql(), self._number_sql()
        order = ", ".join(one for one in (moment, number) if one)
        parts = [
            f"SELECT {', '.join(self._places.values())} FROM {self.relation.source}",
            f"WHERE {where}" if where else "",
            f"ORDER BY {order}" if order else "",
            self._settings.suffix,
        ]
        return " ".join(filter(None, parts)), parameters

    def places(self, rows: Any) -> list[RowPlace]:
        """Return the place of each row; [] if the mode has none. Raises DataError for an invalid number."""
        if self._settings.mode is Mode.BULK:
            return []
        count = rows.num_rows
        return list(zip(self._moments_of(rows) or [0] * count, self._numbers_of(rows) or [0] * count, strict=True))

    def already(self, places: Sequence[RowPlace], after: TablePlace) -> int:
        """Return how many of the first rows were sent already, according to the start place. Raises ConfigError for a
        row that the database sorts after the place and that reads as before it: it would be skipped for ever.
        """
        if self._settings.mode is Mode.BULK:
            return 0
        for at, (moment_us, number) in enumerate(places):
            if self._moments:
                if after.moment_us is None or moment_us > after.moment_us:
                    return at
                if moment_us < after.moment_us:
                    fix = f"correct {ZONE}, or the driver's timestamp settings in {URL}"
                    raise self._misread(TIMESTAMP, moment_us, after.moment_us, fix)
                is_new = after.number is not None and self._number is not None and number > after.number
                if moment_us == after.moment_us and is_new:
                    return at
            elif after.number is None or number > after.number:
                return at
            else:
                fix = f"use a wider type, as by CAST in a {QUERY}"
                raise self._misread(INCREMENTING, number, after.number, fix)
        return len(places)

    def together(self, one: RowPlace, other: RowPlace) -> bool:
        """True when two rows must be sent in one batch: no offset
        between them is certain to work in the database.
        """
        return one[0] == other[0] if self._moments else one[1] == other[1]

    @property
    def numbers_moments(self) -> bool:
        """True if rows of one moment are distinguished by their number."""
        return bool(self._moments) and self._number is not None

    def place(self, places: Sequence[RowPlace]) -> TablePlace:
        """Return the place after these rows, the last ones of a future batch."""
        if not places:
            return TablePlace()
        last = places[-1]
        if not self._moments:
            return TablePlace(last[1])
        if self._number is None:
            return TablePlace(moment_us=last[0])
        # If moments are finer than a microsecond, the last row need not have the highest number.
        return TablePlace(max(number for moment, number in places if moment == last[0]), last[0])

    def batch(self, rows: Any, place: TablePlace) -> SourceBatch:
        """Convert rows to a batch, with the offset of a place. Raises DataError, with the column, for a value that
        Connect cannot represent.
        """
        arrays = [self._read(one, rows.column(at)) for at, one in enumerate(self.columns.columns)]
        columns = zip(self.columns.columns, arrays, strict=True)
        fields = [pa.field(one.name, array.type, one.nullable) for one, array in columns]
        record_batch = pa.record_batch(arrays, schema=pa.schema(fields))
        relation = self.relation
        try:
            return arrow_source_batch(
                relation.topic, record_batch, relation.partition, place.offset(), name=relation.schema_name
            )
        except DataError as error:
            raise DataError(f"{relation.label}: {error}") from error

    def _where(self, after: TablePlace, before_us: int | None) -> tuple[str, list[Parameter]]:
        moment, number = self._moment_sql(), self._number_sql()
        if not moment:
            if not number:
                return "", []
            if after.number is None:
                return f"{number} IS NOT NULL", []
            return f"{number} > ?", [("number", after.number)]
        assert before_us is not None
        terms, parameters = [f"{moment} < ?"], [("moment", before_us)]
        if number:
            terms.append(f"{number} IS NOT NULL")
        if after.moment_us is not None:
            if number and after.number is not None:
                terms.append(f"({moment} > ? OR ({moment} = ? AND {number} > ?))")
                parameters += [("moment", after.moment_us), ("moment", after.moment_us), ("number", after.number)]
            else:
                terms.append(f"{moment} > ?")
                parameters.append(("moment", after.moment_us))
        return " AND ".join(terms), parameters

    def _moment_sql(self) -> str:
        names = [self._places[one.name] for one in self._moments]
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})" if names else ""

    def _number_sql(self) -> str:
        return "" if self._number is None else self._places[self._number.name]

    def _moments_of(self, rows: Any) -> list[int]:
        columns = [rows.column(one.name) for one in self._moments]
        if not columns:
            return []
        return _compute.coalesce(*columns).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()

    def _numbers_of(self, rows: Any) -> list[int]:
        if self._number is None:
            return []
        found: list[Any] = rows.column(self._number.name).to_pylist()
        whole = [int(one) for one in found]
        for one, number in zip(found, whole, strict=True):
            if one != number or number not in _INT64:
                raise DataError(
                    f"column {self._number.name} of {self.relation.label}: {one} is not a whole number of 64 bits"
                )
        return whole

    def _read(self, column: JdbcColumn, array: Any) -> Any:
        """Convert a column for `arrow_source_batch`: fractions of a millisecond are cut off, as in Java."""
        array = array.combine_chunks()
        if column.is_time:
            local = _compute.local_timestamp(array.cast(pa.timestamp("us", self._settings.zone)))
            of_day = _compute.floor_temporal(local, unit="millisecond").cast(pa.time64("us"))
            return of_day.cast(pa.time32("ms"))
        if pa.types.is_timestamp(array.type):
            return _compute.floor_temporal(array, unit="millisecond")
        return array

    def _column(self, name: str, key: str) -> JdbcColumn:
        """Return the column of that name, or the only one whose name differs only in case."""
        columns = self.columns.columns
        exact = [one for one in columns if one.name == name]
        found = exact or [one for one in columns if one.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        known = ", ".join(one.name for one in columns) or "none"
        raise ConfigError(f"{key}: {self.relation.label} has no column {name}; it has {known}", field=key,
                          fix="name one of its columns")  # fmt: skip

    def _misread(self, key: str, read: int, after: int, fix: str) -> ConfigError:
        return ConfigError(
            f"{key}: of {self.relation.label}, the database returns {read} for a row that it finds after {after}",
            field=key, fix=fix,
        )  # fmt: skip

    def _check_types(self) -> None:
        wrong: list[tuple[JdbcColumn, str, str]] = []
        if self._number is not None and not self._number.type.startswith((*_WHOLE, "decimal")):
            wrong.append((self._number, INCREMENTING, "a whole number"))
        wrong += [(one, TIMESTAMP, "a timestamp") for one in self._moments if one.type != "timestamp" or one.is_time]
        for column, key, wanted in wrong:
            raise ConfigError(
                f"{key}: column {column.name} of {self.relation.label} is of type {column.type}, not {wanted}",
                field=key, fix=f"name a column with {wanted}",
            )  # fmt: skip

    def _check_not_null(self) -> None:
        """Check that a timestamp column is not nullable; of several,
        one is enough. Columns of a query cannot be checked.
        """
        if self._number is not None and self._number.nullable:
            key, named = INCREMENTING, self._number.name
        elif self._moments and all(one.nullable for one in self._moments):
            key, named = TIMESTAMP, ", ".join(one.name for one in self._moments)
        else:
            return
        raise ConfigError(
            f"{key}: {named} of {self.relation.label} may be null, and rows where it is null would not be read",
            field=key,
            fix="declare it NOT NULL, or validate.non.null=false",
        )  # fmt: skip
