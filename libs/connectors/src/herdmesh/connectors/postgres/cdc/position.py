"""Position of a CDC task in a database's log, and its form as a source offset.

Owns positions, the changes done ahead of one, and the offset's keys: Debezium's where the meaning is Debezium's, so
that a connector can continue from an offset of Debezium, and two of our own.

    lsn_commit       every transaction that committed before it is in Kafka; the stream restarts here
    tx_events        number of changes of the transaction committing there that are in Kafka, too; absent = none
    ahead            by table, how much further its records and its tombstones are (JSON)
    lsn, lsn_proc, txId, ts_usec    of the last change: written, not read
    snapshot         true until the snapshot is complete

Transactions come in the order of their commits, and a transaction's changes always in the same order, so two numbers
name a place among all changes.

Invariant: a change is covered by the stored offset exactly when its record is in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from herdmesh.sdk import DataError

LSN_COMMIT, LSN, LSN_PROC, TX_ID, TS_USEC = "lsn_commit", "lsn", "lsn_proc", "txId", "ts_usec"
TX_EVENTS, AHEAD, SNAPSHOT = "tx_events", "ahead", "snapshot"
_SNAPSHOT_DONE = ("last_snapshot_record", "snapshot_completed")
"""Debezium's additions to the offset of a snapshot's
last record; the later name is that of its version 3.
"""


class Position(NamedTuple):
    """All transactions whose commit is before `lsn` are done, and
    `events` changes of the transaction that commits there.

    Ordered like changes: a change is identified by the commit of its transaction, and its number in it from 1.
    """

    lsn: int
    events: int = 0

    def covers(self, final_lsn: int, event: int) -> bool:
        """Return whether that change is done."""
        return (final_lsn, event) <= self


START = Position(0)


class TableAhead(NamedTuple):
    """Progress of the records and the tombstones of one table beyond that of all tables."""

    records: Position = START
    tombstones: Position = START


class LastChange(NamedTuple):
    """The last change before a position: its place in the log, its transaction, and the time of that commit."""

    lsn: int
    xid: int
    commit_us: int


class Stored(NamedTuple):
    """A parsed offset."""

    position: Position
    ahead: Mapping[str, TableAhead]
    """By the table's full name."""
    is_snapshot: bool
    """The snapshot that began at this position is incomplete."""


def source_partition(server: str) -> dict[str, str]:
    """Return the source partition, in Debezium's form."""
    return {"server": server}


def offset_of(
    position: Position,
    last: LastChange | None = None,
    ahead: Mapping[str, TableAhead] | None = None,
    *,
    is_snapshot: bool = False,
) -> dict[str, Any]:
    """Return the source offset of a position."""
    offset: dict[str, Any] = {LSN_COMMIT: position.lsn}
    if position.events:
        offset[TX_EVENTS] = position.events
    if ahead:
        offset[AHEAD] = json.dumps(
            {table: [*done.records, *done.tombstones] for table, done in ahead.items()}, separators=(",", ":")
        )
    lsn = position.lsn if last is None else last.lsn
    offset |= {LSN: lsn, LSN_PROC: lsn}
    if last is not None:
        offset |= {TX_ID: last.xid, TS_USEC: last.commit_us}
    if is_snapshot:
        offset[SNAPSHOT] = True
    return offset


def read(offset: Mapping[str, Any]) -> Stored:
    """Parse an offset, ours or Debezium's.

    For an offset of a Debezium version without `lsn_commit`, the transaction in it is sent again from its first change.

    Raises:
        DataError: it has no position.
    """
    lsn = next((offset[key] for key in (LSN_COMMIT, LSN_PROC, LSN) if offset.get(key) is not None), None)
    events = offset.get(TX_EVENTS, 0)
    if not (_is_count(lsn) and _is_count(events)):
        raise DataError(
            f"the source offset {dict(offset)} needs a number, 0 or more, under the key '{LSN_COMMIT}': the log "
            "position up to which all transactions are done"
        )
    return Stored(Position(cast(int, lsn), events), _read_ahead(offset.get(AHEAD)), _is_snapshot(offset))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_snapshot(offset: Mapping[str, Any]) -> bool:
    said = offset.get(SNAPSHOT)
    # Debezium 3 has the kind of snapshot instead of true.
    running = said is True or (isinstance(said, str) and said.lower() not in ("", "false"))
    return running and not any(offset.get(key) is True for key in _SNAPSHOT_DONE)


def _read_ahead(text: Any) -> dict[str, TableAhead]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
        read: dict[str, TableAhead] = {}
        for table, numbers in found.items():
            records_lsn, records, tombstones_lsn, tombstones = map(_count, numbers)
            read[table] = TableAhead(Position(records_lsn, records), Position(tombstones_lsn, tombstones))
        return read
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"the source offset has {text!r} under the key '{AHEAD}', which is not what this connector writes there"
        ) from error


def _count(value: Any) -> int:
    if not _is_count(value):
        raise ValueError(value)
    return value


def lsn_text(lsn: int) -> str:
    """Format a log position like PostgreSQL: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Parse a log position. Raises ValueError for other texts."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
