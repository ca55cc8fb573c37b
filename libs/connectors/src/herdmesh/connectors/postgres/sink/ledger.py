"""Ledger table of a PostgreSQL sink, and the sessions of its owners.

Owns creating the ledger table, terminating sessions of finished runs,
and altering offsets. The meaning of its rows: `engine.sql_ledger`.

A session carries its run's name (`application_name`), and a ledger row the run that owns it. So the new owner of a
partition finds the sessions of the previous run and terminates them: a session suspended in a transaction (a frozen
process, a cut network) would keep the ledger row, and rows of the user's tables, locked.

Invariant: only sessions of runs that are already fenced are terminated.
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
"""Lock timeout; after it the write is retried, so that a task can receive a stop command."""
_SESSION_BYTES_MAX = 63
_END_TIMEOUT_MS = 3_000

_log = logging.getLogger(__name__)


def session_name(run_id: str) -> str:
    """Return the `application_name` of a run's session, cut to the server's maximum length."""
    return f"herdmesh-{run_id}"[:_SESSION_BYTES_MAX]


def ledger_of(session: Callable[[], Connection], table: TableName, connector: str, owner: str) -> SqlLedger:
    """Return the connector's ledger. `session`: returns the
    connection to use, which may change between calls.
    """

    def execute(statement: str, parameters: Sequence[Any]) -> Any:
        return session().execute(statement.encode(), parameters)

    return SqlLedger(execute, table.sql.replace("%", "%%"), connector, owner)


def ensure_table(connection: Connection, table: TableName, ledger: SqlLedger) -> None:
    """Create the ledger's table if it is missing.

    Raises:
        ConfigError: for its key, when it can be neither used nor created.
        psycopg.Error: any other error.
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
        fix="grant the user the right to create it, or create it and grant SELECT, INSERT, UPDATE and DELETE: "
        f"{ledger.definition}",
    )  # fmt: skip


def end_sessions(connection: Connection, runs: Collection[str]) -> None:
    """Terminate the sessions of these runs, except this one. Best effort: if the user lacks the right, or does not see
    them, a write waits for their locks until the lock timeout.
    """
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
        _log.warning("cannot end the sessions of earlier runs, which end by themselves: %s", error)
        return
    if ended and ended[0]:
        _log.warning("ended %d sessions of earlier runs", ended[0])


def alter_ledger(config: Config, offsets: Mapping[PartitionId, int | None]) -> None:
    """Set or delete the ledger rows of a connector without running tasks.

    Raises:
        ConfigError: of the connection or the table.
        RetriableError: the server is unreachable, or a row stays locked: nothing was changed, or, if the connection
            broke during the commit, everything.
    """
    settings = sink_settings(config)
    with connect(connection_settings(config)) as connection, errors_translated("the ledger cannot be altered"):
        connection.execute(LOCK_TIMEOUT)
        ledger = ledger_of(lambda: connection, settings.ledger, config["name"] or "", NOBODY)
        ensure_table(connection, settings.ledger, ledger)
        end_sessions(connection, ledger.all_owners())
        with connection.transaction():
            ledger.alter(offsets)
