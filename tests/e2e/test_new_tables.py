"""A table that is created while its source runs gets to a task by itself, through worker, herder and both stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import psycopg
import pytest

from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def test_a_table_created_later_is_read_without_a_restart(
    mesh: Mesh, tmp_database: str, tmp_topic: Callable[..., str]
) -> None:
    """It gets a task of its own; a table that no rule of the config includes does not. A dropped table
    takes its task with it.
    """
    prefix = tmp_topic("db")
    name = f"tables-{prefix}"
    for table in ("orders", "payments"):
        mesh.create_topic(prefix + table, partitions=1)

    def execute(*statements: str) -> None:
        with psycopg.connect(tmp_database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def made(table: str, *words: str) -> tuple[str, str]:
        rows = ", ".join(f"('{one}')" for one in words)
        return (
            f"CREATE TABLE shop.{table} (id serial PRIMARY KEY, word text NOT NULL)",
            f"INSERT INTO shop.{table} (word) VALUES {rows}",
        )

    async def rows(table: str, count: int) -> list[tuple[int, str]]:
        values = await asyncio.to_thread(mesh.consume_values, prefix + table, count)
        return [(row["id"], row["word"]) for row in map(json.loads, values)]

    await asyncio.to_thread(execute, "CREATE SCHEMA shop", *made("orders", "a", "b"))
    await mesh.apply(name, {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "tasks.max": "3",
        "connection.url": tmp_database,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "schema.pattern": "sh%",
        "table.blacklist": "secrets",
        "table.poll.interval.ms": "200",
        "poll.interval.ms": "100",
        "topic.prefix": prefix,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    })  # fmt: skip
    await mesh.until_running(name, 1)
    assert await rows("orders", 2) == [(1, "a"), (2, "b")]
    later = (*made("secrets", "s"), *made("payments", "c"), "INSERT INTO shop.orders (word) VALUES ('d')")
    await asyncio.to_thread(execute, *later)
    await mesh.until_running(name, 2)
    assert await rows("payments", 1) == [(1, "c")]
    assert await rows("orders", 3) == [(1, "a"), (2, "b"), (3, "d")], "nothing was sent twice for the new table"
    await asyncio.to_thread(execute, "DROP TABLE shop.payments")
    await mesh.until_running(name, 1)
    await mesh.delete(name)
