"""Catalog client of the source: the tables of a database, and the columns of a table or of a query.

Owns the queries of `pg_catalog`. Types: `types`. Changes nothing.

Invariant: a domain is reported as its base type, and a column of a NOT NULL domain as not nullable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from herdmesh.connectors.postgres.connection import Connection, errors_translated, quoted
from herdmesh.connectors.postgres.types import PgType, SourceColumn, plain_name
from herdmesh.sdk import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A table's full name."""

    database: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """Return the table's name for SQL, without the database, which is the connection's."""
        return quoted(self.schema, self.table)


TABLE_TYPES: Final[Mapping[str, str]] = {
    "TABLE": "r",
    "PARTITIONED TABLE": "p",
    "VIEW": "v",
    "MATERIALIZED VIEW": "m",
    "FOREIGN TABLE": "f",
}
"""The Java driver's names of readable relations, and their `pg_class.relkind`."""

_TABLES = """
SELECT current_database(), n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind::text = ANY (%(kinds)s) AND c.relpersistence <> 't'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND (%(catalogs)s::text IS NULL OR current_database() LIKE %(catalogs)s)
  AND (%(schemas)s::text IS NULL OR n.nspname LIKE %(schemas)s)
ORDER BY 2, 3
"""
_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull,
       coalesce((SELECT k.place FROM pg_catalog.pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                 WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum), 0)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = (SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = %s AND c.relname = %s)
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_SERIAL = """
SELECT a.attname FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.attidentity <> '' OR pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%')
ORDER BY a.attnum
"""
_TYPES = """
SELECT t.oid, t.typname, t.typtype, t.typcategory, t.typelem, t.typlen, t.typbasetype, t.typtypmod, t.typnotnull
FROM pg_catalog.pg_type t WHERE t.oid = ANY (%s::oid[])
"""


def tables(
    connection: Connection,
    types: Collection[str],
    catalog_pattern: str | None = None,
    schema_pattern: str | None = None,
) -> list[TableId]:
    """Return every table of these types (`TABLE_TYPES`), except system tables, sorted. Patterns are SQL's LIKE
    patterns, of the database's name, which is the connection's, and of the schema's.
    """
    kinds = [TABLE_TYPES[one] for one in types]
    with errors_translated("cannot list the tables"):
        given = {"kinds": kinds, "catalogs": catalog_pattern, "schemas": schema_pattern}
        rows = connection.execute(_TABLES, given).fetchall()
    return [TableId(*row) for row in rows]


def columns_of_table(connection: Connection, table: TableId) -> list[SourceColumn]:
    """Return the columns of a table in its order; empty = the table does not exist."""
    with errors_translated(f"cannot read the columns of {table}"):
        rows = connection.execute(_COLUMNS, (table.schema, table.table)).fetchall()
        found = _Types(connection)
        found.load(row[1] for row in rows)
    return [
        SourceColumn(name, found.of(oid, typmod), not (not_null or found.not_null(oid)), key)
        for name, oid, typmod, not_null, key in rows
    ]


def serial_column(connection: Connection, table: TableId) -> str:
    """Return the first column with automatic numbers (serial, identity); "" = there is none."""
    with errors_translated(f"cannot read the columns of {table}"):
        row = connection.execute(_SERIAL, (table.sql,)).fetchone()
    return row[0] if row is not None else ""


def columns_of_query(connection: Connection, query: str, *, field: str) -> list[SourceColumn]:
    """Return the columns of a query, all nullable: the server does
    not report which expressions or outer joins give nulls.

    Raises ConfigError whose field is `field` for a query that the server refuses, and for two columns of one name.
    """
    with errors_translated(f"{field}: the query cannot be run", field=field):
        cursor = connection.execute(f"SELECT * FROM ({query}\n) AS herdmesh_query LIMIT 0".encode())
        result = cursor.pgresult
        assert result is not None
        described = [(result.fname(at), result.ftype(at), result.fmod(at)) for at in range(result.nfields)]
        found = _Types(connection)
        found.load(oid for _, oid, _ in described)
    columns = [
        SourceColumn((name or b"").decode(), found.of(oid, typmod), nullable=True) for name, oid, typmod in described
    ]
    names = [column.name for column in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"{field}: the query has more than one column {', '.join(twice)}",
            field=field,
            fix="give each a name of its own (AS)",
        )
    return columns


class _Types:
    """Cache of `pg_type` rows: requested types and their component types."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: dict[int, Sequence[Any]] = {}

    def load(self, oids: Iterable[int]) -> None:
        """Fetch these types and their component types."""
        wanted: set[int] = {*oids} - self._rows.keys()
        while wanted:
            rows = self._connection.execute(_TYPES, (sorted(wanted),)).fetchall()
            self._rows.update((row[0], row) for row in rows)
            wanted = {made_of for row in rows for made_of in (row[4], row[6]) if made_of} - self._rows.keys()

    def of(self, oid: int, typmod: int) -> PgType:
        """Return the type, with a domain resolved."""
        _, name, kind, category, element, length, base, base_typmod, _ = self._rows[oid]
        if kind == "d":
            return self.of(base, typmod if typmod != -1 else base_typmod)
        if category == "A" and element and length == -1:
            inner = self.of(element, typmod)
            return PgType(oid, f"{inner.name}[]", typmod, inner)
        return PgType(oid, plain_name(name, kind), typmod, is_enum=kind == "e")

    def not_null(self, oid: int) -> bool:
        """True for a domain without nulls."""
        _, _, kind, _, _, _, base, _, not_null = self._rows[oid]
        return kind == "d" and (not_null or self.not_null(base))
