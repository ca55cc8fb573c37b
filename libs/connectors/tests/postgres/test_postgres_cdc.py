"""Tests of the CDC source with a real PostgreSQL: snapshot and stream, cut anywhere, with changes of tables, slot and
server. `test_postgres_cdc_delivery` adds Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.devstack.postgres import Postgres
from herdmesh.engine.runtime.errors import OffsetsLost
from libs.connectors.tests.postgres.cdc_driving import WAIT_S, Database, Driven, events_of
from libs.connectors.tests.postgres.replicated import plain


@pytest.fixture
def database(tmp_database: str) -> Iterator[Database]:
    made = Database(tmp_database)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def items(database: Database) -> Database:
    """Create a table `items` of 30 rows."""
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, text text)",
        "INSERT INTO items SELECT i, 'row ' || i FROM generate_series(1, 30) i",
    )
    return database


def row(number: int, text: str | None = None) -> dict[str, Any]:
    return {"id": number, "text": f"row {number}" if text is None else text}


def read_of(number: int) -> tuple[str, Any, Any, Any]:
    return "r", {"id": number}, None, row(number)


def test_nothing_is_lost_or_duplicated_between_snapshot_and_stream(items: Database) -> None:
    with Driven(items.config(max_batch_size="10")) as run:
        run.poll()
        items.run(
            "INSERT INTO items VALUES (31, 'new')",
            "UPDATE items SET text = 'changed' WHERE id = 30",  # not read yet
            "DELETE FROM items WHERE id = 1",  # read already
        )
        assert run.drain() == [
            *map(read_of, range(11, 31)),
            ("c", {"id": 31}, None, row(31, "new")),
            ("u", {"id": 30}, None, row(30, "changed")),
            ("d", {"id": 1}, {"id": 1, "text": None}, None),
            ("tombstone", {"id": 1}, None, None),
        ]
        offsets = [batch.source_offset or {} for batch in run.batches]
        assert [offset.get("snapshot") for offset in offsets[:4]] == [True, True, None, None]
        assert len({offset["lsn_commit"] for offset in offsets[:3]}) == 1
        snapshot = [plain(value)["source"]["snapshot"] for batch in run.batches[:3] for value in batch.values]
        assert snapshot == ["true"] * 29 + ["last"]
        items.run("INSERT INTO items VALUES (32, 'later')")
    with Driven(items.config(), run.offset) as later:
        assert later.drain() == [("c", {"id": 32}, None, row(32, "later"))]
    assert items.slots() == [items.slot]


def test_an_interrupted_snapshot_is_repeated_and_later_deletions_are_sent(items: Database) -> None:
    with Driven(items.config(max_batch_size="10")) as run:
        run.poll()
        assert not run.task.may_yield(), "not for a task that waits: the next run would be cut as short"
    items.run("DELETE FROM items WHERE id = 1", "INSERT INTO items VALUES (31, 'new')")
    with Driven(items.config(), run.offset) as again:
        events = again.drain()
        assert again.task.may_yield()
    assert events[:30] == [*map(read_of, range(2, 31)), ("r", {"id": 31}, None, row(31, "new"))]
    assert sorted(events[30:]) == [
        ("c", {"id": 31}, None, row(31, "new")),
        ("d", {"id": 1}, {"id": 1, "text": None}, None),
        ("tombstone", {"id": 1}, None, None),
    ]


def test_a_table_rewritten_during_the_snapshot_restarts_it(items: Database) -> None:
    items.run("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later VALUES (1)")
    with Driven(items.config(max_batch_size="10")) as run:
        run.poll()
        items.run("ALTER TABLE later ALTER id TYPE bigint")  # its rows are now invisible to the snapshot
        events = run.drain()
    assert [event[1] for event in events if event[3] is not None and "text" not in event[3]] == [{"id": 1}]


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
def test_a_run_cut_within_a_transaction_continues_within_it(items: Database, batches: int) -> None:
    items.run("CREATE TABLE other (id int PRIMARY KEY)")
    with Driven(items.config(snapshot_mode="never")) as first:
        first.drain()
    with items.connection.transaction():
        for number in range(20):
            items.run(f"INSERT INTO other VALUES ({number})", f"DELETE FROM items WHERE id = {number + 1}")
    items.run("INSERT INTO other VALUES (20)")
    config = items.config(max_batch_size="16")
    with Driven(config, first.offset) as cut:
        for _ in range(batches):
            cut.next()
    with Driven(config, cut.offset) as rest:
        rest.drain()
    events = events_of(cut.batches + rest.batches)
    assert sorted(key["id"] for op, key, _, _ in events if op == "c") == list(range(21))
    for operation in ("d", "tombstone"):
        assert [key["id"] for op, key, _, _ in events if op == operation] == list(range(1, 21))


def test_the_slot_moves_only_after_records_are_committed(items: Database) -> None:
    with Driven(items.config()) as run:
        run.drain(commits=False)
        before = items.confirmed()
        items.run("INSERT INTO items VALUES (31, 'new')")
        run.drain(commits=False)
        assert items.confirmed() == before
        run.task.commit()
        assert run.offset is not None
        committed: int = run.offset["lsn_commit"]
        _until(lambda: items.confirmed() == committed)


def _until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_heartbeats_move_an_idle_databases_slot(items: Database) -> None:
    items.run("CREATE TABLE unseen (id int)")
    with Driven(items.config(table_include_list=r"public\.items", heartbeat_interval_ms="50")) as run:
        while events_of(run.batches)[-1:] == [] or events_of(run.batches)[-1][0] != "heartbeat":
            run.poll()
        run.task.commit()
        assert run.batches[-1].topic == "__debezium-heartbeat.app"
        items.run("INSERT INTO unseen VALUES (1)")
        ((wanted,),) = items.rows("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")

        def moved() -> bool:
            run.poll()
            run.task.commit()
            return items.confirmed() >= wanted

        _until(moved)
    assert {event[0] for event in events_of(run.batches)} == {"r", "heartbeat"}


EVERY_TYPE = {
    "id bigint PRIMARY KEY": ("1", 1),
    "i2 smallint": ("-5", -5),
    "f4 real": ("1.5", 1.5),
    "n numeric": ("12345678901234567890.123", {"scale": 3, "value": (12345678901234567890123).to_bytes(10)}),
    "n2 numeric(10,2)": ("1.50", Decimal("1.50")),
    "money money": ("12.34", Decimal("12.34")),
    "b boolean": ("true", True),
    "t text": ("'tab\there\nü \\ N'", "tab\there\nü \\ N"),
    "c char(4)": ("'ab'", "ab  "),
    "by bytea": ("'\\x00ff10'", b"\0\xff\x10"),
    "d date": ("'0044-03-15 BC'", -735_160),
    "ti time(3)": ("'01:02:03.004'", 3_723_004),
    "tz timetz": ("'12:34:56.5+02'", "10:34:56.5Z"),
    "ts timestamp": ("'1970-01-02 00:00:00.000001'", 86_400_000_001),
    "tstz timestamptz": ("'2026-11-22 13:00:00.5+02'", "2026-11-22T11:00:00.5Z"),
    "iv interval": ("'1 day -00:00:01'", 86_399_000_000),
    "u uuid": ("'6f1c2a34-1111-2222-3333-444455556666'", "6f1c2a34-1111-2222-3333-444455556666"),
    "jb jsonb": ("'{\"b\": [1, null]}'", '{"b": [1, null]}'),
    "m mood": ("'happy'", "happy"),
    "p positive": ("7", 7),
    "pair pair": ("'(1,\"x,y\")'", '(1,"x,y")'),
    "ar int[]": ("'{1,NULL,3}'", [1, None, 3]),
    "ta text[]": ("ARRAY['a,b', 'q\"u', NULL, '', E'\\\\', '{']", ["a,b", 'q"u', None, "", "\\", "{"]),
    "na numeric(6,1)[]": ("'{1.5}'", [Decimal("1.5")]),
    "ma mood[]": ("'{sad}'", ["sad"]),
    "inet inet": ("'10.0.0.1/8'", "10.0.0.1/8"),
    "bt bit(10)": ("B'1000000001'", b"\x01\x02"),
    "pt point": ("'(1.5,-2)'", {"x": 1.5, "y": -2.0, "srid": None,
                                "wkb": bytes.fromhex("0101000000000000000000f83f00000000000000c0")}),
    "nothing text": ("NULL", None),
    '"Odd ""Name" int': ("1", 1),
}  # fmt: skip


def test_every_type_is_equal_in_snapshot_and_stream(database: Database) -> None:
    names = [
        column.rsplit(" PRIMARY KEY", 1)[0].rsplit(" ", 1)[0].strip('"').replace('""', '"') for column in EVERY_TYPE
    ]
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE types ({', '.join(EVERY_TYPE)}, made int GENERATED ALWAYS AS (i2 * 2) STORED)",
        f"INSERT INTO types VALUES ({', '.join(text for text, _ in EVERY_TYPE.values())})",
    )
    wanted = dict(zip(names, (value for _, value in EVERY_TYPE.values()), strict=True))
    # These settings of the database or the user change the form of texts.
    database.run(f'ALTER DATABASE "{database.connection.info.dbname}" SET datestyle = \'German\'',
                 "ALTER ROLE CURRENT_USER SET intervalstyle = 'sql_standard'")  # fmt: skip
    try:
        with Driven(database.config()) as run:
            ((_, key, _, read),) = run.drain()
            database.run("UPDATE types SET id = 2")
            _, (_, moved, _, streamed), _ = run.drain()
    finally:
        database.run("ALTER ROLE CURRENT_USER RESET intervalstyle")
    assert (key, read) == ({"id": 1}, wanted)
    assert (moved, streamed) == ({"id": 2}, wanted | {"id": 2})
    first, last = run.batches[0], run.batches[1]
    assert (first.value_schema, first.key_schema) == (last.value_schema, last.key_schema)


def test_changed_keys_and_unchanged_large_values(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, big text, n int NOT NULL)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, repeat('x', 5000), 1)",
    )
    big = "x" * 5000
    with Driven(database.config()) as run:
        run.drain()
        database.run("UPDATE t SET n = 2", "UPDATE t SET id = 5")
        left_out = {"id": 5, "big": "__debezium_unavailable_value", "n": 2}
        assert run.drain() == [
            ("u", {"id": 1}, None, left_out | {"id": 1}),
            ("d", {"id": 1}, {"id": 1, "big": None, "n": 0}, None),
            ("c", {"id": 5}, None, left_out),
            ("tombstone", {"id": 1}, None, None),
        ]
        database.run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 3", "DELETE FROM t")
        after = {"id": 5, "big": big, "n": 3}
        assert run.drain() == [
            ("u", {"id": 5}, {"id": 5, "big": big, "n": 2}, after),
            ("d", {"id": 5}, after, None),
            ("tombstone", {"id": 5}, None, None),
        ]


def test_an_altered_table_has_another_schema_from_there_on(items: Database) -> None:
    with Driven(items.config()) as run:
        run.drain()
        items.run(
            "INSERT INTO items VALUES (31, 'a')",
            "ALTER TABLE items ADD COLUMN n int NOT NULL DEFAULT 7",
            "INSERT INTO items VALUES (32, 'b')",
            "ALTER TABLE items DROP COLUMN text",
            "INSERT INTO items VALUES (33, 8)",
        )
        assert [event[3] for event in run.drain()] == [
            {"id": 31, "text": "a"}, {"id": 32, "text": "b", "n": 7}, {"id": 33, "n": 8},
        ]  # fmt: skip
        assert len({id(batch.value_schema) for batch in run.batches[-3:]}) == 3


def test_two_tables_with_one_topic_end_the_task_and_a_renamed_one_does_not(database: Database) -> None:
    database.run('CREATE TABLE "my table" (id int PRIMARY KEY)')
    config = database.config(publication_autocreate_mode="all_tables")
    with Driven(config) as run:
        run.drain()
        database.run('INSERT INTO "my table" VALUES (1)', 'ALTER TABLE "my table" RENAME TO my_table')
        database.run("INSERT INTO my_table VALUES (2)")
        assert [event[1] for event in run.drain()] == [{"id": 1}, {"id": 2}]
        database.run('CREATE TABLE "my?table" (id int PRIMARY KEY)', 'INSERT INTO "my?table" VALUES (3)')
        with pytest.raises(ConfigError, match=r'"my.table" and .*"my.table" would both go to'):
            run.drain()
    with Driven(config) as run, pytest.raises(ConfigError, match="would both go to topic"):
        run.drain()


def test_truncations_and_tables_without_a_key(database: Database) -> None:
    database.run(
        "CREATE TABLE t (a int, b text)", "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 'x')"
    )
    with Driven(database.config(skipped_operations="none")) as run:
        assert run.drain() == [("r", None, None, {"a": 1, "b": "x"})]
        database.run("UPDATE t SET b = 'y'", "DELETE FROM t", "TRUNCATE t")
        assert run.drain() == [
            ("u", None, {"a": 1, "b": "x"}, {"a": 1, "b": "y"}), ("d", None, {"a": 1, "b": "y"}, None),
            ("t", None, None, None),
        ]  # fmt: skip


def test_snapshot_modes(items: Database) -> None:
    with Driven(items.config(snapshot_mode="never")) as run:
        assert run.drain() == []
        assert run.offset is not None
        items.run("INSERT INTO items VALUES (31, 'new')")
        assert [event[0] for event in run.drain()] == ["c"]
    items.run("INSERT INTO items VALUES (32, 'new')")
    with Driven(items.config(snapshot_mode="always"), run.offset) as run:
        assert [event[0] for event in run.drain()] == ["r"] * 32 + ["c"]
    items.drop_slots()
    with Driven(items.config(snapshot_mode="initial_only")) as run:
        assert [event[0] for event in run.drain()] == ["r"] * 32
        assert run.task.wake_after_ms() > 0
    items.released()
    assert items.slots() == []
    with Driven(items.config(snapshot_mode="initial_only"), run.offset) as run:
        assert run.drain() == []


def test_the_snapshot_of_an_empty_database_is_complete_at_once(database: Database) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Driven(database.config()) as run:
        assert run.drain() == []
        assert run.offset is not None
        assert "snapshot" not in run.offset
        database.run("INSERT INTO t VALUES (1)")
        assert [event[0] for event in run.drain()] == ["c"]


def test_a_filtered_publication_is_created_and_extended(items: Database) -> None:
    config = items.config(table_include_list=r"public\.items.*", publication_name="Odd 'Name")

    def published() -> list[str]:
        return [name for (name,) in items.rows("SELECT tablename FROM pg_publication_tables ORDER BY 1")]

    items.run("CREATE TABLE others (id int PRIMARY KEY)")
    with Driven(config) as run:
        run.drain()
    assert published() == ["items"]
    items.run("CREATE TABLE items2 (id int PRIMARY KEY)")
    with Driven(config, run.offset) as run:
        run.drain()
        assert published() == ["items", "items2"]
        items.run("INSERT INTO items2 VALUES (1)", "INSERT INTO others VALUES (1)")
        assert [batch.topic for batch in run.batches] == []
        assert run.drain() == [("c", {"id": 1}, None, {"id": 1})]
        assert run.batches[0].topic == "app.public.items2"


def test_partitions_are_captured_under_their_own_names(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1)",
    )
    with Driven(database.config(publication_autocreate_mode="all_tables")) as run:
        assert run.drain() == [("r", {"id": 1}, None, {"id": 1})]
        database.run("INSERT INTO t VALUES (2)")
        assert run.drain() == [("c", {"id": 2}, None, {"id": 2})]
        assert {batch.topic for batch in run.batches} == {"app.public.t1"}


def test_a_lost_slot_is_an_error_or_restarts_with_a_snapshot_if_configured(items: Database) -> None:
    with Driven(items.config()) as run:
        run.drain()
    items.released()
    items.run("INSERT INTO items VALUES (31, 'new')")
    items.run(f"SELECT pg_replication_slot_advance('{items.slot}', pg_current_wal_lsn())")
    for why in ("another client reads it", "no longer exists in"):
        with Driven(items.config(), run.offset) as lost, pytest.raises(OffsetsLost, match=why):
            lost.drain()
        items.drop_slots()
    with Driven(items.config() | {"herdmesh.offsets.missing": "reset"}, run.offset) as anew:
        assert [event[0] for event in anew.drain()] == ["r"] * 31
        items.run("DELETE FROM items WHERE id = 31")
        assert [event[0] for event in anew.drain()] == ["d", "tombstone"]


def test_a_position_beyond_the_log_is_of_another_server(items: Database) -> None:
    with Driven(items.config()) as run:
        run.drain()
    with Driven(items.config(), {"lsn_commit": 1 << 60}) as lost, pytest.raises(OffsetsLost, match="another server"):
        lost.drain()


def test_an_earlier_run_loses_the_slot_and_does_not_take_it_back(items: Database) -> None:
    with Driven(items.config()) as earlier:
        earlier.drain()
        with Driven(items.config(), earlier.offset) as later:
            items.run("INSERT INTO items VALUES (31, 'new')")
            assert [event[0] for event in later.drain()] == ["c"]
            for _ in range(3):
                with pytest.raises(RetriableError):
                    earlier.task.poll()
            items.run("INSERT INTO items VALUES (32, 'new')")
            assert [event[0] for event in later.drain()] == ["c"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("one", "two"),
        ("one more", "one"),
        ("inventory-cdc-postgresql-production-eu-west-1-orders", "inventory-cdc-postgresql-production-eu-west-1-items"),
        ("заказы", "оплаты"),
    ],
)
def test_a_slot_in_use_by_another_connector_is_left_alone(items: Database, name: str, other: str) -> None:
    with Driven(items.config(), connector=name) as one:
        one.drain()
        in_use = r"in use by 'herdmesh .*slot\.name"
        with Driven(items.config(), connector=other) as two, pytest.raises(RetriableError, match=in_use):
            two.task.poll()
        items.run("INSERT INTO items VALUES (31, 'new')")
        assert [event[0] for event in one.drain()] == ["c"]


def test_a_new_slot_is_not_confirmed_to_a_lost_offset(items: Database) -> None:
    """The database was restored from a backup, with a shorter log."""
    beyond = {"lsn_commit": 1 << 50, "lsn": 1 << 50, "lsn_proc": 1 << 50}
    with Driven(items.config(herdmesh_offsets_missing="reset"), beyond) as run:
        run.drain()
        items.run("INSERT INTO items VALUES (31, 'new')")
        assert [event[1] for event in run.drain()] == [{"id": 31}]
        assert run.offset is not None
        assert items.confirmed() <= int(run.offset["lsn_commit"])


def test_changes_without_a_slot_are_lost_with_slot_drop_on_stop(items: Database) -> None:
    config = items.config(slot_drop_on_stop="true")
    with Driven(config) as run:
        run.drain()
    assert items.slots() == []
    items.run("INSERT INTO items VALUES (31, 'missed')")
    with Driven(config, run.offset) as run:
        assert run.drain() == []
        items.run("INSERT INTO items VALUES (32, 'seen')")
        assert [event[1] for event in run.drain()] == [{"id": 32}]


@pytest.mark.parametrize(
    ("more", "field", "fix"),
    [
        ({"publication_autocreate_mode": "disabled"}, "publication.name", "CREATE PUBLICATION"),
        ({"table_include_list": "public.absent"}, "table.include.list", "name tables"),
        ({"database_user": "cdc_reader"}, "database.user", "REPLICATION"),
        ({"database_user": "cdc_nobody"}, "database.user", "may log in"),
        ({"database_dbname": "absent"}, "database.dbname", "exists"),
        ({"database_user": "cdc_replicator", "publication_autocreate_mode": "all_tables"},
         "publication.autocreate.mode", "filtered"),
        ({"slot_name": "cdc_physical"}, "slot.name", "another slot"),
    ],
)  # fmt: skip
def test_errors_of_the_config_or_the_server_name_their_key_and_fix(
    items: Database, more: dict[str, str], field: str, fix: str
) -> None:
    for role, rights in (("cdc_reader", "LOGIN"), ("cdc_replicator", "LOGIN REPLICATION")):
        if not items.rows(f"SELECT FROM pg_roles WHERE rolname = '{role}'"):
            items.run(f"CREATE ROLE {role} {rights}")
    items.run("SELECT pg_create_physical_replication_slot('cdc_physical')")
    try:
        config = items.config() | {name.replace("_", "."): value for name, value in more.items()}
        with Driven(config) as run, pytest.raises(ConfigError) as refused:
            run.drain()
    finally:
        items.run("SELECT pg_drop_replication_slot('cdc_physical')")
    assert refused.value.field == field
    assert fix in refused.value.fix


@pytest.mark.postgres
def test_a_task_continues_after_the_server_died_and_restarted(tmp_path: Path) -> None:
    """The first time the server has too little in its log."""
    poor = Postgres(tmp_path, settings={"wal_level": "replica"})
    asyncio.run(poor.start())
    try:
        with Driven(_config_of(poor)) as run, pytest.raises(ConfigError, match="wal_level=replica") as refused:
            run.drain()
        assert "wal_level=logical" in refused.value.fix
    finally:
        asyncio.run(poor.stop())
    server = Postgres(tmp_path, port=poor.port)
    asyncio.run(server.start())
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            connection.execute("INSERT INTO t SELECT generate_series(1, 100)")
        with Driven(_config_of(server, max_batch_size="10")) as run:
            run.drain()
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("INSERT INTO t SELECT generate_series(101, 200)")
            run.next()  # the rest of the transaction arrives later
            server.kill()
            with pytest.raises(RetriableError):
                run.poll_until_it_fails()
            asyncio.run(server.start())
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute("INSERT INTO t VALUES (201)")
            run.drain()
        assert [key["id"] for _, key, _, _ in events_of(run.batches)] == list(range(1, 202))
    finally:
        asyncio.run(server.stop())


def _config_of(server: Postgres, **more: str) -> dict[str, str | None]:
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "herdmesh",
        "database.dbname": "postgres",
        "topic.prefix": "app",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
