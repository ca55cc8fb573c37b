"""Tests of upserts by direct COPY: the table is the same as after merges, whatever it had before."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connectors.postgres.sink.direct_copy import ROWS_MIN, Attempts
from libs.connectors.tests.postgres.sink_driver import Driven, ask

UPSERT: dict[str, Any] = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": "true"}
MANY = ROWS_MIN
STRAIGHT, MERGED = "orders", "pg_temp.herdmesh_stage_0"


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the target of each COPY of the sink, in order."""
    found = list[str]()
    plain = psycopg.Cursor.copy

    def copy(self: psycopg.Cursor[Any], statement: bytes, *more: Any) -> Any:
        found.append(statement.decode().split()[1])
        return plain(self, statement, *more)

    monkeypatch.setattr(psycopg.Cursor, "copy", copy)
    return found


def made(dsn: str, more: str = "", *, key: str = "PRIMARY KEY") -> None:
    ask(dsn, f"CREATE TABLE orders (id bigint {key}, note text {more})")


def write(sink: Driven, ids: Sequence[int], note: str | None = "new") -> None:
    sink.put([None if note is None else {"note": note} for _ in ids], list(ids))


def held(sink: Driven) -> dict[int, str]:
    return {row[0]: row[1] for row in sink.rows("SELECT id, note FROM orders")}


def test_new_keys_are_copied_directly_and_others_are_merged(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database)
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY), "a")
        assert copied == [STRAIGHT]
        write(sink, range(MANY - 1, 2 * MANY), "b")  # one key exists already
        assert copied[1:] == [STRAIGHT, MERGED]
        assert held(sink) == {**dict.fromkeys(range(MANY - 1), "a"), **dict.fromkeys(range(MANY - 1, 2 * MANY), "b")}
        assert (sink.ledger(), sink.reporter.reported) == (2 * MANY + 1, [])


def test_a_stream_of_updates_seldom_attempts_a_direct_copy(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database)
    batches = 40
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY), "a")
        for number in range(batches):
            write(sink, range(MANY), f"b{number}")
        assert held(sink) == dict.fromkeys(range(MANY), f"b{batches - 1}")
        assert copied[1:].count(MERGED) == batches
        assert copied[1:].count(STRAIGHT) == 4, "after 0, 4, 8 and 16 batches without"
        tried = len(copied)
        write(sink, range(MANY, 2 * MANY))
        assert copied[tried:] == [MERGED], "a batch of new keys is merged until the next attempt is due"
        assert sink.ledger() == (batches + 2) * MANY


def test_few_rows_are_merged(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database)
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY - 1))
        assert copied == [MERGED]


def test_the_last_record_of_a_repeated_key_counts(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database)
    with Driven(tmp_database, **UPSERT) as sink:
        ids = [*range(MANY), *range(MANY)]
        sink.put([{"note": str(place)} for place in range(len(ids))], ids)
        assert copied == [STRAIGHT]
        assert held(sink) == {number: str(MANY + number) for number in range(MANY)}


def test_rows_deleted_and_inserted_again_in_one_batch(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database)
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY), "a")
        values: list[Any] = [None] * MANY + [{"note": "b"}] * MANY + [None, {"note": "c"}]
        sink.put(values, [*range(MANY), *range(MANY), 0, MANY + 5])
        assert held(sink) == {**dict.fromkeys(range(1, MANY), "b"), MANY + 5: "c"}
        write(sink, range(MANY), None)
        assert held(sink) == {MANY + 5: "c"}
        assert sink.ledger() == 4 * MANY + 2
        assert STRAIGHT in copied[1:]


def test_records_with_different_columns_do_not_overwrite_each_other(tmp_database: str) -> None:
    made(tmp_database, ", n int DEFAULT 7")
    with Driven(tmp_database, **UPSERT) as sink:
        values = [{"note": "a"}] * MANY + [{"n": 1}] * MANY
        sink.put(values, [*range(MANY), *range(MANY)])
        assert set(sink.rows("SELECT note, n FROM orders")) == {("a", 1)}
        sink.put(values, [*range(MANY, 2 * MANY), *range(2 * MANY, 3 * MANY)])
        assert set(sink.rows("SELECT note, n FROM orders WHERE id >= 200")) == {("a", 7), (None, 1)}


def test_a_second_unique_constraint_refuses_the_same_records_as_a_merge(tmp_database: str, copied: list[str]) -> None:
    made(tmp_database, "UNIQUE")
    with Driven(tmp_database, **UPSERT) as sink:
        values = [{"note": str(number)} for number in range(MANY)]
        values[7] = {"note": "5"}
        sink.put(values, list(range(MANY)))
        assert copied[:2] == [STRAIGHT, MERGED]
        assert held(sink) == {number: str(number) for number in range(MANY) if number != 7}
        assert [offset for offset, _ in sink.reporter.reported] == [7]
        assert "orders_note_key" in sink.reporter.reported[0][1]
        assert sink.ledger() == MANY


def test_bad_values_cost_one_record_each(tmp_database: str) -> None:
    made(tmp_database, "CHECK (note <> 'bad')")
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([{"note": "bad" if number in (3, 90) else "good"} for number in range(MANY)], list(range(MANY)))
        assert [offset for offset, _ in sink.reporter.reported] == [3, 90]
        assert len(held(sink)) == MANY - 2


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_key_that_another_session_inserts_is_waited_for_and_updated(
    tmp_database: str, copied: list[str], is_ended: bool
) -> None:
    """`is_ended`: the server ends the session that waits within its COPY. Nothing of it stays."""
    made(tmp_database)
    with psycopg.connect(tmp_database) as other, Driven(tmp_database, **UPSERT) as sink:
        other.execute("INSERT INTO orders VALUES (100, 'other'), (-1, 'other')")
        batch = sink.batch([{"note": "ours"}] * MANY, list(range(MANY)))
        with ThreadPoolExecutor(1) as threads, psycopg.connect(tmp_database, autocommit=True) as watching:
            writing = threads.submit(sink.task.put, batch)
            waiting = "FROM pg_stat_activity WHERE wait_event = 'transactionid' AND query LIKE 'COPY%'"
            while not watching.execute(f"SELECT {waiting}".encode()).rowcount:
                assert not writing.done()
            if is_ended:
                watching.execute(f"SELECT pg_terminate_backend(pid) {waiting}".encode())
                with pytest.raises(RetriableError):
                    writing.result()
            other.commit()
            writing = writing if not is_ended else threads.submit(sink.task.put, batch)
            writing.result()
        assert copied == [STRAIGHT] * (1 + is_ended) + [MERGED]
        assert held(sink) == {-1: "other", **dict.fromkeys(range(MANY), "ours")}
        assert sink.ledger() == MANY


def test_a_table_for_direct_copy_may_have_columns_of_any_type(tmp_database: str, copied: list[str]) -> None:
    ask(tmp_database, "CREATE DOMAIN word AS text NOT NULL; CREATE TYPE pair AS (a int, b int)")
    made(tmp_database, ", w word, p pair, many int[], short varchar(3), n numeric(4, 2), at timestamptz, doc jsonb")
    row = {"w": "x", "p": "(1,2)", "many": [1], "short": "abc", "n": 1.25, "at": "2024-02-29 13:00Z", "doc": {"x": 1}}
    with Driven(tmp_database, **UPSERT) as sink:
        sink.put([row] * MANY, list(range(MANY)))
        assert copied == [STRAIGHT]
        assert sink.rows("SELECT count(*), w, (p).b, many[1], short, doc FROM orders GROUP BY 2, 3, 4, 5, 6") == [
            (MANY, "x", 2, 1, "abc", {"x": 1})
        ]


def test_nothing_is_written_without_the_unique_index(tmp_database: str) -> None:
    """Also if it is dropped while the sink writes."""
    made(tmp_database)
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY))
        ask(tmp_database, "ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        with pytest.raises(ConfigError, match="no unique or exclusion constraint"):
            write(sink, range(MANY))
        assert len(sink.rows("SELECT id FROM orders")) == MANY


def test_a_user_with_insert_and_without_update_is_refused_at_once(tmp_database: str) -> None:
    ask(tmp_database, "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    made(tmp_database)
    with Driven(tmp_database):
        pass
    ask(
        tmp_database,
        "GRANT SELECT, INSERT, UPDATE, DELETE ON herdmesh_ledger TO plain; GRANT INSERT ON orders TO plain",
    )
    with (
        Driven(tmp_database, connection_user="plain", **UPSERT) as sink,
        pytest.raises(ConfigError, match="permission denied"),
    ):
        write(sink, range(MANY))
    assert not ask(tmp_database, "SELECT id FROM orders")


TOLD = (
    "CREATE TABLE told (what text); CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO told VALUES (TG_OP); RETURN NULL; END $$; "
    "CREATE TRIGGER tell AFTER INSERT OR UPDATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION tell()"
)
OTHERS: dict[str, str] = {
    "triggers": f"CREATE TABLE orders (id bigint PRIMARY KEY, note text); {TOLD}",
    "partitions": "CREATE TABLE orders (id bigint PRIMARY KEY, note text) PARTITION BY HASH (id); "
    "CREATE TABLE part PARTITION OF orders FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    "a view": "CREATE TABLE rows (id bigint PRIMARY KEY, note text); CREATE VIEW orders AS SELECT * FROM rows",
}


@pytest.mark.parametrize("made_by", OTHERS.values(), ids=OTHERS)
def test_views_partitioned_tables_and_tables_with_triggers_are_merged(
    tmp_database: str, copied: list[str], made_by: str
) -> None:
    ask(tmp_database, made_by)
    with Driven(tmp_database, **UPSERT) as sink:
        write(sink, range(MANY))
        assert copied == [MERGED]
        assert len(held(sink)) == MANY
    if "TRIGGER" in made_by:
        assert sorted(ask(tmp_database, "SELECT what FROM told")) == [("INSERT",), ("UPDATE",)]


def test_inserts_obey_a_tables_rules(tmp_database: str) -> None:
    ask(
        tmp_database,
        "CREATE TABLE orders (id bigint, note text); CREATE TABLE log (id bigint); "
        "CREATE RULE logged AS ON INSERT TO orders DO ALSO INSERT INTO log VALUES (NEW.id)",
    )
    with Driven(tmp_database) as sink:
        sink.put([{"id": 1, "note": "a"}])
        assert sink.rows("SELECT id FROM orders UNION ALL SELECT id FROM log") == [(1,), (1,)]


def test_rows_get_their_serial_numbers_in_the_order_of_the_records(tmp_database: str) -> None:
    made(tmp_database, ", number serial")
    with Driven(tmp_database, **UPSERT) as sink:
        ids = [5, 3, 9, 1]
        write(sink, ids)
        assert [row[0] for row in sink.rows("SELECT id FROM orders ORDER BY number")] == ids
        many = list(range(10 + MANY, 10, -1))
        write(sink, many)
        assert [row[0] for row in sink.rows("SELECT id FROM orders WHERE id > 10 ORDER BY number")] == many


def test_attempts_are_rarer_after_each_failure_and_reset_by_a_success() -> None:
    attempts = Attempts()

    def until_due() -> int:
        merged = 0
        while not attempts.due("a"):
            merged += 1
        return merged

    merged: list[int] = []
    for _ in range(7):
        merged.append(until_due())
        assert attempts.failed("a", errors.UniqueViolation())
        assert attempts.due("b"), "each topic by itself"
    assert merged == [0, 4, 8, 16, 32, 64, 64]
    until_due()
    attempts.succeeded("a")
    assert until_due() == 0
    assert not attempts.failed("a", errors.CheckViolation()), "a merge would fail, too"
    assert until_due() == 0
