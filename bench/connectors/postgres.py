"""The job "a topic into a table of PostgreSQL": ours, and each way of the sink on Java's side.

Owns the configs, the table, which is the same for all, and the checks of it. The records are those of `bench.records`,
as JSON with their schema, which every sink for databases can read. Java's is Debezium's.

Invariant: a timing is given only for a run whose table was checked: every record once, each field as it was sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg
from confluent_kafka.admin import AdminClient

from bench.connectors.jobs import GOAL
from bench.records import moving, workload
from bench.records.moving import Moved, Place
from bench.sides import Side
from bench.usage import cpu_s
from herdmesh.devstack.ports import HOST
from herdmesh.devstack.postgres import USER, Postgres

SETTINGS = {
    "shared_buffers": "512MB",
    "wal_level": "replica",
    # timed work of the server would add to one side's time
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "16GB",
}
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_AT_ONCE = "5000"
"""Records per poll, and per batch."""
_PAUSE_S = 0.01
COLUMNS = (
    "id bigint PRIMARY KEY, name text NOT NULL, email text NOT NULL, amount double precision NOT NULL, "
    "ts bigint NOT NULL, note text NOT NULL"
)
_AS_SENT = (
    "name = 'user' || id % 1000 AND email = 'user' || id || '@example.com' AND amount = id * 0.01::double precision "
    "AND ts = 1700000000000 + id AND note = 'the quick brown fox jumps over the lazy dog'"
)


@dataclass(frozen=True, slots=True)
class Loaded(Moved):
    """The result of a run, with the processor time of the database server."""

    server_cpu_s: float

    @property
    def server_per_million_s(self) -> float:
        """Seconds of the server's processor time for a million records."""
        return self.server_cpu_s / self.records * 1e6


@dataclass(frozen=True, slots=True)
class TableJob:
    """A row of the table."""

    name: str
    figure: str
    insert_mode: str
    tasks: tuple[int, ...]
    goal: float = GOAL


JOBS = (
    TableJob("postgres", "topic -> PostgreSQL, insert", "insert", (1, 2)),
    TableJob("postgres-upsert", "topic -> PostgreSQL, upsert", "upsert", (1,)),
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of a side to do it."""

    label: str
    own: Mapping[str, str]
    """Its settings that are the same for every job."""
    is_java: bool

    def config(self, job: TableJob, table: str, tasks: int, port: int) -> dict[str, str]:
        """The connector's config, into that table of the server at that port."""
        return {
            **self.own,
            **(_debezium if self.is_java else _ours)(job, table, f"jdbc:postgresql://{HOST}:{port}/postgres"),
            "tasks.max": str(tasks),
            "topics": workload.SCHEMA_TOPIC,
            "insert.mode": job.insert_mode,
            "batch.size": _AT_ONCE,
            "consumer.override.max.poll.records": _AT_ONCE,
            "key.converter": _STRING,
            "value.converter": _JSON,
            "value.converter.schemas.enable": "true",
        }


_UNNEST = "dialect.postgres.unnest.insert.enabled"
OURS = Way("herdmesh", {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector"}, is_java=False)
JAVAS = (
    Way("Debezium", {_UNNEST: "false"}, is_java=True),
    Way("Debezium with unnest", {_UNNEST: "true"}, is_java=True),
)


def _ours(job: TableJob, table: str, url: str) -> dict[str, str]:
    keyed = {"pk.mode": "record_value", "pk.fields": "id"} if job.insert_mode == "upsert" else {}
    return {"connection.url": url, "connection.user": USER, "table.name.format": table, **keyed}


def _debezium(job: TableJob, table: str, url: str) -> dict[str, str]:
    keyed = {"primary.key.mode": "record_value", "primary.key.fields": "id"} if job.insert_mode == "upsert" else {}
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        # many rows in one statement of the driver
        "connection.url": f"{url}?reWriteBatchedInserts=true",
        "connection.username": USER,
        "connection.password": "none",
        "collection.name.format": table,
        **keyed,
    }


async def load(side: Side, way: Way, job: TableJob, tasks: int, name: str, place: Place, server: Postgres) -> Loaded:
    """Run the job under that name into a table of its own, and check the table. Raises AssertionError for a wrong
    table.
    """
    table = name.replace("-", "_")
    await asyncio.to_thread(_execute, server.dsn, f"CREATE TABLE {table} ({COLUMNS})", "CHECKPOINT")
    lasts = await asyncio.to_thread(_last_ids, place.bootstrap)
    used_s = cpu_s(_processes(server))
    moved = await moving.timed(
        side, name, way.config(job, table, tasks, server.port), place,
        lambda begun_s: _rows(server.dsn, table, lasts, place, begun_s),
    )  # fmt: skip
    used_s = cpu_s(_processes(server)) - used_s
    await asyncio.to_thread(check_table, server.dsn, table, place.records)
    await asyncio.to_thread(_execute, server.dsn, f"DROP TABLE {table}")
    return Loaded(moved.records, moved.first_s, moved.last_s, moved.cpu_s, used_s)


def check_table(dsn: str, table: str, records: int) -> None:
    """Assert that every record is one row of the table, as it was sent. Raises AssertionError."""
    query = f"SELECT count(*), count(*) FILTER (WHERE {_AS_SENT}), min(id), max(id) FROM {table}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(query.encode()).fetchone()
    assert found == (records, records, 0, records - 1), f"{table} has rows, right rows, first, last: {found}"


def _last_ids(bootstrap: str) -> list[int]:
    """The id of each partition's last record: a task writes a partition in order."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    found: list[int] = []
    for partition, end in enumerate(moving.ends(admin, workload.SCHEMA_TOPIC, workload.PARTITIONS)):
        if end:
            (last,) = workload.committed(bootstrap, workload.SCHEMA_TOPIC, end - 1, partition)
            found.append(int(last.key() or b""))
    return found


def _rows(dsn: str, table: str, lasts: Sequence[int], place: Place, begun_s: float) -> tuple[float, float]:
    """Query the last record of each partition until all are in the table. Blocking."""
    query = f"SELECT count(*), exists(SELECT FROM {table}) FROM {table} WHERE id = ANY (%s)".encode()
    first_s = 0.0
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        # a table that grows this fast has no statistics yet: avoid reading all of it
        connection.execute("SET enable_seqscan = off")
        while True:
            there, has_rows = connection.execute(query, (list(lasts),)).fetchone() or (0, False)
            now_s = time.monotonic() - begun_s
            if has_rows and not first_s:
                first_s = now_s
            if there == len(lasts):
                return first_s, now_s
            moving.check_time(begun_s, there, place)
            time.sleep(_PAUSE_S)


def _execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _processes(server: Postgres) -> list[psutil.Process]:
    """The server's processes. The time of a session that ended is counted in the children of the first process."""
    assert server.pid is not None
    first = psutil.Process(server.pid)
    return [first, *first.children(recursive=True)]
