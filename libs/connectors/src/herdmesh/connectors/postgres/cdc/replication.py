"""Replication connection: the snapshot of a slot, and its stream of messages.

Owns PostgreSQL's streaming replication protocol on top of libpq's COPY BOTH, for which psycopg has no API but gives
access. Does not know the content of the messages (`pgoutput`), nor any position.

COPY BOTH was chosen over the SQL functions of logical decoding (`pg_logical_slot_peek_binary_changes`): these decode
everything again from the slot's restart point at every call, and hold a whole transaction in the server and here,
however large it is. Measured once, 100,000 rows of ten transactions on two busy cores: 34,000 to 86,000 rows/s by COPY
BOTH, of which this process took 0.2 s; 39,000 to 154,000 by the functions, 10,000 rows a call.

Invariant: a position is confirmed to the server only when the caller does so.
"""

from __future__ import annotations

import re
import select
import struct
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from herdmesh.connectors.postgres import connection
from herdmesh.connectors.postgres.cdc import pgoutput
from herdmesh.connectors.postgres.cdc.position import lsn_of, lsn_text
from herdmesh.connectors.postgres.cdc.settings import DATABASE, HOST, PASSWORD, PUBLICATION, SLOT, USER
from herdmesh.connectors.postgres.connection import Connection, ConnectionSettings, literal, quoted, server
from herdmesh.connectors.table_source import settings as table_source
from herdmesh.sdk import ConfigError, ConnectError, OffsetsLost, RetriableError, waits

_XLOG_DATA, _KEEPALIVE = b"wk"
_header = struct.Struct(">BQQq")
_keepalive = struct.Struct(">BQqB")
_status = struct.Struct(">BQQQqB")
_LIMIT_STATE = "53400"
_MISSING_STATE = "42704"
_OTHERS_WAIT_MS = 200
"""Maximum wait of one attempt while the server creates a slot."""
_ASK_S = 1.5
"""Time without a message after which the server is sent a status request."""
#: SQL states of a slot that was invalidated, or whose log is gone.
_LOST_STATES = ("55000", "58P01")
_NO_DATABASE = re.compile(r'database "[^"]*" does not exist')
_OWN_KEYS = {table_source.USER: USER, table_source.PASSWORD: PASSWORD}


class Frame(NamedTuple):
    """One message of the stream."""

    lsn: int
    """Position in the log; for a keepalive, the end of the log that the server has read and sent."""
    data: bytes
    """b"" = a keepalive."""
    wants_reply: bool = False


class Snapshot(NamedTuple):
    """A snapshot of a database at a point of its log."""

    lsn: int
    """Transactions that committed before it are in it, all others come after it."""
    name: str
    """For SET TRANSACTION SNAPSHOT; valid until the connection that created it executes its next command."""


def connected(settings: ConnectionSettings, application: str, **more: Any) -> Connection:
    """Connect with an application name. Raises RetriableError when the server is unreachable, ConfigError with the
    connector's key when it refuses.
    """
    named = replace(settings, parameters={**settings.parameters, "application_name": application})
    try:
        return connection.connect(named, **more)
    except ConfigError as error:
        field = DATABASE if _NO_DATABASE.search(str(error)) else _OWN_KEYS.get(error.field, HOST)
        raise ConfigError(str(error).replace(error.field, field), field=field, fix=error.fix) from error


class Replication:
    """One connection, until `close`. For one thread."""

    def __init__(self, settings: ConnectionSettings, application: str) -> None:
        """Connect. Raises like `connected`."""
        self._connection = connected(settings, application, replication="database")
        self._pg = self._connection.pgconn
        self._poller = select.poll()  # select() fails for high file descriptors in a process with many files
        self._poller.register(self._pg.socket, select.POLLIN)
        self._server = server(settings)
        self._silent = waits.Standing()
        #: whether polls found nothing since the last message; time of the first such poll, or of the last status
        #: request.
        self._is_silent, self._heard_s = False, 0.0
        #: read and confirmed positions of the last status message.
        self._told = (0, 0)

    def close(self) -> None:
        """Close the connection. Its temporary slots and its snapshot are gone then."""
        self._silent.over()
        self._connection.close()

    def snapshot(self, slot: str) -> Generator[str, None, Snapshot]:
        """Create a temporary slot, and export the snapshot of its start. The server waits for all open transactions;
        yields the reason of the wait, and continues at the next iteration.
        """
        command = f"CREATE_REPLICATION_SLOT {quoted(slot)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
        point, name = yield from self._created(command)
        return Snapshot(lsn_of(point), name)

    def create_slot(self, slot: str) -> Generator[str, None, int]:
        """Create a permanent slot and return its start. Yields like `snapshot`."""
        command = f"CREATE_REPLICATION_SLOT {quoted(slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT"
        point, _ = yield from self._created(command)
        return lsn_of(point)

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Start the stream of all transactions that committed at a log position or after it."""
        command = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(lsn)} "
            f"(proto_version '1', publication_names {literal(quoted(publication))})"
        )
        try:
            result = self._pg.exec_(command.encode())
        except psycopg.Error as error:
            raise RetriableError(f"the stream of slot {slot} cannot begin: {error}") from error
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _error_of(result, f"the stream of slot {slot} cannot begin")

    def receive(self, wait_s: float = 0.0) -> Frame | None:
        """Return the next message; None if none arrived in that time. Raises when the stream ended."""
        pg = self._pg
        try:
            size, data = pg.get_copy_data(1)
            if size == 0:
                if not self._poller.poll(wait_s * 1_000):
                    self._notice_silence()
                    return None
                pg.consume_input()
                size, data = pg.get_copy_data(1)
        except psycopg.Error as error:
            raise RetriableError(f"the stream broke: {' '.join(str(error).split())}") from error
        if size > 0:
            if self._is_silent:
                self._is_silent = False
                self._silent.over()
            return _frame(bytes(data))
        if size == 0:
            return None
        result = pg.get_result()
        if result is None:
            raise RetriableError("the server ended the stream")
        raise _error_of(result, "the stream ended")

    def _notice_silence(self) -> None:
        """Send a status request to a silent server: an idle server is
        indistinguishable from a hanging one for up to half a minute.
        """
        now_s = time.monotonic()
        if not self._is_silent:
            self._is_silent, self._heard_s = True, now_s
        if now_s - self._heard_s < _ASK_S:
            return
        self._heard_s = now_s
        self._silent.goes_on(self._server, "no response in the replication stream", tried=self._silent.begun)
        self.confirm(*self._told, asks=True)

    def confirm(self, received: int, confirmed: int, *, asks: bool = False) -> None:
        """Send a status message: the position read, and the position up to which the log may be discarded; `asks`:
        request the server's own position.
        """
        self._told = received, confirmed
        now_us = time.time_ns() // 1_000 - pgoutput.EPOCH_US
        try:
            self._pg.put_copy_data(_status.pack(ord("r"), max(received, confirmed), confirmed, confirmed, now_us, asks))
            self._pg.flush()
        except psycopg.Error as error:
            raise RetriableError(f"the stream broke: {' '.join(str(error).split())}") from error

    def _created(self, command: str) -> Generator[str, None, tuple[str, str]]:
        pg = self._pg
        try:
            pg.send_query(command.encode())
            pg.flush()
            while pg.is_busy():
                if self._poller.poll(_OTHERS_WAIT_MS):
                    pg.consume_input()
                else:
                    yield "waiting for the open transactions of the database to end: a new slot begins after them"
            results: list[pq.abc.PGresult] = []
            while (result := pg.get_result()) is not None:
                results.append(result)
        except psycopg.Error as error:
            raise RetriableError(f"no replication slot could be created: {' '.join(str(error).split())}") from error
        made = results[0]
        if made.status != pq.ExecStatus.TUPLES_OK:
            raise _error_of(made, "no replication slot could be created")
        point, name = made.get_value(0, 1), made.get_value(0, 2)
        return (point or b"0/0").decode(), (name or b"").decode()


def _frame(data: bytes) -> Frame:
    kind = data[0]
    if kind == _XLOG_DATA:
        return Frame(_header.unpack_from(data)[1], data[_header.size :])
    if kind == _KEEPALIVE:
        _, end, _, reply = _keepalive.unpack(data)
        return Frame(end, b"", bool(reply))
    raise ConnectError(f"a message of the unknown kind {data[:1]!r} in a replication stream")


def _error_of(result: pq.abc.PGresult, doing: str) -> Exception:
    said = " ".join(result.error_message.decode(errors="replace").split())
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = f"{doing}: {said}"
    if state == _LIMIT_STATE:
        fix = "raise max_replication_slots in postgresql.conf, or drop a slot that nobody uses"
        return ConfigError(message, field=SLOT, fix=fix)
    if state == _MISSING_STATE and "publication" in said:
        fix = (
            "create the publication again; if rows were changed while it was missing, reset the connector's offsets too"
        )
        return ConfigError(message, field=PUBLICATION, fix=fix)
    if state == _MISSING_STATE or state in _LOST_STATES:
        return OffsetsLost(f"{message}; {BEGIN_ANEW}")
    if state == "42501":
        return ConfigError(message, field=USER, fix="ALTER ROLE ... REPLICATION")
    return RetriableError(message)


BEGIN_ANEW = (
    "changes are lost: reset the connector's offsets, or set herdmesh.offsets.missing=reset, to begin with a new "
    "snapshot"
)
"""Fix for lost changes."""
