"""Batches of records in Debezium's form, from chunks of changes and from snapshot rows.

Owns the envelopes, tombstones and heartbeats, and the offset of
each batch. The rows of a table: `tables`; offsets: `position`.

A chunk becomes one batch of records and one of tombstones for each of its tables. Any of them may be the last one
committed before a crash, so all but the last carry the chunk's start and the progress of each table beyond it.

Rows may be older than the catalog, which defines the columns without nulls and the key (`tables`). A null in such a
column makes the table's schema optional there from that batch on, until the stream describes the table again.

Invariant: the offset of a batch covers exactly its records and those of all batches before it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from herdmesh.connect.model import StructColumn
from herdmesh.connectors.postgres.cdc.pgoutput import DELETE, INSERT, Cell, Row, Toast
from herdmesh.connectors.postgres.cdc.position import Position, Stored, TableAhead, offset_of, source_partition
from herdmesh.connectors.postgres.cdc.settings import CdcSettings
from herdmesh.connectors.postgres.cdc.stream import Chunk, Entry, TableChanges, Transaction
from herdmesh.connectors.postgres.cdc.tables import HEARTBEAT_KEY, HEARTBEAT_VALUE, SOURCE, NullFound, Table
from herdmesh.sdk import Header, SourceBatch, Struct

_log = logging.getLogger(__name__)
VERSION = "0.1.0"
"""Version of this connector, in `source.version`."""
_OLD_KEY, _NEW_KEY = "__debezium.oldkey", "__debezium.newkey"


@dataclass(slots=True)
class _Records:
    """Records of one table, as one list for each field."""

    ops: list[str] = field(default_factory=list[str])
    befores: list[Row | None] = field(default_factory=list[Row | None])
    afters: list[Row | None] = field(default_factory=list[Row | None])
    keys: list[tuple[Cell, ...]] = field(default_factory=list[tuple[Cell, ...]])
    commits_us: list[int] = field(default_factory=list[int])
    lsns: list[int] = field(default_factory=list[int])
    xids: list[int | None] = field(default_factory=list[int | None])
    sequences: list[str | None] = field(default_factory=list[str | None])
    moved: dict[int, tuple[str, tuple[Cell, ...]]] = field(default_factory=dict[int, tuple[str, tuple[Cell, ...]]])
    """For an update that changed the key, by the record's place: the header, and the other key in it."""

    def add(
        self, op: str, before: Row | None, after: Row | None, key: tuple[Cell, ...], lsn: int, of: Transaction
    ) -> None:
        """Add one record."""
        self.ops.append(op)
        self.befores.append(before)
        self.afters.append(after)
        self.keys.append(key)
        self.commits_us.append(of.commit_us)
        self.lsns.append(lsn)
        self.xids.append(of.xid)
        self.sequences.append(f'["{of.previous_lsn}","{lsn}"]')


class Events:
    """Builder of batches for one task."""

    def __init__(self, settings: CdcSettings) -> None:
        self._settings = settings
        self._partition = source_partition(settings.prefix)
        #: by table name: the table as described, and as loosened for its rows.
        self._loosened: dict[str, tuple[Table, Table]] = {}

    def of_chunk(self, chunk: Chunk) -> Iterator[SourceBatch]:
        """Yield the batches of a chunk, in order; none if it has
        no records. Raises DataError for an invalid value.
        """
        parts: list[tuple[TableChanges, bool]] = []
        for changes in chunk.tables:
            if changes.entries or changes.truncated:
                parts.append((changes, False))
            if changes.tombstones:
                parts.append((changes, True))
        ahead = dict(chunk.ahead)
        for place, (changes, is_tombstones) in enumerate(parts):
            name = changes.table.full_name
            done = ahead.get(name, TableAhead())
            if is_tombstones:
                done = done._replace(tombstones=max(done.tombstones, chunk.end))
            else:
                done = done._replace(records=max(done.records, chunk.end))
                if not changes.tombstones:
                    done = done._replace(tombstones=max(done.tombstones, chunk.end))
            ahead[name] = done
            if place + 1 < len(parts):
                offset = offset_of(chunk.start, chunk.last, ahead)
            else:
                offset = offset_of(chunk.end, chunk.last, beyond(ahead, chunk.end))
            yield self._tombstones(changes, offset) if is_tombstones else self._records(changes, offset)

    def of_snapshot(
        self, table: Table, rows: Sequence[Row], lsn: int, begun: Stored, now_us: int, *, is_last: bool
    ) -> SourceBatch:
        """Return a batch of snapshot rows at a place in the log; `begun`: where the stream begins after the snapshot.
        The last batch completes the snapshot. Raises like `of_chunk`.
        """
        count = len(rows)
        records = _Records(
            ops=["r"] * count, befores=[None] * count, afters=list(rows),
            keys=[table.key_of(row) for row in rows] if table.key_columns else [],
            commits_us=[now_us] * count, lsns=[lsn] * count, xids=[None] * count,
            sequences=[f'[null,"{lsn}"]'] * count,
        )  # fmt: skip
        words = ["true"] * count
        if is_last:
            words[-1] = "last"
        offset = offset_of(begun.position, None, begun.ahead, is_snapshot=not is_last)
        return self._batch(table, records, offset, words)

    def offset_alone(self, position: Position, ahead: Mapping[str, TableAhead] | None = None) -> SourceBatch:
        """Return a batch without records; its offset shows that everything before a position is done."""
        return SourceBatch(self._settings.heartbeat_topic, (), self._partition, offset_of(position, None, ahead))

    def heartbeat(self, position: Position, ahead: Mapping[str, TableAhead]) -> SourceBatch:
        """Return a batch with a heartbeat record and the same offset."""
        key = Struct(HEARTBEAT_KEY, [self._settings.prefix])
        value = Struct(HEARTBEAT_VALUE, [time.time_ns() // 1_000_000])
        return SourceBatch(
            self._settings.heartbeat_topic, [value], self._partition, offset_of(position, None, ahead), keys=[key],
            key_schema=HEARTBEAT_KEY, value_schema=HEARTBEAT_VALUE,
        )  # fmt: skip

    def _tombstones(self, changes: TableChanges, offset: dict[str, Any]) -> SourceBatch:
        table, keys = changes.table, list(changes.tombstones)
        return SourceBatch(
            table.topic, [None] * len(keys), self._partition, offset, keys=table.keys(keys), key_schema=table.key
        )

    def _records(self, changes: TableChanges, offset: dict[str, Any]) -> SourceBatch:
        table, records = changes.table, _Records()
        if changes.truncated is not None:
            lsn, transaction = changes.truncated
            records.add("t", None, None, (), lsn, transaction)
            return self._batch(table, records, offset, ["false"], has_keys=False)
        for entry in changes.entries:
            _add(records, table, entry)
        return self._batch(table, records, offset, ["false"] * len(records.ops))

    def _batch(
        self, table: Table, records: _Records, offset: dict[str, Any], words: list[str], *, has_keys: bool = True
    ) -> SourceBatch:
        described, found = self._loosened.get(table.full_name, (table, table))
        if described is not table:
            found = table
        while True:
            try:
                return self._batch_of(found, records, offset, words, has_keys=has_keys)
            except NullFound as null:
                found = found.without_key() if null.of_key else found.loosened(null.column)
                self._loosened[table.full_name] = table, found
                _log.warning("%s: the row is older than the table's definition; until the server describes the table "
                             "again, %s", null,
                             "records have no key" if null.of_key else "the field is optional")  # fmt: skip

    def _batch_of(
        self, table: Table, records: _Records, offset: dict[str, Any], words: list[str], *, has_keys: bool
    ) -> SourceBatch:
        count = len(records.ops)
        now_ns = time.time_ns()
        commits_us = records.commits_us
        source = StructColumn(
            SOURCE,
            [
                [VERSION] * count, ["postgresql"] * count, [self._settings.prefix] * count,
                [us // 1_000 for us in commits_us], words, [self._settings.connection.database] * count,
                records.sequences, commits_us, [us * 1_000 for us in commits_us], [table.schema] * count,
                [table.name] * count, records.xids, records.lsns, [None] * count,
            ],
            count,
        )  # fmt: skip
        envelopes = StructColumn(
            table.envelope,
            [
                table.rows(records.befores), table.rows(records.afters), source, [None] * count, records.ops,
                [now_ns // 1_000_000] * count, [now_ns // 1_000] * count, [now_ns] * count,
            ],
            count,
        )  # fmt: skip
        has_keys = has_keys and table.key is not None
        keys = table.keys(records.keys) if has_keys else ()
        return SourceBatch(
            table.topic, envelopes, self._partition, offset, keys=keys, key_schema=table.key if has_keys else None,
            value_schema=table.envelope, headers=_headers(table, records),
        )  # fmt: skip


def beyond(ahead: dict[str, TableAhead], position: Position) -> dict[str, TableAhead]:
    """Return the tables with progress beyond a position."""
    return {table: done for table, done in ahead.items() if max(done) > position}


def _add(records: _Records, table: Table, entry: Entry) -> None:
    change, old_key, lsn, transaction = entry
    new = change.new
    old = change.old if change.old is None or change.old_is_whole else _identity_alone(change.old)
    if change.kind == INSERT:
        assert new is not None
        records.add("c", None, new, table.key_of(new), lsn, transaction)
    elif change.kind == DELETE:
        assert old is not None
        records.add("d", old, None, table.key_of(old), lsn, transaction)
    elif old_key is not None:
        assert new is not None
        key = table.key_of(new)
        records.moved[len(records.ops)] = _NEW_KEY, key
        records.add("d", old, None, old_key, lsn, transaction)
        records.moved[len(records.ops)] = _OLD_KEY, old_key
        records.add("c", None, new, key, lsn, transaction)
    else:
        assert new is not None
        records.add("u", old, new, table.key_of(new), lsn, transaction)


def _identity_alone(row: Row) -> Row:
    """Return a row whose nulls are unknown, because the server sent only its identity."""
    return [Toast.UNKNOWN if cell is None else cell for cell in row]


def _headers(table: Table, records: _Records) -> list[list[Header]]:
    """Return the headers; empty if no key was changed."""
    if not records.moved or table.key is None:
        return []
    headers: list[list[Header]] = [[] for _ in records.ops]
    others = table.keys([key for _, key in records.moved.values()])
    for (place, (name, _)), key in zip(records.moved.items(), others, strict=True):
        headers[place] = [Header(name, key, table.key)]
    return headers
