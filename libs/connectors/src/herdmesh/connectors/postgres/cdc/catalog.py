"""Catalog client of change data capture: checks rights, manages the slot, and reads tables in SQL.

Owns these statements and the reactions to their results. The stream: `replication`; the snapshot: `snapshot`; the
publication: `publication`.

Invariant: existing objects of other users are never changed: an existing slot is used or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from psycopg.rows import TupleRow

from herdmesh.connectors.postgres.cdc.earlier_columns import Attribute, Found, found_again
from herdmesh.connectors.postgres.cdc.pgoutput import Relation, RelationColumn
from herdmesh.connectors.postgres.cdc.position import Position, lsn_of, lsn_text
from herdmesh.connectors.postgres.cdc.replication import BEGIN_ANEW
from herdmesh.connectors.postgres.cdc.settings import DATABASE, HOST, PUBLICATION, SLOT, USER, CdcSettings
from herdmesh.connectors.postgres.cdc.tables import Facts
from herdmesh.connectors.postgres.connection import Connection, errors_translated, quoted
from herdmesh.connectors.postgres.types import PgType, plain_name
from herdmesh.sdk import ConfigError, OffsetsLost, RetriableError

_MINIMUM = 130_000
_XIDS = 1 << 32
_KEY_IS_NOT_TOLD = {"f": "FULL", "n": "NOTHING"}
"""Replica identities that do not mark a primary key's columns."""

_PUBLISHED = """
SELECT p.schemaname, p.tablename, c.oid::int8, c.relkind = 'p', c.relreplident::text,
       EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p'), {columns}
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = %s ORDER BY 1, 2"""
_COLUMNS = """
SELECT a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull, array_position(k.conkey, a.attnum),
       EXISTS (SELECT FROM pg_index i
               WHERE i.indrelid = a.attrelid AND i.indisreplident AND a.attnum = ANY(i.indkey))
FROM pg_attribute a LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p'
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"""
_ATTRIBUTES = """
SELECT a.attnum, a.attname, a.atttypid::int8, a.atttypmod, a.attlen, a.attnotnull, array_position(k.conkey, a.attnum)
FROM pg_attribute a LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p'
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND a.attgenerated = '' ORDER BY a.attnum"""
_KEY_MADE_BY = """
SELECT k.xmin::text::int8, pg_snapshot_xmax(pg_current_snapshot())::text::int8
FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = -1
WHERE k.conrelid = %s::oid AND k.contype = 'p' AND k.xmin <> a.xmin"""
"""A system column is as old as its table: a key that is as old, too, is no newer than any row."""
_HAS_COLUMN_LIST = "SELECT EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = %s::oid AND prattrs IS NOT NULL)"
_LENGTHS = "SELECT t.oid::int8, t.typlen FROM pg_type t WHERE t.oid = ANY(%s::oid[])"
_TYPES = """
SELECT t.oid::int8, t.typname, t.typtype::text, t.typbasetype::int8, t.typtypmod,
       CASE WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
       t.typdelim::text
FROM pg_type t WHERE t.oid = ANY(%s::oid[])"""
_SLOT = """
SELECT s.plugin, s.slot_type, s.database, s.confirmed_flush_lsn::text, s.wal_status, s.active_pid,
       (SELECT a.application_name FROM pg_stat_activity a WHERE a.pid = s.active_pid)
FROM pg_replication_slots s WHERE s.slot_name = %s"""


@dataclass(frozen=True, slots=True)
class Slot:
    """The present state of the replication slot."""

    confirmed: int
    """Transactions that committed before this are not sent any more."""
    active_pid: int | None
    application: str
    """Application name of the slot's user; "" = none, or unknown."""


@dataclass(frozen=True, slots=True)
class Published:
    """A captured table."""

    schema: str
    name: str
    oid: int
    is_partitioned: bool
    """It has no rows of its own; its partitions' rows are published as its rows."""
    replica_identity: str
    has_primary_key: bool
    columns: tuple[str, ...] | None
    """The published columns; None = all."""
    row_filter: str

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return quoted(self.schema, self.name)


def check_server(connection: Connection, settings: CdcSettings) -> None:
    """Check that logical replication is possible, and allowed.

    Raises:
        ConfigError: it is not; with the change that the server or the config needs.
        RetriableError: the server is a standby, which may become a primary.
    """
    with errors_translated("the settings of the server cannot be read", field=HOST):
        (level, standby, replicates) = _one(
            connection,
            """
            SELECT current_setting('wal_level'), pg_is_in_recovery(),
                   (SELECT r.rolsuper OR r.rolreplication FROM pg_roles r WHERE r.rolname = current_user)
                   OR EXISTS (SELECT FROM pg_roles r
                              WHERE r.rolname = 'rds_replication' AND pg_has_role(current_user, r.oid, 'MEMBER'))""",
        )
    place = settings.connection.place
    if connection.info.server_version < _MINIMUM:
        raise ConfigError(f"{HOST}: PostgreSQL at {place} is older than 13", field=HOST, fix="use 13 or newer")
    if standby:
        raise RetriableError(f"PostgreSQL at {place} is a standby, and changes are captured at the primary")
    if level != "logical":
        raise ConfigError(
            f"{HOST}: PostgreSQL at {place} has wal_level={level}, which does not log enough to capture changes",
            field=HOST,
            fix="set wal_level=logical in postgresql.conf and restart the server",
        )
    if not replicates:
        user = settings.connection.user
        raise ConfigError(
            f"{USER}: {user} has no right to replicate from PostgreSQL at {place}",
            field=USER,
            fix=f"ALTER ROLE {quoted(user)} REPLICATION",
        )


def published(connection: Connection, settings: CdcSettings) -> list[Published]:
    """Return the captured tables: published, and selected by the config."""
    columns = "p.attnames::text[], p.rowfilter" if connection.info.server_version >= 150_000 else "NULL, NULL"
    with errors_translated("the publication's tables cannot be read", field=PUBLICATION):
        rows = _rows(connection, _PUBLISHED.format(columns=columns), settings.publication)
    return [
        Published(schema, table, oid, is_root, identity, has_key, None if names is None else tuple(names), rule or "")
        for schema, table, oid, is_root, identity, has_key, names, rule in rows
        if settings.tables.has(schema, table)
    ]


def find_slot(connection: Connection, settings: CdcSettings) -> Slot | None:
    """Return the slot; None = it does not exist. Raises ConfigError for
    a slot of another kind, OffsetsLost for a slot whose log is lost.
    """
    name = settings.slot
    with errors_translated("the replication slots cannot be read", field=SLOT):
        found = _rows(connection, _SLOT, name)
    if not found:
        return None
    plugin, kind, database, confirmed, wal_status, pid, application = found[0]
    if kind != "logical" or plugin != "pgoutput":
        what = "physical" if kind != "logical" else f"of the plugin {plugin}"
        raise ConfigError(
            f"{SLOT}: slot {name} is {what}", field=SLOT, fix="name another slot, or one that does not exist yet"
        )
    if database != settings.connection.database:
        raise ConfigError(
            f"{SLOT}: slot {name} belongs to the database {database}, and {DATABASE} is {settings.connection.database}",
            field=SLOT,
            fix="name another slot",
        )
    if wal_status == "lost":
        raise OffsetsLost(
            f"slot {name} was invalidated: the server removed its log (max_slot_wal_keep_size); {BEGIN_ANEW}"
        )
    return Slot(lsn_of(confirmed or "0/0"), pid, application or "")


def check_kept(connection: Connection, settings: CdcSettings, slot: Slot | None, position: Position) -> None:
    """Check that the slot still has everything from a position on. Raises OffsetsLost if it has not."""
    if slot is None:
        raise OffsetsLost(f"slot {settings.slot} no longer exists in {settings.connection.place}; {BEGIN_ANEW}")
    if slot.confirmed > position.lsn:
        raise OffsetsLost(
            f"slot {settings.slot} begins at {lsn_text(slot.confirmed)}, and the connector is at "
            f"{lsn_text(position.lsn)}: the slot was created again, or another client reads it; {BEGIN_ANEW}"
        )
    end = end_of_log(connection)
    if end < position.lsn:
        raise OffsetsLost(
            f"the log of {settings.connection.place} ends at {lsn_text(end)}, before the connector's place "
            f"{lsn_text(position.lsn)}: it is another server, or one restored from a backup; {BEGIN_ANEW}"
        )


def end_of_log(connection: Connection) -> int:
    """Return the end of the readable log."""
    with errors_translated("the end of the log cannot be read", field=HOST):
        (end,) = _one(connection, "SELECT pg_current_wal_flush_lsn()::text")
    return lsn_of(end)


def end_user_of(connection: Connection, slot: Slot) -> None:
    """Terminate the server process that uses the slot."""
    with errors_translated("the session that uses the slot cannot be ended", field=SLOT):
        _rows(connection, "SELECT pg_terminate_backend(%s)", slot.active_pid)


def drop_slot(connection: Connection, settings: CdcSettings) -> None:
    """Drop the slot, if it exists."""
    with errors_translated(f"slot {settings.slot} cannot be dropped", field=SLOT):
        _rows(
            connection,
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            settings.slot,
        )


def facts_of(connection: Connection, relation: Relation, xid: int | None = None) -> Facts:
    """Return the facts in today's catalog about a relation that may be older. A column that is not identified in the
    catalog counts as nullable. `xid`: the transaction in which the relation is described, if it is older.

    Raises ConfigError when the key of its rows cannot be determined: the log marks the columns of a primary key only if
    it is the replica identity, and the table has been altered since.
    """
    with errors_translated(f"table {relation.schema}.{relation.table} cannot be looked up", field=USER):
        rows = _rows(connection, _ATTRIBUTES, relation.oid)
        oids = [column.type_oid for column in relation.columns]
        types = _Types(connection, oids)
        lists = connection.info.server_version >= 150_000 and _rows(connection, _HAS_COLUMN_LIST, relation.oid)[0][0]
        lengths = dict(_rows(connection, _LENGTHS, oids))
    not_null = {number for number, *_, required, _ in rows if required}
    primary = [number for _, number in sorted((row[-1], row[0]) for row in rows if row[-1] is not None)]
    found = found_again(
        relation.columns, [Attribute(*row[:5]) for row in rows], [*not_null, *primary], lengths, may_leave_out=lists
    )
    if relation.replica_identity in _KEY_IS_NOT_TOLD:
        _refuse_unclear_key(relation, found, primary, {row[0]: row[1] for row in rows})
        same_types = {(row[0], row[2], row[3]) for row in rows} >= {
            (number, *_type_of(relation, found.names[number])) for number in primary
        }
        # A key column of another type was recreated together with the key.
        if xid is not None and same_types and _is_key_newer(connection, relation, xid):
            raise _unclear_key(relation, "its primary key was created or changed after that")
    return Facts(
        frozenset(name for number, name in found.names.items() if number in not_null),
        tuple(found.names[number] for number in primary if number in found.names),
        {
            (column.type_oid, column.type_modifier): types.resolved(column.type_oid, column.type_modifier)
            for column in relation.columns
        },
        types.labels,
    )


def _refuse_unclear_key(relation: Relation, found: Found, primary: Sequence[int], names: Mapping[int, str]) -> None:
    if not names:
        why = "the table no longer exists"
    elif lost := [names[number] for number in primary if number not in found.names]:
        why = f"its primary key has today the column {', '.join(lost)}, which is not found in the row's table"
    else:
        return
    raise _unclear_key(relation, why)


def _type_of(relation: Relation, name: str) -> tuple[int, int]:
    return next((one.type_oid, one.type_modifier) for one in relation.columns if one.name == name)


def _is_key_newer(connection: Connection, relation: Relation, xid: int) -> bool:
    """Return whether a later transaction created the primary key. Transaction ids wrap around at 2**32."""
    with errors_translated(f"the key of {relation.schema}.{relation.table} cannot be looked up", field=USER):
        found = _rows(connection, _KEY_MADE_BY, relation.oid)
    return any(0 < (made - xid) % _XIDS <= (following - xid) % _XIDS for made, following in found)


def _unclear_key(relation: Relation, why: str) -> ConfigError:
    table = f"{relation.schema}.{relation.table}"
    columns = ", ".join(column.name for column in relation.columns)
    return ConfigError(
        f"changes of {table} ({columns}) are older than its table, and their key is unknown: with REPLICA IDENTITY "
        f"{_KEY_IS_NOT_TOLD[relation.replica_identity]} the log does not contain the key, and {why}",
        field="table.exclude.list",
        fix=f"leave the table out, or reset the connector's offsets to take a new snapshot; alter {table}'s key "
        "only while the connector runs and has no lag",
    )


def relation_of(connection: Connection, table: Published) -> Relation:
    """Return the table's description in the form of the stream."""
    with errors_translated(f"table {table.sql} cannot be looked up", field=USER):
        rows = _rows(connection, _COLUMNS, table.oid)
    columns = tuple(
        RelationColumn(name, type_oid, modifier, in_index if table.replica_identity == "i" else place is not None)
        for name, type_oid, modifier, _, place, in_index in rows
        if table.columns is None or name in table.columns
    )
    return Relation(table.oid, table.schema, table.name, table.replica_identity, columns)


class _Types:
    """Types by oid, with their component types."""

    def __init__(self, connection: Connection, oids: Sequence[int]) -> None:
        self._rows: dict[int, tuple[Any, ...]] = {}
        wanted = set(oids)
        while wanted:
            for row in _rows(connection, _TYPES, list(wanted)):
                self._rows[row[0]] = row
            inner = {oid for row in self._rows.values() for oid in (row[3], row[5]) if oid}
            wanted, before = inner - self._rows.keys(), wanted
            if wanted <= before:
                break

    @property
    def labels(self) -> Mapping[int, Sequence[str]]:
        return {oid: tuple(row[6]) for oid, row in self._rows.items() if row[6]}

    def resolved(self, oid: int, modifier: int) -> PgType:
        """Return the type, with a domain resolved to its base
        type. A deleted type is unknown, and so becomes text.
        """
        row = self._rows.get(oid)
        if row is None:
            return PgType(oid, "unknown", modifier)
        _, name, kind, base, base_modifier, element, *_ = row
        if kind == "d":
            return self.resolved(base, modifier if modifier != -1 else base_modifier)
        if element:
            inner = self.resolved(element, modifier)
            of_array = f"{inner.name}[]" if name.startswith("_") else name
            return PgType(oid, of_array, modifier, inner, delimiter=self._rows[element][-1])
        return PgType(oid, plain_name(name, kind), modifier, is_enum=kind == "e")


def _rows(connection: Connection, question: str, *values: Any) -> list[TupleRow]:
    # The statements are constants with quoted names, which psycopg's type for literals cannot verify.
    return connection.execute(cast(Any, question), values or None).fetchall()


def _one(connection: Connection, question: str) -> TupleRow:
    return _rows(connection, question)[0]
