"""Tests of the PostgreSQL source's task with a real server:
each mode, each boundary, and waiting for open transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError, DataError, RetriableError
from herdmesh.connect.model.data import JavaDate
from herdmesh.connect.model.schemas import INT64, OPTIONAL_STRING, STRING, Schema, timestamp_schema
from herdmesh.connect.spi.connector import ConnectorContext, SourceTaskContext
from herdmesh.connectors.postgres.source import sweep
from herdmesh.connectors.postgres.source import task as source_task
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from herdmesh.devstack.postgres import Postgres
from libs.connectors.tests.postgres.reading import Reader, config_of, rows_of, task_configs

Connection = psycopg.Connection[Any]
ORDERS = """
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    note text,
    changed timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


@pytest.fixture
def admin(tmp_database: str) -> Iterator[Connection]:
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(ORDERS)
        yield connection


def insert(connection: Connection, *names: str) -> None:
    for name in names:
        connection.execute("INSERT INTO orders (name) VALUES (%s)", (name,))


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


INCREMENTING = {"mode": "incrementing", "incrementing.column.name": "id"}
TIMESTAMP = {"mode": "timestamp", "timestamp.column.name": "changed"}
BOTH = {"mode": "timestamp+incrementing", "incrementing.column.name": "id", "timestamp.column.name": "changed"}


def test_a_table_gives_structs_with_confluents_names_and_offsets(admin: Connection, tmp_database: str) -> None:
    insert(admin, "a", "b")
    admin.execute("UPDATE orders SET changed = '2024-05-06 07:08:09.123456+00'")
    reader = Reader(config_of(tmp_database, **BOTH))
    assert reader.rows() == [
        {"id": 1, "name": "a", "note": None, "changed": JavaDate(1_714_979_289_123)},
        {"id": 2, "name": "b", "note": None, "changed": JavaDate(1_714_979_289_123)},
    ]
    (batch,) = reader.batches
    assert batch.topic == "db-orders"
    fields = [("id", INT64), ("name", STRING), ("note", OPTIONAL_STRING), ("changed", timestamp_schema())]
    assert batch.value_schema is Schema("STRUCT", name="orders", fields=fields)
    database = admin.info.dbname
    assert batch.source_partition == {"protocol": "1", "table": f"{database}.public.orders"}
    expected = {"incrementing": 2, "timestamp": 1_714_979_289_123, "timestamp_nanos": 123_456_000}
    assert batch.source_offset == expected
    assert (batch.keys, batch.key_schema) == ((), None)


@pytest.mark.parametrize("mode", [INCREMENTING, TIMESTAMP, BOTH, {"mode": "incrementing"}], ids=str)
def test_new_rows_are_read_once_by_consecutive_tasks(
    admin: Connection, tmp_database: str, mode: dict[str, str]
) -> None:
    reader = Reader(config_of(tmp_database, **mode))
    assert reader.rows() == []
    insert(admin, *"abcde")
    assert names(reader.rows(batches_max=1, records_max=2)) + names(reader.rows(records_max=3)) == [*"abcde"]
    assert reader.rows() == []
    insert(admin, "f")
    admin.execute("UPDATE orders SET name = 'B', changed = clock_timestamp() WHERE name = 'b'")
    assert names(reader.rows()) == (["f", "B"] if "timestamp" in mode["mode"] else ["f"])
    assert reader.rows() == []


def test_bulk_reads_all_rows_again_and_has_no_offset(admin: Connection, tmp_database: str) -> None:
    insert(admin, "a", "b")
    reader = Reader(config_of(tmp_database, mode="bulk", poll__interval__ms="600000"))
    assert [names(reader.rows()) for _ in range(2)] == [["a", "b"]] * 2
    assert [batch.source_offset for batch in reader.batches] == [None] * 2
    with reader.task() as task:
        reader.until(task, 2)
        assert reader.take(task) is None
        assert 0 < task.wake_after_ms() <= 600_000


def test_bulk_yields_its_slot_only_when_every_table_was_read(admin: Connection, tmp_database: str) -> None:
    """Also if the first is due again by then: the next run would begin with it again, without end."""
    admin.execute("CREATE TABLE others (id int)")
    admin.execute("INSERT INTO others VALUES (7)")
    insert(admin, "a", "b", "c")
    reader = Reader(config_of(tmp_database, mode="bulk", poll__interval__ms="1"))
    with reader.task(records_max=2) as task:
        said = list[tuple[int | None, bool]]()
        for _ in range(6):
            batch = reader.take(task)
            said.append((None if batch is None else len(batch), task.may_yield()))
    assert sorted(said[:3], key=str) == [(1, False), (1, False), (2, False)]
    assert said[3] == (None, True)
    assert [count for count, _ in said[4:]].count(None) == 0
    assert not any(may for _, may in said[4:])


def test_a_run_does_not_yield_among_rows_of_one_place(
    admin: Connection, tmp_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their first batches have the earlier place: the next run would send them again."""
    monkeypatch.setattr(sweep, "TIES_MAX", 4)
    insert(admin, *"abcdefgh")
    admin.execute("UPDATE orders SET changed = '2024-05-06' WHERE id > 1")
    admin.execute("UPDATE orders SET changed = '2024-05-05' WHERE id = 1")
    reader = Reader(config_of(tmp_database, **TIMESTAMP))
    found = list[tuple[str, bool]]()
    with reader.task(records_max=2) as task:
        while (batch := reader.take(task)) is not None:
            found.append(("".join(names(rows_of(batch))), task.may_yield()))
        assert task.may_yield()
    assert sorted("".join(text for text, _ in found)) == [*"abcdefgh"]
    assert [may for _, may in found] == [True, *[False] * (len(found) - 2), True]


def test_a_query_with_comments_and_any_clauses_is_read(admin: Connection, tmp_database: str) -> None:
    insert(admin, "a", "b%", "c")
    query = "SELECT id AS number, name FROM orders WHERE name LIKE '%%' AND id <> 1 ORDER BY 2 -- last;"
    more = {"query": query, "mode": "incrementing", "incrementing.column.name": "NUMBER"}
    reader = Reader(config_of(tmp_database, **more))
    assert reader.rows() == [{"number": 2, "name": "b%"}, {"number": 3, "name": "c"}]
    (batch,) = reader.batches
    assert (batch.topic, batch.source_partition, batch.source_offset) == (
        "db-", {"query": "query"}, {"incrementing": 3},
    )  # fmt: skip
    insert(admin, "d")
    assert names(reader.rows()) == ["d"]


def test_keys_are_columns(admin: Connection, tmp_database: str) -> None:
    insert(admin, "a", "b")
    one = Reader(config_of(tmp_database, **INCREMENTING, herdmesh__key__columns="id"))
    one.rows()
    assert ([*one.batches[0].keys], one.batches[0].key_schema) == ([1, 2], INT64)
    two = Reader(config_of(tmp_database, **INCREMENTING, herdmesh__key__columns="id, NAME"))
    two.rows()
    schema = two.batches[0].key_schema
    assert schema is Schema("STRUCT", fields=[("id", INT64), ("name", STRING)])
    assert [key.values for key in two.batches[0].keys] == [[1, "a"], [2, "b"]]


MOMENTS = st.lists(st.integers(0, 3), min_size=1, max_size=15)
RUNS_MAX = 20


@pytest.mark.parametrize("ties_max", [4, 100_000])
def test_rows_of_one_moment_are_never_lost_and_duplicated_only_beyond_the_limit(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, ties_max: int
) -> None:
    """For any moments, and a run's death after any batch."""
    monkeypatch.setattr(sweep, "TIES_MAX", ties_max)
    more = {"mode": "timestamp", "timestamp.column.name": "moment", "table.whitelist": "ties"}

    @settings(max_examples=6)
    @given(MOMENTS, st.integers(1, 4), st.integers(1, 4))
    def check(moments: list[int], records_max: int, batches_max: int) -> None:
        connection.execute("TRUNCATE ties")
        for number, moment in enumerate(moments):
            connection.execute("INSERT INTO ties VALUES (%s, %s)", (number, f"2024-01-01 00:00:0{moment}"))
        everything = [*range(len(moments))]
        undisturbed = Reader(config_of(postgres.dsn, **more)).rows(records_max=records_max)
        assert sorted(row["number"] for row in undisturbed) == everything
        dying = Reader(config_of(postgres.dsn, **more))
        found = [dying.rows(batches_max, records_max) for _ in range(RUNS_MAX)]
        numbers = [row["number"] for rows in found for row in rows]
        if ties_max > len(moments):
            assert sorted(numbers) == everything
            assert [moments[number] for number in numbers] == sorted(moments)
        elif not found[-1]:  # a run that dies repeatedly among too many rows of one moment makes no progress past them
            assert {*numbers} == {*everything}

    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE ties (number int NOT NULL, moment timestamp NOT NULL)")
        try:
            check()
        finally:
            connection.execute("DROP TABLE ties")


def test_a_lower_number_committed_later_is_waited_for(admin: Connection, tmp_database: str) -> None:
    reader = Reader(config_of(tmp_database, **INCREMENTING))
    with psycopg.connect(tmp_database) as slow, reader.task() as task:
        insert(slow, "first")  # has number 1, and is not committed
        insert(admin, "second")
        with pytest.raises(RetriableError, match=rf"can no longer commit a lower number: {slow.info.backend_pid}$"):
            reader.take(task)
        insert(slow, "third")
        insert(admin, "fourth")
        slow.commit()
        insert(admin, "fifth")
        assert names(reader.until(task, 2)) == ["first", "second"]
        assert names(reader.until(task, 3)) == ["third", "fourth", "fifth"]


STEPS = st.lists(st.tuples(st.sampled_from(["insert", "commit", "roll back", "poll"]), st.integers(0, 2)), max_size=30)


def test_every_committed_row_is_read_once_in_order_with_overlapping_writers(
    admin: Connection, tmp_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_task, "_WAIT_S", 0.0)
    writers: list[Connection] = []

    @settings(max_examples=12)
    @given(STEPS)
    def check(steps: list[tuple[str, int]]) -> None:
        admin.execute("TRUNCATE orders RESTART IDENTITY")
        reader = Reader(config_of(tmp_database, **INCREMENTING))
        read: list[int] = []
        with reader.task(records_max=3) as task:
            for step, one in [*steps, *(("commit", number) for number in range(3))]:
                if step == "insert":
                    insert(writers[one], "x")
                elif step == "commit":
                    writers[one].commit()
                elif step == "roll back":
                    writers[one].rollback()
                else:
                    with suppress(RetriableError):
                        batch = reader.take(task)
                        read += [row["id"] for row in rows_of(batch)] if batch is not None else []
            there = [number for (number,) in admin.execute("SELECT id FROM orders ORDER BY id").fetchall()]
            read += [row["id"] for row in reader.until(task, len(there) - len(read))]
            assert reader.take(task) is None
        assert read == there

    try:
        writers += [psycopg.connect(tmp_database) for _ in range(3)]
        check()
    finally:
        for one in writers:
            one.close()


def test_a_lower_number_in_a_partition_is_waited_for(admin: Connection, tmp_database: str) -> None:
    admin.execute("""
        CREATE TABLE parts (id bigserial, name text NOT NULL) PARTITION BY LIST (name);
        CREATE TABLE parts_one PARTITION OF parts FOR VALUES IN ('one');
        CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
    """)
    more = {"table.types": "TABLE,PARTITIONED TABLE", "table.whitelist": "parts,parts_one,parts_rest"}
    reader = Reader(config_of(tmp_database, **INCREMENTING, **more))
    with psycopg.connect(tmp_database) as slow, reader.task() as task:
        slow.execute("INSERT INTO parts (name) VALUES ('one')")
        admin.execute("INSERT INTO parts (name) VALUES ('one'), ('two')")
        with pytest.raises(RetriableError, match=r"public\.parts is read once .*public\.parts_one is read once"):
            reader.take(task)
        slow.rollback()
        assert sorted(names(reader.until(task, 4))) == ["one", "one", "two", "two"]


def test_a_prepared_transaction_is_waited_for(admin: Connection, tmp_database: str) -> None:
    reader = Reader(config_of(tmp_database, **INCREMENTING))
    with psycopg.connect(tmp_database) as slow, reader.task() as task:
        slow.tpc_begin(slow.xid(1, "later", "one"))
        insert(slow, "first")
        insert(admin, "second")
        with pytest.raises(RetriableError):
            reader.take(task)
        slow.tpc_prepare()
        with pytest.raises(RetriableError, match="a prepared transaction"):
            reader.take(task)
        slow.tpc_commit()
        assert names(reader.until(task, 2)) == ["first", "second"]


def test_without_the_wait_a_lower_number_is_lost(admin: Connection, tmp_database: str) -> None:
    """This shows that the wait is needed."""
    reader = Reader(config_of(tmp_database, **INCREMENTING, herdmesh__wait__for__writers="false"))
    with psycopg.connect(tmp_database) as slow:
        insert(slow, "first")
        insert(admin, "second")
        assert names(reader.rows()) == ["second"]
        slow.commit()
        assert reader.rows() == []


def test_a_timestamp_is_read_when_it_is_old_enough(admin: Connection, tmp_database: str) -> None:
    insert(admin, "old", "new", "of tomorrow")
    admin.execute("UPDATE orders SET changed = clock_timestamp() - INTERVAL '1 hour' WHERE name = 'old'")
    admin.execute("UPDATE orders SET changed = clock_timestamp() + INTERVAL '1 day' WHERE name = 'of tomorrow'")
    reader = Reader(config_of(tmp_database, **TIMESTAMP, timestamp__delay__interval__ms="600000"))
    assert names(reader.rows()) == ["old"]
    assert names(Reader(config_of(tmp_database, **TIMESTAMP)).rows()) == ["old", "new"]


@pytest.mark.parametrize(("initial", "found"), [("1704067200000", ["b", "c"]), ("-1", [])])
def test_the_start_of_timestamps_by_config(
    admin: Connection, tmp_database: str, initial: str, found: list[str]
) -> None:
    for name, changed in (("a", "2023-12-31 23:59Z"), ("b", "2024-01-02Z"), ("c", "2024-01-03Z")):
        admin.execute("INSERT INTO orders (name, changed) VALUES (%s, %s)", (name, changed))
    reader = Reader(config_of(tmp_database, **TIMESTAMP, timestamp__initial=initial))
    assert names(reader.rows()) == found
    # "Now" is stored, so rows that arrive before the next run are not skipped.
    insert(admin, "later")
    assert names(reader.rows()) == ["later"]


def test_the_first_timestamp_that_is_not_null_counts(admin: Connection, tmp_database: str) -> None:
    admin.execute("ALTER TABLE orders ADD COLUMN deleted timestamp")
    insert(admin, "a", "b")
    more = {"mode": "timestamp", "timestamp.column.name": "deleted,changed", "db.timezone": "America/New_York"}
    reader = Reader(config_of(tmp_database, **more))
    assert names(reader.rows()) == ["a", "b"]
    admin.execute("UPDATE orders SET deleted = (now() AT TIME ZONE 'America/New_York') WHERE name = 'a'")
    assert names(reader.rows()) == ["a"]
    assert reader.rows() == []


def test_many_tables_are_read_in_turn(admin: Connection, tmp_database: str) -> None:
    for table in ("t1", "t2", "t3"):
        admin.execute(
            f"CREATE TABLE {table} AS SELECT g AS id, '{table}' AS name FROM generate_series(1, 5) g".encode()
        )
        admin.execute(f"ALTER TABLE {table} ALTER id SET NOT NULL".encode())
    config = config_of(tmp_database, **INCREMENTING, table__blacklist="orders")
    first, second = (task["tables"] for task in task_configs(config, 2))
    assert ("t1" in str(first), "t2" in str(first), "t3" in str(second)) == (True, True, True)
    reader = Reader(config)
    read = reader.rows(records_max=2)
    assert sorted((row["name"], row["id"]) for row in read) == [(t, n) for t in ("t1", "t2", "t3") for n in range(1, 6)]
    assert {batch.topic for batch in reader.batches} == {"db-t1", "db-t2", "db-t3"}


def test_an_added_or_dropped_column_gives_a_new_schema(admin: Connection, tmp_database: str) -> None:
    reader = Reader(config_of(tmp_database, **INCREMENTING))
    insert(admin, "a")
    with reader.task() as task:
        assert [*reader.until(task, 1)[0]] == ["id", "name", "note", "changed"]
        admin.execute("ALTER TABLE orders ADD COLUMN more int, DROP COLUMN note")
        insert(admin, "b")
        assert [*reader.until(task, 1)[0]] == ["id", "name", "changed", "more"]
        admin.execute("DROP TABLE orders")
        assert reader.take(task) is None, "it is gone, which is nothing to fail of"
        admin.execute(ORDERS)


def test_a_broken_connection_loses_and_duplicates_nothing(admin: Connection, tmp_database: str) -> None:
    admin.execute("INSERT INTO orders (name) SELECT g::text FROM generate_series(1, 500) g")
    reader = Reader(config_of(tmp_database, **INCREMENTING))
    with reader.task(records_max=100) as task:
        rows = reader.until(task, 150)
        cut = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> %s AND backend_type = 'client backend'",
            (admin.info.backend_pid,),
        ).fetchall()
        assert (True,) in cut
        rows += reader.until(task, 500 - len(rows))
    assert [row["id"] for row in rows] == [*range(1, 501)]


@pytest.mark.postgres
async def test_a_killed_and_restarted_server_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    server = Postgres(tmp_path)
    await server.start()
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(ORDERS)
            connection.execute("INSERT INTO orders (name) SELECT g::text FROM generate_series(1, 500) g")
        reader = Reader(config_of(server.dsn, **INCREMENTING))
        with reader.task(records_max=100) as task:
            rows = reader.until(task, 150)
            server.kill()
            with pytest.raises(RetriableError, match="cannot read"):
                reader.take(task)
            with pytest.raises(RetriableError, match=r"accepts no connections now|is tried again in a second"):
                reader.take(task)
            await server.start()
            rows += reader.until(task, 500 - len(rows))
        assert [row["id"] for row in rows] == [*range(1, 501)]
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({**INCREMENTING, "incrementing.column.name": "odd"}, "incrementing.column.name"),
        ({**INCREMENTING, "incrementing.column.name": "name"}, "incrementing.column.name"),
        ({**TIMESTAMP, "timestamp.column.name": "id"}, "timestamp.column.name"),
        ({**TIMESTAMP, "timestamp.column.name": "gone"}, "timestamp.column.name"),
        ({**INCREMENTING, "herdmesh.key.columns": "odd"}, "herdmesh.key.columns"),
        ({**INCREMENTING, "query": "SELEKT"}, "query"),
        ({**INCREMENTING, "query": "SELECT 1 AS id, 2 AS id"}, "query"),
    ],
)
def test_errors_that_need_the_server_are_reported_with_the_key(
    admin: Connection, tmp_database: str, more: dict[str, str], field: str
) -> None:
    admin.execute("ALTER TABLE orders ADD COLUMN gone timestamp")  # may be null
    reader = Reader(config_of(tmp_database, **more))
    with reader.task() as task, pytest.raises(ConfigError) as caught:
        reader.take(task)
    assert caught.value.field == field
    assert reader.batches == []


def test_a_table_without_a_number_column_is_reported(admin: Connection, tmp_database: str) -> None:
    admin.execute("ALTER TABLE orders ALTER id DROP IDENTITY")
    with (
        Reader(config_of(tmp_database, mode="incrementing")).task() as task,
        pytest.raises(ConfigError, match="no serial"),
    ):
        task.poll()


def test_a_table_with_an_invalid_topic_name_is_reported_with_a_fix(admin: Connection, tmp_database: str) -> None:
    config = config_of(tmp_database, **INCREMENTING)
    before = task_configs(config)[0]
    admin.execute('CREATE TABLE "Order lines (ü)" (id serial PRIMARY KEY)')
    with pytest.raises(ConfigError) as refused:
        task_configs(config)
    assert refused.value.field == "topic.prefix"
    assert (
        "public.Order lines (ü) would go to topic \"db-Order lines (ü)\", and a topic name cannot contain ' (ü)'"
        in str(refused.value)
    )
    assert "RegexRouter" in refused.value.fix
    assert "table.blacklist" in refused.value.fix
    left_out = {**config, "table.blacklist": "Order lines (ü)"}
    assert task_configs(left_out)[0]["tables"] == before["tables"]
    renamed = {**config, "transforms": "plain"}
    (task_config,) = task_configs(renamed)
    reader = Reader(renamed)
    with reader.task():
        pass
    # a table that is created while the connector runs
    made = source_task.PostgresSourceTask()
    with pytest.raises(ConfigError, match="would go to topic"):
        made.start({**task_config, "transforms": ""}, SourceTaskContext("source", 0, 1, "run", lambda _: None))


def test_a_value_that_connect_cannot_represent_names_its_column(admin: Connection, tmp_database: str) -> None:
    admin.execute("ALTER TABLE orders ADD COLUMN price numeric(9, 2) DEFAULT 'NaN'")
    insert(admin, "a")
    reader = Reader(config_of(tmp_database, **INCREMENTING))
    with reader.task() as task, pytest.raises(DataError, match=r"column price of .*\.public\.orders: "):
        task.poll()


@pytest.mark.parametrize("mode", [INCREMENTING, TIMESTAMP, BOTH], ids=str)
def test_the_sign_changes_with_new_rows(admin: Connection, tmp_database: str, mode: dict[str, str]) -> None:
    looks = iter(range(100))

    def sign() -> str | None:
        """Signs are cached for a short time, by config."""
        (config,) = task_configs({**config_of(tmp_database, **mode), "name": f"look {next(looks)}"})
        return PostgresSourceConnector().sign(config)

    empty = sign()
    insert(admin, "a")
    before = sign()
    assert None is not empty != before
    assert sign() == before
    insert(admin, "b")
    assert sign() != before


def test_bulk_has_no_sign(admin: Connection, tmp_database: str) -> None:
    (bulk,) = task_configs(config_of(tmp_database, mode="bulk"))
    assert PostgresSourceConnector().sign(bulk) is None


def test_a_table_created_later_is_discovered(admin: Connection, tmp_database: str) -> None:
    asked = threading.Event()
    connector = PostgresSourceConnector()
    connector.context = ConnectorContext(asked.set)
    connector.start(config_of(tmp_database, **INCREMENTING, table__poll__interval__ms="20", schema__pattern="sh%"))
    try:
        assert connector.task_configs(3) == []
        admin.execute("CREATE SCHEMA shop CREATE TABLE things (id serial PRIMARY KEY)")
        assert asked.wait(60)
        (task,) = connector.task_configs(3)
        assert task["tables"] == f'[["{admin.info.dbname}","shop","things"]]'
    finally:
        connector.stop()


def test_a_view_is_read_if_configured(admin: Connection, tmp_database: str) -> None:
    admin.execute("CREATE VIEW seen AS SELECT id, name FROM orders")
    insert(admin, "a")
    reader = Reader(config_of(tmp_database, **INCREMENTING, table__types="VIEW"))
    with reader.task() as task, pytest.raises(ConfigError, match="may be null"):
        task.poll()
    more = {"table.types": "view", "validate.non.null": "false"}
    reader = Reader(config_of(tmp_database, **INCREMENTING, **more))
    assert reader.rows() == [{"id": 1, "name": "a"}]
    assert rows_of(reader.batches[0]) == [{"id": 1, "name": "a"}]
