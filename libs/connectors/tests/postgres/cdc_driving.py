"""Driver of a CDC task and its database in tests: the
task is polled like in the record loop, without Kafka.

Owns no test. Invariant: all objects that a test created in the server, beyond its database, are gone after it.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import conninfo

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.spi.connector import SourceBatch, SourceTaskContext
from herdmesh.connectors.postgres.cdc.position import lsn_of
from herdmesh.connectors.postgres.cdc.settings import PREFIX
from herdmesh.connectors.postgres.cdc.task import CdcSourceTask
from libs.connectors.tests.postgres.replicated import plain

WAIT_S = 30.0
Event = tuple[str, Any, Any, Any]
"""Operation (also `tombstone` and `heartbeat`), key, before and after, all as plain Python."""


class Database:
    """A test's own database, with one slot and publication of its connector."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.slot = "cdc_" + hashlib.sha256(dsn.encode()).hexdigest()[:20]
        self.connection = psycopg.connect(dsn, autocommit=True)

    def run(self, *statements: str) -> None:
        """Run each statement in its own transaction."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self.connection.execute(question.encode()).fetchall()

    def config(self, **more: str) -> dict[str, str | None]:
        """Return a config like one for Debezium; `_` in names stands for a dot."""
        found = conninfo.conninfo_to_dict(self.dsn)
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": str(found["host"]),
            "database.port": str(found["port"]),
            "database.user": str(found["user"]),
            "database.dbname": str(found["dbname"]),
            "plugin.name": "pgoutput",
            "topic.prefix": "app",
            "slot.name": self.slot,
            "publication.autocreate.mode": "filtered",
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def confirmed(self) -> int:
        """Return the confirmed position of the slot."""
        ((lsn,),) = self.rows(
            f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name='{self.slot}'"
        )
        return lsn_of(lsn)

    def slots(self) -> list[str]:
        """Return the names of all slots of this database."""
        return [name for (name,) in self.rows("SELECT slot_name FROM pg_replication_slots WHERE database="
                                              "current_database() ORDER BY 1")]  # fmt: skip

    def released(self) -> None:
        """Wait until the server shows that nobody uses the slots any more."""
        question = "SELECT FROM pg_replication_slots WHERE database = current_database() AND (active OR temporary)"
        deadline_s = time.monotonic() + WAIT_S
        while self.rows(question):
            assert time.monotonic() < deadline_s, "a slot stays in use"
            time.sleep(0.02)

    def drop_slots(self) -> None:
        """Drop all slots, in use or not."""
        deadline_s = time.monotonic() + WAIT_S
        while names := self.slots():
            assert time.monotonic() < deadline_s, f"slots stay: {names}"
            self.run(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE database=current_database() AND active_pid IS NOT NULL"
            )
            try:
                self.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                         "WHERE database=current_database() AND NOT temporary")  # fmt: skip
            except psycopg.errors.ObjectInUse:
                time.sleep(0.02)

    def close(self) -> None:
        self.drop_slots()
        self.connection.close()


@dataclass
class Driven:
    """A run of the task. `offset` is that of the last batch it handed over."""

    config: Mapping[str, str | None]
    offset: Mapping[str, Any] | None = None
    connector: str = "cdc"
    batches: list[SourceBatch] = field(default_factory=list[SourceBatch])

    def __post_init__(self) -> None:
        first = self.offset

        def committed(partition: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
            assert partition == {"server": self.config[PREFIX]}
            return first

        self.task = CdcSourceTask()
        self.task.start(self.config, SourceTaskContext(self.connector, 0, 1, uuid.uuid4().hex, committed))

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *_: object) -> None:
        self.task.stop()

    def poll(self) -> SourceBatch | None:
        """Return the next batch; None = there is none. Polls again like the record loop if the task requests it."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                batch = self.task.poll()
            except RetriableError as error:
                if time.monotonic() > deadline_s:
                    raise AssertionError("polled without end") from error
                time.sleep(0.02)
            else:
                return self._took(batch)

    def poll_until_it_fails(self) -> None:
        """Poll until the task raises, and raise its error."""
        while True:
            self._took(self.task.poll())

    def _took(self, batch: SourceBatch | None) -> SourceBatch | None:
        if batch is not None:
            self.offset = batch.source_offset
            self.batches.append(batch)
        return batch

    def next(self) -> SourceBatch:
        """Return the next batch, however late the server sends it."""
        deadline_s = time.monotonic() + WAIT_S
        while (batch := self.poll()) is None:
            assert time.monotonic() < deadline_s, "nothing more came"
        return batch

    def drain(self, *, commits: bool = True) -> list[Event]:
        """Return all events up to the end of the server's log at the first empty poll. (An empty poll alone does not
        show the end, because a busy server sends later.)
        """
        before = len(self.batches)
        deadline_s = time.monotonic() + WAIT_S
        end: int | None = None
        while True:
            if self.poll() is not None:
                if commits:
                    self.task.commit()
                continue
            reached = self._reached()
            if reached is None:
                break
            if end is None:
                end = self._end_of_log()
            if reached >= end:
                break
            assert time.monotonic() < deadline_s, f"read up to {reached}, and the log ends at {end}"
        return events_of(self.batches[before:])

    def _reached(self) -> int | None:
        """Return the log position before which everything was handed over; None = the task reads no log."""
        assembler = self.task._assembler  # pyright: ignore[reportPrivateUsage]
        return None if assembler is None else assembler.position.lsn

    def _end_of_log(self) -> int:
        config = self.config
        dsn = conninfo.make_conninfo(
            host=config["database.hostname"], port=config["database.port"],
            user=config["database.user"], dbname=config["database.dbname"],
        )  # fmt: skip
        with psycopg.connect(dsn) as connection:
            ((lsn,),) = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        return lsn_of(lsn)


def events_of(batches: list[SourceBatch]) -> list[Event]:
    """Return the records of batches, in order."""
    found: list[Event] = []
    for batch in batches:
        keys = batch.keys or [None] * len(batch)
        for key, value in zip(keys, batch.values, strict=True):
            event = plain(value)
            if event is None:
                found.append(("tombstone", plain(key), None, None))
            elif "op" not in event:
                found.append(("heartbeat", plain(key), None, event["ts_ms"]))
            else:
                found.append((event["op"], plain(key), event["before"], event["after"]))
    return found
