"""Ledger table of a PostgreSQL sink, and the sessions of its owners.

Owns creating the ledger table, terminating sessions of finished runs, and altering offsets. The meaning of its rows:
`engine.sql_ledger`.

A session carries its run's name (`application_name`), and a ledger row the run that owns it. So the new owner of a
partition finds the sessions of the previous run and terminates them: a session paused in a transaction (a frozen
process, a cut network) would keep the ledger row, and rows of the user's tables, locked.

Invariant: only sessions whose run was fenced before are terminated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors

from herdmesh.connectors.postgres.connection import (
    Connection,
    connect,
    connection_settings,
    errors_translated,
    make_missing,
)
from herdmesh.connectors.postgres.sink.settings import LEDGER_TABLE, TableName, sink_settings
from herdmesh.engine.sink import NOBODY
from herdmesh.sdk import Config, ConfigError, PartitionId, SqlLedger

LOCK_TIMEOUT = b"SET lock_timeout = '5s'"
"""Who waits longer tries again: a task must hear that it is to stop."""
_SESSION_BYTES_MAX = 63
_END_TIMEOUT_MS = 3_000

_log = logging.getLogger(__name__)


def session_name(run_id: str) -> str:
    """The `application_name` of a run's session; the server keeps no more of it."""
    return f"herdmesh-{run_id}"[:_SESSION_BYTES_MAX]


def ledger_of(session: Callable[[], Connection], table: TableName, connector: str, owner: str) -> SqlLedger:
    """The connector's rows. `session`: the connection to ask; it may be another each time."""

    def execute(statement: str, parameters: Sequence[Any]) -> Any:
        return session().execute(statement.encode(), parameters)

    return SqlLedger(execute, table.sql.replace("%", "%%"), connector, owner)


def ensure_table(connection: Connection, table: TableName, ledger: SqlLedger) -> None:
    """Make the ledger's table when there is none.

    Raises:
        ConfigError: for its key, when it can be neither used nor made.
        psycopg.Error: anything else.
    """
    try:
        ledger.all_owners()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        _make(connection, table, ledger)
    except (errors.InsufficientPrivilege, errors.UndefinedColumn, errors.WrongObjectType) as error:
        raise _unusable(table, ledger, error) from error


def _make(connection: Connection, table: TableName, ledger: SqlLedger) -> None:
    try:
        make_missing(connection, ledger.definition, ())
    except (
        errors.InsufficientPrivilege, errors.InvalidSchemaName, errors.ReadOnlySqlTransaction, errors.DuplicateObject,
    ) as error:  # fmt: skip
        raise _unusable(table, ledger, error) from error


def _unusable(table: TableName, ledger: SqlLedger, error: psycopg.Error) -> ConfigError:
    return ConfigError(
        f"{LEDGER_TABLE}: {table} cannot be used: {' '.join(str(error).split())}", field=LEDGER_TABLE,
        fix=f"let the user make it, or make it and let the user select, insert, update and delete: {ledger.definition}",
    )  # fmt: skip


def end_sessions(connection: Connection, runs: Collection[str]) -> None:
    """End the sessions of these runs, but not this one. Best effort: where the user may not, or does not see them, a
    lock that one of them holds is waited for, and the wait has an end."""
    if not runs:
        return
    names = [session_name(run) for run in runs]
    try:
        ended = connection.execute(
            "SELECT count(*) FILTER (WHERE pg_catalog.pg_terminate_backend(pid, %s)) FROM pg_catalog.pg_stat_activity "
            "WHERE application_name = ANY (%s) AND usename = current_user AND pid <> pg_catalog.pg_backend_pid()",
            (_END_TIMEOUT_MS, names),
        ).fetchone()
    except (errors.InsufficientPrivilege, errors.UndefinedFunction) as error:
        _log.warning("sessions of earlier runs are left to end by themselves: %s", error)
        return
    if ended and ended[0]:
        _log.warning("ended %d sessions of runs that are over", ended[0])


def alter_ledger(config: Config, offsets: Mapping[PartitionId, int | None]) -> None:
    """Set or delete the rows of a connector of which no task runs.

    Raises:
        ConfigError: of the connection or the table.
        RetriableError: the server is away, or a row stays locked: nothing was changed, or, where the connection broke
            amid the commit, all of it.
    """
    settings = sink_settings(config)
    with connect(connection_settings(config)) as connection, errors_translated("the ledger cannot be altered"):
        connection.execute(LOCK_TIMEOUT)
        ledger = ledger_of(lambda: connection, settings.ledger, config["name"] or "", NOBODY)
        ensure_table(connection, settings.ledger, ledger)
        end_sessions(connection, ledger.all_owners())
        with connection.transaction():
            ledger.alter(offsets)
