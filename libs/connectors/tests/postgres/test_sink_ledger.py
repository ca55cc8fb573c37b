"""Tests of the ledger of a PostgreSQL sink: consecutive
owners, broken or hanging sessions, altered offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from psycopg import errors

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RetriableError
from herdmesh.connectors.postgres.sink import task
from herdmesh.connectors.postgres.sink.connector import PostgresSink
from herdmesh.connectors.postgres.sink.ledger import session_name
from herdmesh.engine.runtime.errors import LedgerTaken, TaskFailed
from herdmesh.engine.sink.sql_ledger import SqlLedger
from libs.connectors.tests.postgres.sink_driver import CONNECTOR, Driven, ask, sink_config
from libs.core.tests.engine.ledger_story import RECORDS, STEPS, Busy, Step, Story
from tests.support.sizes import soak_or


class _Session:
    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("SET lock_timeout = '10ms'")

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        try:
            return self._connection.execute(statement.encode(), parameters)
        except errors.LockNotAvailable as error:
            raise Busy from error

    def close(self) -> None:
        self._connection.close()


class PostgresTarget:
    """A database with a ledger."""

    ledger, rows, marker = "ledger", "written", "%s"
    gone = (psycopg.OperationalError,)

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        session = self.connect()
        session.execute(SqlLedger(session.execute, self.ledger, "", "").definition)
        session.execute(f"CREATE TABLE IF NOT EXISTS {self.rows} (name text, at bigint)")
        session.close()

    def connect(self) -> _Session:
        return _Session(self._dsn)


@given(records=RECORDS, steps=STEPS)
@settings(max_examples=soak_or(25, 1_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_owners_do_each_record_is_written_once(
    tmp_database: str, records: list[tuple[int, bool]], steps: list[Step]
) -> None:
    """Transactions of several owners are open at the same time, and commit, fail or break in any order."""
    Story.of(PostgresTarget(tmp_database), records).tell(steps)


def values(*ids: int) -> list[dict[str, int]]:
    return [{"id": number} for number in ids]


@pytest.fixture
def database(tmp_database: str) -> str:
    ask(tmp_database, "CREATE TABLE orders (id int)")
    return tmp_database


def written(dsn: str) -> list[int]:
    return [row[0] for row in ask(dsn, "SELECT id FROM orders ORDER BY id")]


def test_a_superseded_owner_writes_nothing(database: str) -> None:
    """1. a is suspended. 2. b takes over, which ends a's session, and writes. 3. a resumes with its next
    batch.
    """
    with Driven(database) as stale:
        stale.put(values(0, 1))
        batch = stale.batch(values(2, 3))
        with Driven(database) as owner:
            assert owner.next == 2
            with pytest.raises(RetriableError, match="terminating connection"):
                stale.task.put(batch)
            with pytest.raises(LedgerTaken, match=f"taken over by {owner.run_id}"):
                stale.task.put(batch)
            owner.put(values(2, 3, 4))
            with pytest.raises(LedgerTaken):
                stale.task.advance({("orders", 0): 9})
    assert written(database) == [0, 1, 2, 3, 4]


def test_the_next_owner_ends_a_hanging_transaction(database: str) -> None:
    with Driven(database) as first:
        first.put(values(0))
    name = session_name(first.run_id)
    with psycopg.connect(database, application_name=name) as frozen:
        frozen.execute("UPDATE herdmesh_ledger SET next_offset = 5")
        frozen.execute("INSERT INTO orders VALUES (1)")
        with Driven(database) as owner:
            assert owner.next == 1
            owner.put(values(1))
        with pytest.raises(psycopg.OperationalError):
            frozen.commit()
    assert written(database) == [0, 1]


def test_a_repeated_batch_is_written_once(database: str) -> None:
    """As after a commit with an unknown outcome, or one that failed."""
    with Driven(database) as sink:
        batch = sink.put(values(0, 1))
        sink.task.put(batch)
        sessions = "pg_stat_activity WHERE application_name LIKE 'herdmesh-%'"
        ended = ask(database, f"SELECT pg_terminate_backend(pid, 30000) FROM {sessions}")  # waits for their ends
        assert ended == [(True,)]
        batch = sink.batch(values(2))
        with pytest.raises(RetriableError):
            sink.task.put(batch)
        sink.task.put(batch)
        sink.task.put(batch)
        sink.put(values(3))
    assert written(database) == [0, 1, 2, 3]


def test_a_restored_target_gets_the_records_again(database: str) -> None:
    with Driven(database) as sink:
        sink.put(values(0, 1, 2))
        ask(database, "UPDATE herdmesh_ledger SET next_offset = 1; DELETE FROM orders WHERE id > 0")
        with pytest.raises(TaskFailed, match="stands at 1, where this run had left it at 3") as failed:
            sink.put(values(3))
        assert failed.value.error_class is ErrorClass.RETRIABLE
    with Driven(database) as sink:
        assert sink.next == 1


def test_a_wait_for_a_locked_row_times_out_and_is_retried(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of a session that is no run: the task retries, and can receive a stop command."""
    monkeypatch.setattr(task, "LOCK_TIMEOUT", b"SET lock_timeout = '10ms'")
    with Driven(database) as sink, psycopg.connect(database) as other:
        other.execute("UPDATE herdmesh_ledger SET next_offset = 0")
        batch = sink.batch(values(0))
        with pytest.raises(RetriableError, match="lock timeout"):
            sink.task.put(batch)
        other.rollback()
        sink.task.put(batch)
    assert written(database) == [0]


def test_retries_are_limited_by_the_config() -> None:
    sink = Driven("postgresql://nobody@127.0.0.1:1/none", max_retries="2")
    for _ in range(2):
        with pytest.raises(RetriableError, match="accepts no connections now"):
            sink.take()
    with pytest.raises(TaskFailed, match="tried 3 times") as failed:
        sink.take()
    assert failed.value.error_class is ErrorClass.RETRIABLE


def test_offsets_are_altered_in_the_ledger(database: str) -> None:
    with Driven(database) as sink:
        sink.put(values(0, 1, 2))
        PostgresSink().alter_offsets(sink_config(database), {("orders", 0): 1, ("orders", 1): 7})
        with pytest.raises(RetriableError):
            sink.put(values(3))
    with Driven(database) as sink:
        assert sink.next == 1
        assert sink.task.claim([("orders", 1)]) == {("orders", 1): 7}
    assert PostgresSink().alter_offsets(sink_config(database), dict.fromkeys([("orders", 0)]))
    assert ask(database, f"SELECT * FROM herdmesh_ledger WHERE connector = '{CONNECTOR}'") == []
