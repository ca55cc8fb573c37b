"""Outage of a source's database, at its start and while it runs: restarts that the budget does not limit, and what each
view of `herd` and the worker's metrics say meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.devstack.postgres import Postgres
from tests.support.mesh import Mesh
from tests.support.pages import until_pages

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(180)),
    pytest.mark.asyncio(loop_scope="session"),
]
_SHOWN_S: Final = 30.0
#: Restarts after which a failure that counts would leave the connector FAILED.
_ATTEMPTS_MAX: Final = 2


async def test_a_source_outlives_outages_of_its_database_and_each_view_says_what_it_waits_for(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """1. The server is away when the connector starts, for more restarts than the budget has; 2. it runs once the
    server does; 3. the server stops under it; 4. it reads on.
    """
    prefix = tmp_topic("away")
    name = f"source-{prefix}"
    mesh.create_topic(f"{prefix}orders", partitions=1)
    server = Postgres(tmp_path / "postgres")
    await server.start()
    try:
        place = f"PostgreSQL 127.0.0.1:{server.port}/postgres"
        _execute(server, "CREATE TABLE orders (id serial PRIMARY KEY)", "INSERT INTO orders DEFAULT VALUES")
        await server.stop()

        await mesh.apply(name, {
            "connector.class": "JdbcSource", "connection.url": server.dsn, "mode": "incrementing",
            "incrementing.column.name": "id", "table.whitelist": "orders", "topic.prefix": prefix,
            "poll.interval.ms": "100", "herdmesh.restart.attempts.max": _ATTEMPTS_MAX,
            "herdmesh.restart.backoff.ms": "100", "herdmesh.restart.backoff.max.ms": "100",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        })  # fmt: skip
        seen = await mesh.until(
            name,
            lambda one: one["connector"]["start_count"] > 2 * _ATTEMPTS_MAX and one["connector"]["state"] == "FAILED",
            "restarted beyond its budget",
            _SHOWN_S,
        )
        assert "failed (UNREACHABLE)" in seen["connector"]["explanation"], seen
        assert f"PostgreSQL at 127.0.0.1:{server.port}/postgres" in seen["connector"]["error"]
        await server.start()
        await mesh.until_running(name, 1)
        assert await _ids(mesh, f"{prefix}orders", 1) == [1]

        await server.stop()
        await mesh.until(
            name,
            lambda one: any(place in each["message"] for each in one["tasks"][0].get("conditions", ())),
            "waits for its database",
            _SHOWN_S,
        )
        address = mesh.stack.state.herder
        listed = await _printed("get", "connectors", name, "--herder", address)
        assert "RUNNING" in listed
        assert f"task 0: waits for {place}" in listed
        described = await _printed("describe", "connector", name, "--herder", address)
        assert described.startswith(f"{name}: task 0 waits for {place}"), described
        examined = await _printed("doctor", "--herder", address)
        assert f"WAITING connector {name} task 0: waits for {place}" in examined, examined
        await until_pages(mesh, name, lambda page: max(page.get("herdmesh_task_waiting_seconds", [0])) > 5, "waiting")

        await server.start()
        _execute(server, "INSERT INTO orders DEFAULT VALUES")
        await mesh.until(name, lambda one: not one["tasks"][0].get("conditions"), "well again", _SHOWN_S)
        assert await _ids(mesh, f"{prefix}orders", 2) == [1, 2]
    finally:
        await mesh.delete(name)
        await server.stop()


def _execute(server: Postgres, *statements: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def _ids(mesh: Mesh, topic: str, count: int) -> list[int]:
    return [json.loads(one)["id"] for one in await asyncio.to_thread(mesh.consume_values, topic, count)]


async def _printed(*arguments: str) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, app, list(arguments), catch_exceptions=False)
    return done.stdout
