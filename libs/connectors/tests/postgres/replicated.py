"""Second implementation of pgoutput's messages, an encoder after the
manual's "Logical Replication Message Formats", and tables for it.

Owns no test. Shares nothing with the decoder but the tuples that it returns.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.model.data import Struct
from herdmesh.connectors.postgres.cdc.pgoutput import (
    Begin,
    Cell,
    Change,
    Commit,
    Decoded,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Toast,
    Truncate,
    Type,
)
from herdmesh.connectors.postgres.cdc.settings import CdcSettings, settings_of
from herdmesh.connectors.postgres.cdc.tables import Facts, Table, table_of
from herdmesh.connectors.postgres.types import PgType

SINCE_2000_US = 946_684_800_000_000
CONFIG: Mapping[str, str] = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "127.0.0.1",
    "database.user": "herdmesh",
    "database.dbname": "postgres",
    "topic.prefix": "app",
}
INT4, TEXT = 23, 25


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _row(row: Sequence[Cell]) -> bytes:
    parts = [struct.pack(">H", len(row))]
    for cell in row:
        if cell is None:
            parts.append(b"n")
        elif isinstance(cell, Toast):
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(cell)) + cell)
    return b"".join(parts)


def _schema(name: str) -> str:
    """Return the schema to write; empty for built-in objects."""
    return "" if name == "pg_catalog" else name


def message(of: Decoded) -> bytes:
    """Encode a message."""
    match of:
        case Begin():
            return b"B" + struct.pack(">qqi", of.final_lsn, of.commit_us - SINCE_2000_US, of.xid)
        case Commit():
            return b"C\0" + struct.pack(">qqq", of.lsn, of.end_lsn, of.commit_us - SINCE_2000_US)
        case Origin():
            return b"O" + struct.pack(">q", of.lsn) + _text(of.name)
        case Relation():
            head = b"R" + struct.pack(">I", of.oid) + _text(_schema(of.schema)) + _text(of.table)
            columns = [
                bytes([column.is_key]) + _text(column.name) + struct.pack(">Ii", column.type_oid, column.type_modifier)
                for column in of.columns
            ]
            return head + of.replica_identity.encode() + struct.pack(">H", len(columns)) + b"".join(columns)
        case Type():
            return b"Y" + struct.pack(">I", of.oid) + _text(_schema(of.schema)) + _text(of.name)
        case Truncate():
            options = of.cascade | of.restart_identity << 1
            ids = struct.pack(f">{len(of.relations)}I", *of.relations)
            return b"T" + struct.pack(">IB", len(of.relations), options) + ids
        case Message():
            head = struct.pack(">Bq", of.transactional, of.lsn) + _text(of.prefix)
            return b"M" + head + struct.pack(">I", len(of.content)) + of.content
        case Change():
            return _change(of)


def _change(change: Change) -> bytes:
    head = bytes([change.kind]) + struct.pack(">I", change.relation)
    if change.old is not None:
        head += (b"O" if change.old_is_whole else b"K") + _row(change.old)
    return head if change.new is None else head + b"N" + _row(change.new)


def settings(**more: str) -> CdcSettings:
    """Return settings of a minimal config and more: `_` in names stands for a dot."""
    return settings_of({**CONFIG, **{name.replace("_", "."): value for name, value in more.items()}})


def relation(oid: int, table: str, *, identity: str = "d", key: Sequence[str] = ("id",)) -> Relation:
    """Return a table `id int4 PRIMARY KEY, text text`."""
    columns = tuple(RelationColumn(name, kind, -1, name in key) for name, kind in (("id", INT4), ("text", TEXT)))
    return Relation(oid, "public", table, identity, columns)


def facts(key: Sequence[str] = ("id",)) -> Facts:
    """Return a catalog's facts about it."""
    types = {(INT4, -1): PgType(INT4, "int4"), (TEXT, -1): PgType(TEXT, "text")}
    return Facts(frozenset(key), tuple(key), types, {})


def table(of: Relation, to: CdcSettings, key: Sequence[str] = ("id",)) -> Table:
    """Return the description of its events."""
    return table_of(of, facts(key), to)


def plain(value: Any) -> Any:
    """Return a value with structs as dicts."""
    if isinstance(value, Struct):
        names = [field.name for field in value.schema.fields]
        return {name: plain(one) for name, one in zip(names, value.values, strict=True)}
    return value
