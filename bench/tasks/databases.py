"""The tasks of PostgreSQL's connectors on a real server: the processor time of this process, not of the server.

Owns the tables, which belong to one case each. Runs in an older tree too: it imports only what both have. Pauses while
the server has no rows yet count as nothing, because a sleeping process uses no processor.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg import conninfo

from bench.tasks import samples
from bench.tasks.cases import Case, clock, context
from herdmesh.connect.errors import RetriableError
from herdmesh.connect.model.schemas import Schema
from herdmesh.connect.spi.connector import Config, SourceTaskContext
from herdmesh.connectors.postgres.cdc.task import CdcSourceTask
from herdmesh.connectors.postgres.sink.task import PostgresSinkTask
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.connectors.postgres.source.task import PostgresSourceTask

_FLAT = (
    "id bigint NOT NULL, key uuid NOT NULL, name text NOT NULL, email text NOT NULL, "
    "amount double precision NOT NULL, ok boolean NOT NULL, note text"
)
_COLUMNS = "id bigint NOT NULL, name text, price numeric(20, 2), day date, at timestamptz, tags text[]"
_MANY_TYPES = (
    "n, 'name ' || n, n * 0.01, date '2024-01-01' + n % 1000, to_timestamp(1700000000 + n), ARRAY['a', 'b ' || n]"
)
_MOST_REPEATS = 40
_LEAST_REPEATS = 12
"""Number of batches in the tables that are read, in the size of a task's batch."""
_PAUSE_S = 0.01


def _execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _sink(dsn: str, schema: Schema, *, key: str = "", updates: bool = False) -> Case:
    """A case of the sink. `key`: the column of the primary key, by which rows are upserted; `updates`: the rows exist
    already.
    """
    columns = _FLAT if schema is samples.FLAT else _COLUMNS
    form = "flat" if schema is samples.FLAT else "columns"

    def run(repeats: int) -> float:
        table = f"t{uuid.uuid4().hex}"
        _execute(dsn, f"CREATE TABLE {table} ({columns}{f', PRIMARY KEY ({key})' if key else ''})")
        keyed = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": key} if key else {}
        made = samples.chain(form)
        batches = [
            one for at in range(-1, repeats) for one in samples.given(
                made, samples.rows(schema, 0 if updates else (at + 1) * samples.RECORDS), (at + 1) * samples.RECORDS
            )
        ]  # fmt: skip
        task = PostgresSinkTask()
        task.start({"name": "bench", "connection.url": dsn, "table.name.format": table, **keyed}, context())
        try:
            partition = (samples.TOPIC, 0)
            task.claim([partition])
            task.begin({partition: 0})
            task.put(batches[0])  # the first put inspects the table
            with clock() as used_s:
                for batch in batches[1:]:
                    task.put(batch)
                return used_s()
        finally:
            task.stop()
            _execute(dsn, f"DROP TABLE {table}")

    return run


def _taken(poll: Callable[[], Any], rows: int, repeats: int) -> float:
    """The processor time of `repeats` batches, scaled from all `rows` except those of the first batch, because that one
    includes the inspection of the tables.
    """
    first = _next(poll)
    with clock() as used_s:
        left = rows - first
        while left > 0:
            left -= _next(poll)
        return used_s() * repeats * samples.RECORDS / (rows - first)


def _next(poll: Callable[[], Any]) -> int:
    """The number of records of the next batch, each of them read."""
    while True:
        try:
            batch = poll()
        except RetriableError:
            batch = None
        if batch is not None and len(batch.values):
            for _value in batch.values:
                pass
            return len(batch.values)
        time.sleep(_PAUSE_S)


def _filled(dsn: str, table: str, columns: str) -> None:
    flat = "n, md5(n::text)::uuid, 'user' || n % 1000, 'user' || n || '@example.com', n * 0.01, n % 2 = 0, 'a note'"
    rows = _MOST_REPEATS * samples.RECORDS
    _execute(
        dsn, f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY (id))",
        f"INSERT INTO {table} SELECT {flat if columns is _FLAT else _MANY_TYPES} FROM generate_series(1, {rows}) AS n "
        "ON CONFLICT DO NOTHING",
    )  # fmt: skip


def _source(dsn: str, columns: str) -> Case:
    table = "read_flat" if columns is _FLAT else "read_columns"

    def run(repeats: int) -> float:
        _filled(dsn, table, columns)
        connector = PostgresSourceConnector()
        connector.start({
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "name": "bench", "connection.url": dsn,
            "topic.prefix": "db-", "poll.interval.ms": "1", "mode": "incrementing", "incrementing.column.name": "id",
            "table.whitelist": table, "batch.max.rows": str(samples.RECORDS),
        })  # fmt: skip
        (config,) = connector.task_configs(1)
        connector.stop()
        task = PostgresSourceTask()
        task.start(config, SourceTaskContext("bench", 0, 1, "run", lambda _: None, lambda: samples.RECORDS))
        try:
            return _taken(task.poll, _MOST_REPEATS * samples.RECORDS, repeats)
        finally:
            task.stop()

    return run


def _cdc(dsn: str, *, snapshot: bool) -> Case:
    def run(repeats: int) -> float:
        table = f"c{uuid.uuid4().hex}"
        rows = max(_LEAST_REPEATS, min(repeats, _MOST_REPEATS)) * samples.RECORDS
        fill = f"INSERT INTO {table} SELECT {_MANY_TYPES} FROM generate_series(1, {rows}) AS n"
        _execute(dsn, f"CREATE TABLE {table} ({_COLUMNS}, PRIMARY KEY (id))")
        if snapshot:
            _execute(dsn, fill)
        parts = conninfo.conninfo_to_dict(dsn)
        config: Config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
            "database.hostname": str(parts["host"]), "database.port": str(parts["port"]),
            "database.user": str(parts["user"]), "database.dbname": str(parts["dbname"]), "topic.prefix": "app",
            "slot.name": table, "publication.name": table, "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{table}", "snapshot.mode": "initial",
        }  # fmt: skip
        task = CdcSourceTask()
        task.start(config, SourceTaskContext("bench", 0, 1, uuid.uuid4().hex, lambda _: None))
        try:
            if not snapshot:
                _settled(task)
                _execute(dsn, fill)
            return _taken(task.poll, rows, repeats)
        finally:
            task.stop()
            _drop_slot(dsn, table)

    return run


def _settled(task: CdcSourceTask) -> None:
    """Poll until the task has read the whole log."""
    quiet = 0
    while quiet < 3:
        try:
            quiet = quiet + 1 if task.poll() is None else 0
        except RetriableError:
            quiet = 0
        time.sleep(_PAUSE_S)


def _drop_slot(dsn: str, table: str) -> None:
    while True:
        try:
            _execute(
                dsn,
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{table}'",
                f"DROP PUBLICATION IF EXISTS {table}", f"DROP TABLE {table}",
            )  # fmt: skip
        except psycopg.errors.ObjectInUse:
            time.sleep(_PAUSE_S)
        else:
            return


def cases(dsn: str) -> Iterator[tuple[str, Case]]:
    """The cases by name, in the database of that address."""
    flat, columns = samples.FLAT, samples.COLUMNS
    yield "PostgresSink inserts flat structs", _sink(dsn, flat)
    yield "PostgresSink inserts columns of many types", _sink(dsn, columns)
    yield "PostgresSink upserts, new rows", _sink(dsn, flat, key="id")
    yield "PostgresSink upserts, updates", _sink(dsn, flat, key="id", updates=True)
    yield "PostgresSink upserts, uuid key", _sink(dsn, flat, key="key")
    yield "PostgresSink upserts, columns of many types", _sink(dsn, columns, key="id")
    yield "PostgresSource reads flat rows", _source(dsn, _FLAT)
    yield "PostgresSource reads columns of many types", _source(dsn, _COLUMNS)
    yield "CDC reads a snapshot", _cdc(dsn, snapshot=True)
    yield "CDC reads the log", _cdc(dsn, snapshot=False)
