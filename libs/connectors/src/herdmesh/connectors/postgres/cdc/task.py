"""Task of the CDC source: a snapshot of the tables, then their changes from the database's log.

Owns the sequence: the start of a run, when the slot may move, what is repeated after the server was unreachable. The
protocol: `replication`; rows: `snapshot`; chunks: `stream`; records: `events`.

How nothing is lost or duplicated between snapshot and stream:

1. The permanent slot is created, if it does not exist: from here on the log is kept.
2. A temporary slot is created behind it, and exports the snapshot of its start S: it has exactly the transactions that
   committed before S.
3. The snapshot is read. All offsets meanwhile hold the start of the stream (S), and `snapshot`.
4. The stream begins at S: the slot leaves out transactions that committed before.

An interrupted snapshot is taken again, whole, but the stream still begins at the start of the first one: a row that was
read then and deleted before the second snapshot is sent as deleted.

The server may discard the log up to a place only when `commit` confirms that everything before it is in Kafka.

Invariant: the slot is never confirmed beyond the stored offset.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from herdmesh.connectors.postgres.cdc import catalog
from herdmesh.connectors.postgres.cdc.catalog import Slot
from herdmesh.connectors.postgres.cdc.events import Events
from herdmesh.connectors.postgres.cdc.pgoutput import Relation
from herdmesh.connectors.postgres.cdc.position import LSN_COMMIT, Position, Stored, lsn_text, read, source_partition
from herdmesh.connectors.postgres.cdc.publication import prepare_publication
from herdmesh.connectors.postgres.cdc.replication import Frame, Replication, Snapshot, connected
from herdmesh.connectors.postgres.cdc.settings import CdcSettings, SnapshotMode, settings_of
from herdmesh.connectors.postgres.cdc.snapshot import SnapshotReader
from herdmesh.connectors.postgres.cdc.stream import Assembler
from herdmesh.connectors.postgres.cdc.tables import Table, check_topics, table_of
from herdmesh.connectors.postgres.connection import Connection, server
from herdmesh.sdk import (
    Config,
    ConnectError,
    DataError,
    OffsetsLost,
    RetriableError,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    waits,
)

_log = logging.getLogger(__name__)
_WAIT_S = 0.02
"""Time for which a poll waits for a first change; without one the record loop sleeps longer than that."""
_WAIT_FOR_MORE_S = 0.05
"""Wait for the rest of a transaction."""
_WAIT_FOR_NEXT_S = 0.002
"""Wait for another transaction."""
_POLL_S_MAX = 1.0
"""Maximum time for which a poll reads changes that produce no records."""
_MOVE_S = 30.0
"""Interval at which the offset of a database without
captured changes moves, so that its log can be discarded.
"""
_SILENT_S = 2.0
"""A server that sent nothing for this time has sent everything."""
_PATIENCE_S = 0.5
"""Time for which a poll at the start of a stream waits until the server has sent the present log."""
_ENDINGS_MAX = 25
"""Maximum number of checks whether a terminated server process is gone."""
_DROP_S = 5.0
_FINISHED_WAKE_MS = 3_600_000
_APPLICATION_CHARS = 37

Step: TypeAlias = SourceBatch | str | None
"""Result of a poll: records, the reason of a wait, or None."""


class CdcSourceTask(SourceTask):
    """Reads one database's changes. Contacts the server first at the first poll, which is retried."""

    _steps: Generator[Step, None, None] | None = None
    _connection: Connection | None = None
    _replication: Replication | None = None
    _drops_slot = False
    _in_snapshot = False

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._settings: CdcSettings = settings_of(config)
        self._context = context
        self._events = Events(self._settings)
        offset = context.committed_offset(source_partition(self._settings.prefix))
        self._stored = None if offset is None else _stored(offset)
        # Two names may have the same beginning, or no character that the server keeps: the digest distinguishes them.
        digest = hashlib.sha256(context.connector.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = re.sub(r"[^ -~]", "_", f"herdmesh {context.connector}")[:_APPLICATION_CHARS] + f" {digest}"
        self._connector_name, self._run_name = f"{name} ", f"{name} {context.run_id[:16]}"
        self._drops_slot = self._settings.drops_slot
        self._assembler: Assembler | None = None
        self._topics: dict[str, tuple[str, str]] = {}
        """For each topic the last table, by schema and name, whose changes it received."""
        #: in this run: the slot's earlier user was terminated; the snapshot of snapshot.mode=always was taken.
        self._took_over = self._took_snapshot = False
        self._finished = False
        #: log position in the offset last handed over, and in the one last committed.
        self._handed_lsn = self._confirmed_lsn = 0 if self._stored is None else self._stored.position.lsn
        #: end of the log when the stream began: rows before it may be older than the catalog.
        self._began_lsn = 0
        self._moved_s = self._told_s = time.monotonic()

    def poll(self) -> SourceBatch | None:
        if self._finished:
            return None
        if self._steps is None:
            self._steps = self._run()
        place = server(self._settings.connection)
        try:
            with waits.on(place, f"changes of slot {self._settings.slot}"):
                step = next(self._steps)
        except StopIteration:
            self._close()
            self._finished = True
            return None
        except RetriableError as error:
            self._close()
            error.waits_for = error.waits_for or place
            raise
        except BaseException:
            self._close()
            raise
        if isinstance(step, str):
            raise RetriableError(step, waits_for=place)
        if step is not None and step.source_offset is not None:
            self._handed_lsn = step.source_offset[LSN_COMMIT]
        return step

    def commit(self) -> None:
        self._confirmed_lsn = max(self._confirmed_lsn, self._handed_lsn)
        # The next poll detects a broken connection.
        with contextlib.suppress(RetriableError):
            self._tell()

    def wake_after_ms(self) -> int:
        """0, so that the stream is polled all the time; a long time once the task is finished."""
        return _FINISHED_WAKE_MS if self._finished else 0

    def may_yield(self) -> bool:
        """False in a snapshot, which the next run would have to take again."""
        return not self._in_snapshot

    def stop(self) -> None:
        self._close()
        if self._drops_slot:
            self._drop_slot()

    def _close(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            with contextlib.suppress(ConnectError):
                steps.close()
        replication, self._replication = self._replication, None
        if replication is not None:
            replication.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self) -> Generator[Step, None, None]:
        settings = self._settings
        connection = self._connection = connected(settings.connection, self._run_name)
        catalog.check_server(connection, settings)
        prepare_publication(connection, settings)
        if self._assembler is None:
            begun = yield from self._begin(connection)
            if settings.snapshot is SnapshotMode.INITIAL_ONLY:
                return
            self._assembler = Assembler(begun.position, begun.ahead, self._table_of, settings)
        else:
            position = self._assembler.position
            slot = yield from self._free_slot(connection)
            catalog.check_kept(connection, settings, slot, position)
            self._replication = Replication(settings.connection, self._run_name)
        yield from self._stream(connection, self._assembler, self._opened())

    def _begin(self, connection: Connection) -> Generator[Step, None, Stored]:
        """Find the start position; take the snapshot if one is due."""
        settings = self._settings
        if settings.snapshot is SnapshotMode.INITIAL_ONLY:
            if self._stored is None or self._stored.is_snapshot:
                yield from self._snapshot(self._stored)
            assert self._stored is not None
            return self._stored
        stored, slot = yield from self._kept(connection)
        replication = self._replication = Replication(settings.connection, self._run_name)
        beginning = slot.confirmed if slot is not None else (yield from replication.create_slot(settings.slot))
        if slot is None:
            _log.info("created the replication slot %s at %s", settings.slot, lsn_text(beginning))
        if stored is not None and slot is None:  # slot.drop.on.stop
            stored = Stored(Position(beginning), {}, False)
        self._stored = stored
        # Do not confirm the lost offset: the slot would move to a position of another log.
        self._handed_lsn = self._confirmed_lsn = 0 if stored is None else stored.position.lsn
        due = settings.snapshot is SnapshotMode.ALWAYS and not self._took_snapshot
        if settings.snapshot is SnapshotMode.INITIAL:
            due = stored is None or stored.is_snapshot
        if due:
            yield from self._snapshot(stored)
        elif stored is None or stored.is_snapshot:
            self._stored = Stored(Position(beginning) if stored is None else stored.position, {}, False)
            yield self._events.offset_alone(self._stored.position)
        assert self._stored is not None
        return self._stored

    def _kept(self, connection: Connection) -> Generator[str, None, tuple[Stored | None, Slot | None]]:
        """Return the stored offset and the slot, if the slot has
        everything from there on; None for what must begin anew.
        """
        settings, stored = self._settings, self._stored
        try:
            slot = yield from self._free_slot(connection)
            if stored is not None and slot is None and settings.drops_slot:
                _log.warning(
                    "slot %s was dropped at the end of the last run; changes made since are not captured", settings.slot
                )
                return None if stored.is_snapshot else stored, None
            if stored is not None:
                catalog.check_kept(connection, settings, slot, stored.position)
        except OffsetsLost as lost:
            if not settings.reset_lost:
                raise
            _log.warning("%s; the connector starts from the beginning (herdmesh.offsets.missing=reset)", lost.message)
            catalog.drop_slot(connection, settings)
            return None, None
        return stored, slot

    def _free_slot(self, connection: Connection) -> Generator[str, None, Slot | None]:
        """Return the slot once it is free. An earlier run of this connector is fenced already, and its server process
        is terminated; so is this run's own last connection, if it still exists.
        """
        settings = self._settings
        while (slot := catalog.find_slot(connection, settings)) is not None and slot.active_pid is not None:
            ours = slot.application == self._run_name
            if ours or (not self._took_over and slot.application.startswith(self._connector_name)):
                catalog.end_user_of(connection, slot)
                for _ in range(_ENDINGS_MAX):
                    time.sleep(_WAIT_S)  # waits: at most `_ENDINGS_MAX` times; then the step yields the reason
                    slot = catalog.find_slot(connection, settings)
                    if slot is None or slot.active_pid is None:
                        break
                else:
                    yield f"waiting for an earlier run to release the slot {settings.slot}"
            else:
                who = f"{slot.application!r} (process {slot.active_pid} of the server)"
                yield f"slot {settings.slot} is in use by {who}; a slot can serve only one connector (slot.name)"
        self._took_over = True
        return slot

    def _snapshot(self, stored: Stored | None) -> Generator[Step, None, None]:
        """Read all tables. The stream begins at the stored offset, else at the snapshot."""
        settings = self._settings
        suffix = re.sub(r"[^a-z0-9_]", "_", self._context.run_id.lower())[:16]
        exporting = Replication(settings.connection, self._run_name)
        reading: Connection | None = None
        self._in_snapshot = True
        try:
            snapshot = yield from exporting.snapshot(f"{settings.slot[:40]}_{suffix}")
            reading = connected(settings.connection, self._run_name)
            reader = SnapshotReader(reading, snapshot, settings)
            exporting.close()
            begun = Stored(Position(snapshot.lsn), {}, True) if stored is None else stored
            self._stored = begun  # a repeated snapshot of this run keeps this start
            _log.info("snapshot of %d tables at %s", len(reader.tables), lsn_text(snapshot.lsn))
            yield from self._rows(reader, snapshot, begun)
        finally:
            self._in_snapshot = False
            exporting.close()
            if reading is not None:
                reading.close()
        self._took_snapshot = True
        self._stored = begun._replace(is_snapshot=False)

    def _rows(self, reader: SnapshotReader, snapshot: Snapshot, begun: Stored) -> Generator[Step, None, None]:
        events, now_us = self._events, time.time_ns() // 1_000
        last: tuple[Table, list[Any]] | None = None
        for found in reader.read():
            if last is not None:
                yield events.of_snapshot(*last, snapshot.lsn, begun, now_us, is_last=False)
            last = found
        if last is None:
            yield events.offset_alone(begun.position, begun.ahead)
        else:
            yield events.of_snapshot(*last, snapshot.lsn, begun, now_us, is_last=True)

    def _opened(self) -> Replication:
        """Start the stream at the position reached."""
        replication, assembler = self._replication, self._assembler
        assert replication is not None
        assert assembler is not None
        assembler.restart()
        replication.start(self._settings.slot, self._settings.publication, assembler.position.lsn)
        self._tell(asks=True)
        return replication

    def _stream(
        self, connection: Connection, assembler: Assembler, replication: Replication
    ) -> Generator[Step, None, None]:
        end = self._began_lsn = catalog.end_of_log(connection)
        heard_s = time.monotonic()
        held: Frame | None = None
        patience_s = heard_s + _PATIENCE_S
        while True:
            assembler.changes_max = max(1, min(self._settings.batch_changes, self._context.poll_records_max()))
            before = assembler.position
            held = self._fill(assembler, replication, held)
            is_empty = True
            for batch in self._events.of_chunk(assembler.chunk()):
                is_empty = False
                yield batch
            now_s = time.monotonic()
            if now_s - self._told_s >= self._settings.status_s:
                self._tell()
            if not is_empty or assembler.position != before:
                heard_s = now_s
            if not is_empty:
                self._moved_s = now_s
            elif held is None:
                caught_up = assembler.position.lsn >= end or now_s - heard_s > _SILENT_S
                if not caught_up:
                    self._tell(asks=True)
                    if now_s < patience_s:
                        continue
                yield self._nothing(assembler, now_s, caught_up=caught_up)
                patience_s = time.monotonic() + _PATIENCE_S

    def _fill(self, assembler: Assembler, replication: Replication, held: Frame | None) -> Frame | None:
        """Add messages to the chunk until it is full, or no more
        arrive. Returns a message that belongs to the next chunk.
        """
        if held is not None and not assembler.take(held.lsn, held.data):
            raise AssertionError("a message that an empty chunk does not take")
        begun_s = time.monotonic()
        receive, take = replication.receive, assembler.take
        while not assembler.is_full:
            if assembler.count == 0:
                wait_s = _WAIT_S
            else:
                wait_s = _WAIT_FOR_MORE_S if assembler.in_transaction else _WAIT_FOR_NEXT_S
            frame = receive(wait_s)
            if frame is None:
                return None
            if frame.data:
                if not take(frame.lsn, frame.data):
                    return frame
            else:
                assembler.on_keepalive(frame.lsn)
                if frame.wants_reply:
                    self._tell()
            if time.monotonic() - begun_s > _POLL_S_MAX:
                return None
        return None

    def _nothing(self, assembler: Assembler, now_s: float, *, caught_up: bool) -> Step:
        """Return the step for a poll without changes: a heartbeat, an offset, a wait, or None."""
        position, heartbeat_s = assembler.position, self._settings.heartbeat_s
        if not assembler.in_transaction and now_s - self._moved_s >= (heartbeat_s or _MOVE_S):
            self._moved_s = now_s
            if heartbeat_s:
                return self._events.heartbeat(position, assembler.ahead)
            if position.lsn > self._handed_lsn:
                return self._events.offset_alone(position, assembler.ahead)
        return None if caught_up else "reading the database's log up to where it ended when the run began"

    def _tell(self, *, asks: bool = False) -> None:
        """Send the positions to the server."""
        if self._replication is not None and self._assembler is not None:
            self._told_s = time.monotonic()
            self._replication.confirm(self._assembler.position.lsn, self._confirmed_lsn, asks=asks)

    def _table_of(self, relation: Relation) -> Table | None:
        if not self._settings.tables.has(relation.schema, relation.table):
            return None
        assert self._connection is not None
        topic = self._settings.topic(relation.schema, relation.table)
        place = (relation.schema, relation.table)
        if self._topics.get(topic, place) != place:  # the other table may have been dropped or renamed since
            there = catalog.published(self._connection, self._settings)
            check_topics([place, *((one.schema, one.name) for one in there)], self._settings)
        self._topics[topic] = place
        # A key that is altered while the stream is up to date is in the catalog of the row's time.
        xid = self._assembler.xid_before(self._began_lsn) if self._assembler is not None else None
        return table_of(relation, catalog.facts_of(self._connection, relation, xid), self._settings)

    def _drop_slot(self) -> None:
        """Drop the slot, for slot.drop.on.stop; an unreachable server keeps it."""
        deadline_s = time.monotonic() + _DROP_S
        with waits.on(server(self._settings.connection), f"dropping slot {self._settings.slot}"):
            while True:
                try:
                    with connected(self._settings.connection, self._run_name) as connection:
                        catalog.drop_slot(connection, self._settings)
                    return
                except ConnectError as error:  # our last connection may still use the slot
                    if time.monotonic() > deadline_s:
                        _log.warning("cannot drop slot %s: %s", self._settings.slot, error)
                        return
                    time.sleep(0.05)


def _stored(offset: Mapping[str, Any]) -> Stored:
    try:
        return read(offset)
    except DataError as error:
        raise OffsetsLost(str(error)) from error
