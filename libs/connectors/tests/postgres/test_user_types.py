"""Tests of users' types with the name of a built-in type: both sources read them as the users' types."""

from __future__ import annotations

from typing import Any

from libs.connectors.tests.postgres.cdc_driving import Database, Driven
from libs.connectors.tests.postgres.reading import Reader, config_of

TYPES = (
    "CREATE SCHEMA app", "CREATE TYPE app.money AS (amount numeric, currency text)",
    "CREATE TYPE app.point AS (x int, y int, z int)", "CREATE TYPE app.date AS ENUM ('soon')",
    "CREATE TYPE app.numeric AS RANGE (subtype = int4)", "CREATE TYPE app.hstore AS (k text)",
)  # fmt: skip
ROW: dict[str, Any] = {
    "id": 1, "m": "(12.50,EUR)", "p": "(1,2,3)", "d": "soon", "n": "[1,3)", "h": "(k)", "ms": ["(1,EUR)", None],
}  # fmt: skip


def test_a_users_type_is_not_the_built_in_type_of_its_name(tmp_database: str) -> None:
    database = Database(tmp_database)
    try:
        database.run(
            *TYPES,
            "CREATE TABLE t (id int PRIMARY KEY, m app.money, p app.point, d app.date, n app.numeric, h app.hstore, "
            "ms app.money[])",
        )
        with Driven(database.config()) as run:
            run.drain()
            database.run("INSERT INTO t VALUES (1, '(12.50,EUR)', '(1,2,3)', 'soon', '[1,3)', '(k)', "
                         "ARRAY['(1,EUR)', NULL]::app.money[])")  # fmt: skip
            assert run.drain() == [("c", {"id": 1}, None, ROW)]
        assert Reader(config_of(tmp_database, mode="bulk", table__whitelist="t")).rows() == [ROW]
    finally:
        database.close()
