"""Catalog entry of a table that a sink writes to: its kind, its columns, and the comparison of its keys.

Owns the queries of the catalog. Creating and altering tables, and statements: `tables`.

Invariant: changes nothing; in a table that is not strict, rows are equal exactly when their keys are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herdmesh.connectors.postgres.connection import Connection
from herdmesh.connectors.postgres.sink.key_identity import KeyType
from herdmesh.connectors.postgres.sink.settings import TABLE_NAME_FORMAT, TableName
from herdmesh.sdk import ConfigError

_TABLE = b"""
SELECT c.oid, c.relkind IN ('r', 'p') AND NOT c.relhasrules AND NOT pg_catalog.row_security_active(c.oid),
    c.relkind = 'r' AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
    ),
    c.relkind NOT IN ('r', 'p') OR EXISTS (
        SELECT FROM pg_catalog.pg_constraint k
        WHERE k.contype = 'f' AND k.conrelid = c.oid AND k.confrelid = c.oid AND k.confdeltype IN ('c', 'n', 'd')
    ) OR EXISTS (
        SELECT FROM pg_catalog.pg_index i
        CROSS JOIN LATERAL ROWS FROM (
            pg_catalog.unnest(i.indkey::int2[]), pg_catalog.unnest(i.indcollation::oid[]),
            pg_catalog.unnest(i.indclass::oid[])
        ) AS k (attnum, sorting, class)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        JOIN pg_catalog.pg_opclass o ON o.oid = k.class
        WHERE i.indrelid = c.oid AND i.indisunique AND (k.sorting <> a.attcollation OR NOT o.opcdefault
            OR coalesce(pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct', '') = 'true')
    ) OR EXISTS (
        SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
        CROSS JOIN LATERAL (SELECT lower(f.prosrc || ' ' || encode(t.tgargs, 'escape')), lower(c.relname))
            AS s (code, name)
        WHERE (t.tgrelid = c.oid OR t.tgrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p))
            AND NOT t.tgisinternal AND (
                s.code ~ '\\mtg_(table_name|relname|relid)\\M'
                OR s.code ~ ('\\m' || regexp_replace(s.name, '\\W', '.', 'g') || '\\M')
                OR t.tgtype & 3 = 3 AND (s.code ~ '\\mnew\\s*:?=|\\mreturn\\s+(?!(new|old|null)\\s*;)' OR EXISTS (
                    SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
                    WHERE i.indrelid = c.oid AND i.indisunique AND a.attnum = ANY (i.indkey)
                        AND s.code ~ ('\\m' || regexp_replace(lower(a.attname), '\\W', '.', 'g') || '\\M')
                ))
            )
    ), c.oid::regclass::text, c.relkind::text
FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(%s)
"""
_COLUMNS = b"""
WITH RECURSIVE made AS (
    SELECT a.attnum, a.atttypid AS type, a.atttypmod AS typmod
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT m.attnum, t.typbasetype, CASE m.typmod WHEN -1 THEN t.typtypmod ELSE m.typmod END
    FROM made m JOIN pg_catalog.pg_type t ON t.oid = m.type WHERE t.typtype = 'd'
)
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), t.typcategory = 'A', a.attidentity = 'a',
    a.attgenerated <> '', a.atthasdef OR a.attidentity <> '',
    CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname ELSE '' END,
    m.typmod, coalesce(c.collisdeterministic, true),
    CASE WHEN c.oid IS NULL OR c.collname = 'default' THEN ''
        ELSE ' COLLATE ' || pg_catalog.format('%%I.%%I', n.nspname, c.collname) END,
    coalesce((
        SELECT pg_catalog.format('OPERATOR(%%I.%%s)', s.nspname, o.oprname)
        FROM pg_catalog.pg_opclass d
        JOIN pg_catalog.pg_amop p ON p.amopfamily = d.opcfamily AND p.amopstrategy = 3
            AND p.amoplefttype = d.opcintype AND p.amoprighttype = d.opcintype
        JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace
        WHERE d.opcintype = t.oid AND d.opcdefault AND s.nspname <> 'pg_catalog'
            AND d.opcmethod = (SELECT m.oid FROM pg_catalog.pg_am m WHERE m.amname = 'btree')
    ), '='),
    pg_catalog.format_type(t.oid, m.typmod),
    CASE WHEN a.atttypid <> t.oid THEN '::' || pg_catalog.format_type(t.oid, -1) ELSE '' END,
    coalesce((SELECT e.typdelim::text FROM pg_catalog.pg_type e WHERE e.oid = t.typelem), ',')
FROM made m JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attnum = m.attnum
JOIN pg_catalog.pg_type t ON t.oid = m.type AND t.typtype <> 'd'
LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
"""


_ALIKE = b"""
SELECT c.oid::regclass::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE lower(c.relname) = lower(%s) AND c.relkind IN ('r', 'p', 'v', 'f')
    AND CASE WHEN %s = '' THEN pg_catalog.pg_table_is_visible(c.oid) ELSE lower(n.nspname) = lower(%s) END
"""
_NO_TABLES = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a composite type", "m": "a materialized view"}
"""Relations that may have a table's name and accept no rows, by `relkind`."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """An existing column."""

    type: str
    """Its type in SQL."""
    is_array: bool
    is_always_generated: bool
    """`GENERATED ALWAYS AS IDENTITY`."""
    is_computed: bool
    """`GENERATED ALWAYS AS (expression)`."""
    has_default: bool
    """A default of any kind, which may depend on the order of rows without a value for the column."""
    key: KeyType
    """Type for comparing two of its keys."""
    collate: str
    """Its COLLATE clause; empty = the type's default."""
    equals: str
    """Its type's equality operator, with its schema."""
    base: str
    """Its type in SQL, with a domain resolved to its base type."""
    compared_as: str
    """A cast to that type if the column has a domain type:
    not all types have operators that accept their domains.
    """
    delimiter: str
    """Separator of elements, if it is an array."""


@dataclass(frozen=True, slots=True)
class Table:
    """An existing table."""

    sql: str
    """The table's SQL name, found by the search path."""
    takes_copy: bool
    """It is no view, no row security policy applies to this user, and no rule replaces an INSERT."""
    is_plain: bool
    """It is not partitioned, and has only the triggers of its constraints."""
    is_strict: bool
    """The rows that a write finds may depend on more than equal keys: the table is a view, a unique index has another
    equality than its columns, a deletion affects other rows of the table, or a trigger's code names the table or, if it
    may change a row, a key column.
    """
    columns: Mapping[str, TableColumn]


def looked_up(connection: Connection, name: TableName) -> Table | None:
    """Return the table of that name, found by the search path; None = it does not exist.

    Raises:
        ConfigError: another kind of object has the name.
        psycopg.Error: the server's.
    """
    row = connection.execute(_TABLE, (name.sql,)).fetchone()
    if row is None:
        return None
    oid, takes_copy, is_plain, is_strict, sql, kind = row
    if (other := _NO_TABLES.get(kind)) is not None:
        raise ConfigError(
            f"{sql} is not a table but {other}", field=TABLE_NAME_FORMAT, fix="write another name, or rename the topic"
        )
    columns = connection.execute(_COLUMNS, {"table": oid}).fetchall()
    is_utf8 = connection.info.parameter_status("server_encoding") == "UTF8"
    return Table(sql, takes_copy, is_plain, is_strict, {one[0]: _column(one[1:], is_utf8) for one in columns})


def called_alike(connection: Connection, name: TableName) -> str:
    """Return the SQL name of a table whose name differs only
    in case; "" = there is none. Raises psycopg.Error.
    """
    row = connection.execute(_ALIKE, (name.table, name.schema, name.schema)).fetchone()
    return "" if row is None else row[0]


def _column(row: Sequence[Any], is_utf8: bool) -> TableColumn:
    """Build a column from a row of `_COLUMNS`, without the name.
    A server with another encoding may treat two texts as one.
    """
    *plain, type_name, typmod, compares_bytes, collate, equals, base, compared_as, delimiter = row
    key = KeyType(type_name, typmod, compares_bytes and is_utf8)
    kind, is_array, is_always_generated, is_computed, has_default = plain
    return TableColumn(
        kind, is_array, is_always_generated, is_computed, has_default, key, collate, equals, base, compared_as,
        delimiter,
    )  # fmt: skip
