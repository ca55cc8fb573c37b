"""Tests of open writers of every relation that is read: under
views, queries, functions, inheritance and partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from herdmesh.connect.errors import RetriableError
from herdmesh.connectors.postgres.source import task as source_task
from herdmesh.connectors.postgres.source.connector import PostgresSourceConnector
from libs.connectors.tests.postgres.reading import Reader, config_of

Connection = psycopg.Connection[Any]
TABLES = """
CREATE TABLE base (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE TABLE other (id int PRIMARY KEY, what text);
INSERT INTO other VALUES (1, 'x');
CREATE VIEW plain AS SELECT * FROM base;
CREATE VIEW joined AS SELECT b.id, b.name FROM plain b LEFT JOIN other o ON o.id = b.id % 2;
CREATE VIEW united AS SELECT id, name FROM base UNION ALL SELECT 0, what FROM other WHERE false;
CREATE FUNCTION inlined() RETURNS SETOF base LANGUAGE sql STABLE AS 'SELECT * FROM public.base';
CREATE FUNCTION opaque() RETURNS SETOF base LANGUAGE plpgsql STABLE AS 'BEGIN RETURN QUERY TABLE public.base; END';
CREATE FUNCTION again() RETURNS SETOF base LANGUAGE sql VOLATILE AS 'SELECT * FROM public.base';
CREATE VIEW of_function AS SELECT * FROM opaque();
CREATE TABLE parent (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE grandchild () INHERITS (child);
CREATE TABLE parts (id bigserial, name text NOT NULL) PARTITION BY LIST (name);
CREATE TABLE parts_slow PARTITION OF parts FOR VALUES IN ('slow') PARTITION BY RANGE (id);
CREATE TABLE parts_slow_1 PARTITION OF parts_slow DEFAULT;
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
CREATE VIEW of_parts AS SELECT * FROM parts;
CREATE VIEW of_parent AS SELECT * FROM parent;
"""
VIEW = {"table.types": "VIEW", "validate.non.null": "false"}
RELATIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "a view": (VIEW | {"table.whitelist": "plain"}, "base", "base"),
    "a view that is written through": (VIEW | {"table.whitelist": "plain"}, "plain", "base"),
    "a view of a view with a join": (VIEW | {"table.whitelist": "joined"}, "base", "base"),
    "a view with a union": (VIEW | {"table.whitelist": "united"}, "base", "base"),
    "a query": ({"query": "SELECT id, name FROM base WHERE id > 0"}, "base", "base"),
    "a query of a view": ({"query": "WITH c AS (SELECT * FROM joined) SELECT * FROM c -- all"}, "base", "base"),
    "a query with a subquery": ({"query": "SELECT * FROM (SELECT max(id) AS id, name FROM base GROUP BY name) s"},
                                "base", "base"),
    "a query of a function": ({"query": "SELECT * FROM inlined()"}, "base", "base"),
    "a query of a function that is not inlined": ({"query": "SELECT * FROM again() WHERE id > 0"}, "base", "base"),
    "a view of a procedural function": (VIEW | {"table.whitelist": "of_function"}, "base", "base"),
    "a table with children": ({"table.whitelist": "parent"}, "grandchild", "parent"),
    "a view of a table with children": (VIEW | {"table.whitelist": "of_parent"}, "child", "parent"),
    "a partitioned table": ({"table.types": "PARTITIONED TABLE", "table.whitelist": "parts"}, "parts_slow", "parts"),
    "a view of a partitioned table": (VIEW | {"table.whitelist": "of_parts"}, "parts_slow_1", "parts"),
    "a query of a partitioned table": ({"query": "SELECT * FROM parts"}, "parts", "parts"),
}  # fmt: skip


@pytest.fixture
def admin(tmp_database: str) -> Iterator[Connection]:
    with psycopg.connect(tmp_database, autocommit=True) as connection:
        connection.execute(TABLES)
        yield connection


def test_a_lower_number_is_waited_for_in_every_kind_of_relation(
    admin: Connection, tmp_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_task, "_WAIT_S", 0.0)
    for what, (config, slow_into, fast_into) in RELATIONS.items():
        admin.execute("TRUNCATE base, parent, parts RESTART IDENTITY CASCADE")
        reader = Reader(config_of(tmp_database, mode="incrementing", incrementing__column__name="id", **config))
        with psycopg.connect(tmp_database) as slow, reader.task() as task:
            slow.execute(f"INSERT INTO {slow_into} (name) VALUES ('slow')".encode())
            admin.execute(f"INSERT INTO {fast_into} (name) VALUES ('fast')".encode())
            with pytest.raises(RetriableError, match=rf"lower number: {slow.info.backend_pid}$"):
                pytest.fail(f"{what}: read {reader.take(task)}")
            slow.commit()
            assert [row["name"] for row in reader.until(task, 2)] == ["slow", "fast"], what


def test_a_number_drawn_before_the_table_was_locked_is_waited_for(
    admin: Connection, tmp_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hibernate draws numbers this way."""
    monkeypatch.setattr(source_task, "_WAIT_S", 0.0)
    admin.execute("CREATE SEQUENCE drawn; CREATE TABLE later (id bigint PRIMARY KEY DEFAULT nextval('drawn'))")
    for table, sequence in (("base", "base_id_seq"), ("later", "drawn")):
        given = {"mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": table}
        reader = Reader(config_of(tmp_database, **given))
        names, values = ("(id, name)", "%s, 'slow'") if table == "base" else ("(id)", "%s")
        with psycopg.connect(tmp_database) as slow, reader.task() as task:
            row = slow.execute(f"SELECT nextval('{sequence}')".encode()).fetchone()
            admin.execute(f"INSERT INTO {table} {names} VALUES ({values})".replace("%s", "DEFAULT").encode())
            with pytest.raises(RetriableError, match=str(slow.info.backend_pid)):
                pytest.fail(f"{table}: read {reader.take(task)}")
            slow.execute(f"INSERT INTO {table} {names} VALUES ({values})".encode(), row)
            slow.commit()
            assert [row["id"] for row in reader.until(task, 2)] == [1, 2]


def test_sequences_with_a_cache_have_a_warning(
    admin: Connection, tmp_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute("CREATE TABLE kept (id int GENERATED ALWAYS AS IDENTITY (CACHE 20), name text); "
                  "INSERT INTO kept (name) VALUES ('x')")  # fmt: skip
    config = {"mode": "incrementing", "incrementing.column.name": "id", "validate.non.null": "false"}
    reader = Reader(config_of(tmp_database, **config, table__whitelist="kept"))
    with caplog.at_level(logging.WARNING):
        assert [row["name"] for row in reader.rows()] == ["x"]
    assert "reads numbers of sequence kept_id_seq, which has CACHE 20" in caplog.text


def test_a_table_filled_by_a_subscription_has_a_warning(
    admin: Connection, tmp_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows come in the order of their commits at the publisher."""
    admin.execute("CREATE PUBLICATION p FOR TABLE base")
    subscribing = tmp_database + "_subscribing"
    admin.execute(f'CREATE DATABASE "{subscribing.rpartition("/")[2]}"'.encode())
    with psycopg.connect(subscribing, autocommit=True) as connection:
        connection.execute("CREATE TABLE base (id int PRIMARY KEY, name text); INSERT INTO base VALUES (1, 'x')")
        connection.execute(
            f"CREATE SUBSCRIPTION s CONNECTION '{tmp_database}' PUBLICATION p WITH (enabled = false, "
            "create_slot = false, slot_name = NONE, copy_data = false)".encode()
        )
        given = {"mode": "incrementing", "incrementing.column.name": "id"}
        with caplog.at_level(logging.WARNING):
            reader = Reader(config_of(subscribing, **given, table__whitelist="base"))
            assert [row["name"] for row in reader.rows()] == ["x"]
        connection.execute("DROP SUBSCRIPTION s")
    assert "reads table base, which a subscription fills" in caplog.text


def test_a_reader_of_the_same_tables_is_not_waited_for(admin: Connection, tmp_database: str) -> None:
    admin.execute("INSERT INTO base (name) VALUES ('x')")
    reader = Reader(config_of(tmp_database, mode="incrementing", incrementing__column__name="id", query="TABLE joined"))
    with psycopg.connect(tmp_database) as other:
        other.execute("SELECT FROM base FOR SHARE")
        other.execute("INSERT INTO parent (name) VALUES ('elsewhere')")
        assert [row["name"] for row in reader.rows()] == ["x"]


def test_invisible_writers_have_a_warning(
    admin: Connection, tmp_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute("INSERT INTO base (name) VALUES ('x'); CREATE MATERIALIZED VIEW kept AS SELECT * FROM base; "
                  "CREATE VIEW over AS SELECT * FROM kept")  # fmt: skip
    given = {"mode": "incrementing", "incrementing.column.name": "id"}
    types = config_of(tmp_database, **given, **{"table.types": "VIEW,MATERIALIZED VIEW"})
    (warning,) = PostgresSourceConnector().warnings(types)
    assert (warning.field, "MATERIALIZED VIEW can be missed" in warning.message) == ("table.types", True)
    reader = Reader(config_of(tmp_database, **given, **VIEW, table__whitelist="over"))
    with caplog.at_level(logging.WARNING):
        assert [row["name"] for row in reader.rows()] == ["x"]
    assert "reads materialized view kept: open transactions there are not visible" in caplog.text
