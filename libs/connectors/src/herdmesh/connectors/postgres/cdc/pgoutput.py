"""Decoder of the messages of PostgreSQL's `pgoutput` plugin (PostgreSQL manual, "Logical Replication Message Formats").

Owns the bytes of protocol versions 1 and 2 without streaming of open transactions. Knows no connection, no position
and no type: a column's value is the text that the server wrote, as bytes.

Invariant: a message is decoded whole, to its last byte, or it is a DataError that names its kind.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from herdmesh.sdk import DataError

EPOCH_US = 946_684_800_000_000
"""PostgreSQL's epoch, 2000-01-01, in microseconds since Unix's."""
INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
"""The kinds of messages that are changes of a table."""
RELATION, BEGIN, COMMIT = b"RBC"

_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_begin = struct.Struct(">QqI")
_commit = struct.Struct(">BQQq")
_NEW, _KEY, _OLD = b"NKO"
_TEXT, _NULL, _UNCHANGED = b"tnu"


class Toast(Enum):
    """Marker for a value that exists and was not sent."""

    UNCHANGED = "unchanged"
    """A large value that an update did not change: the server does not send it again."""
    UNKNOWN = "unknown"
    """A null in the row before a change when only the identity is sent; never decoded, because the message does not
    distinguish it from null.
    """


Cell: TypeAlias = bytes | Toast | None
"""The value of a column as the server's text; None = null."""
Row: TypeAlias = Sequence[Cell]


class Begin(NamedTuple):
    """Start of a transaction; its changes follow, and all of them are committed."""

    final_lsn: int
    """Position of its commit in the log: transactions come in this order."""
    commit_us: int
    """Time of its commit, microseconds since 1970."""
    xid: int


class Commit(NamedTuple):
    """The end of a transaction."""

    lsn: int
    end_lsn: int
    """Position after its commit: a reader that has everything up to here needs only later commits."""
    commit_us: int


class Origin(NamedTuple):
    """Origin of a transaction that was itself replicated."""

    lsn: int
    name: str


class RelationColumn(NamedTuple):
    """A column of a relation."""

    name: str
    type_oid: int
    type_modifier: int
    """`atttypmod`, -1 = none."""
    is_key: bool
    """Part of the replica identity."""


class Relation(NamedTuple):
    """Description of a table; it comes before the table's first change, and again after an alteration."""

    oid: int
    schema: str
    table: str
    replica_identity: str
    """`d` primary key, `f` whole rows, `i` an index, `n` nothing."""
    columns: tuple[RelationColumn, ...]


class Type(NamedTuple):
    """A type that is not built in."""

    oid: int
    schema: str
    name: str


class Change(NamedTuple):
    """A row inserted, updated or deleted."""

    kind: int
    """INSERT, UPDATE or DELETE."""
    relation: int
    old: Row | None
    """The row before the change: whole, or with nulls for all
    columns outside of the replica identity, or unknown.
    """
    old_is_whole: bool
    new: Row | None
    """The row after the change; None for a deletion."""


class Truncate(NamedTuple):
    """Truncation of tables."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class Message(NamedTuple):
    """A message written with `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Decoded: TypeAlias = Begin | Commit | Origin | Relation | Type | Change | Truncate | Message


def decode(data: bytes, at: int = 0) -> Decoded:
    """Decode the message that begins at `at` and ends with the data.

    Raises:
        DataError: it is no message of these versions, truncated, or followed by more.
    """
    try:
        decoded, end = _DECODERS[data[at]](data, at + 1)
    except KeyError:
        raise DataError(f"pgoutput: message of an unknown kind {data[at : at + 1]!r}") from None
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"pgoutput: broken message {data[at : at + 1]!r} of {len(data) - at} bytes: {error}") from error
    if end != len(data):
        raise DataError(
            f"pgoutput: broken message {data[at : at + 1]!r}: it has {len(data) - at} bytes, not {end - at}"
        )
    return decoded


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _row(data: bytes, at: int) -> tuple[Row, int]:
    (count,) = _u16(data, at)
    at += 2
    row: list[Cell] = []
    append = row.append
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _u32(data, at + 1)[0]
            append(data[start:at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _UNCHANGED:
            append(Toast.UNCHANGED)
            at += 1
        else:
            raise ValueError(f"column of the unknown format {data[at : at + 1]!r}")
    return row, at


def _decode_begin(data: bytes, at: int) -> tuple[Begin, int]:
    final_lsn, commit_us, xid = _begin.unpack_from(data, at)
    return Begin(final_lsn, commit_us + EPOCH_US, xid), at + _begin.size


def _decode_commit(data: bytes, at: int) -> tuple[Commit, int]:
    _flags, lsn, end_lsn, commit_us = _commit.unpack_from(data, at)
    return Commit(lsn, end_lsn, commit_us + EPOCH_US), at + _commit.size


def _decode_origin(data: bytes, at: int) -> tuple[Origin, int]:
    lsn = int.from_bytes(_exactly(data, at, 8))
    name, end = _text(data, at + 8)
    return Origin(lsn, name), end


def _decode_relation(data: bytes, at: int) -> tuple[Relation, int]:
    (oid,) = _u32(data, at)
    schema, at = _text(data, at + 4)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _u16(data, at + 1)
    at += 3
    columns: list[RelationColumn] = []
    for _ in range(count):
        flags = data[at]
        name, at = _text(data, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", data, at)
        at += 8
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & 1)))
    # An empty schema means pg_catalog.
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns)), at


def _decode_type(data: bytes, at: int) -> tuple[Type, int]:
    (oid,) = _u32(data, at)
    schema, at = _text(data, at + 4)
    name, at = _text(data, at)
    return Type(oid, schema or "pg_catalog", name), at


def _decode_insert(data: bytes, at: int) -> tuple[Change, int]:
    (relation,) = _u32(data, at)
    _expect(data, at + 4, _NEW)
    new, end = _row(data, at + 5)
    return Change(INSERT, relation, None, False, new), end


def _decode_update(data: bytes, at: int) -> tuple[Change, int]:
    (relation,) = _u32(data, at)
    kind = data[at + 4]
    old: Row | None = None
    at += 4
    if kind in (_KEY, _OLD):
        old, at = _row(data, at + 1)
    _expect(data, at, _NEW)
    new, end = _row(data, at + 1)
    return Change(UPDATE, relation, old, kind == _OLD, new), end


def _decode_delete(data: bytes, at: int) -> tuple[Change, int]:
    (relation,) = _u32(data, at)
    kind = data[at + 4]
    if kind not in (_KEY, _OLD):
        raise ValueError(f"a deletion has no row {data[at + 4 : at + 5]!r}")
    old, end = _row(data, at + 5)
    return Change(DELETE, relation, old, kind == _OLD, None), end


def _decode_truncate(data: bytes, at: int) -> tuple[Truncate, int]:
    (count,) = _u32(data, at)
    options = data[at + 4]
    at += 5
    relations = struct.unpack_from(f">{count}I", data, at)
    return Truncate(relations, bool(options & 1), bool(options & 2)), at + 4 * count


def _decode_message(data: bytes, at: int) -> tuple[Message, int]:
    flags = data[at]
    lsn = int.from_bytes(_exactly(data, at + 1, 8))
    prefix, at = _text(data, at + 9)
    (length,) = _u32(data, at)
    return Message(bool(flags & 1), lsn, prefix, data[at + 4 : at + 4 + length]), at + 4 + length


def _exactly(data: bytes, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise IndexError("it ends too early")
    return data[at : at + count]


def _expect(data: bytes, at: int, kind: int) -> None:
    if data[at] != kind:
        raise ValueError(f"a row {chr(kind)!r} is expected, not {data[at : at + 1]!r}")


_DECODERS = {
    BEGIN: _decode_begin,
    COMMIT: _decode_commit,
    ord("O"): _decode_origin,
    RELATION: _decode_relation,
    ord("Y"): _decode_type,
    INSERT: _decode_insert,
    UPDATE: _decode_update,
    DELETE: _decode_delete,
    TRUNCATE: _decode_truncate,
    ord("M"): _decode_message,
}
