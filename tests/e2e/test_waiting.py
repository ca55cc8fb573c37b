"""A task that waits says so to the operator: what for, since when, how often it tried, when it tries next."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from herdmesh.devstack.postgres import Postgres
from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]
#: It is to be there within 10 s on a machine that has nothing else to do.
_BOUND_S: Final = 30.0


def _waits(connector: dict[str, Any]) -> list[dict[str, Any]]:
    """What each task that waits says, by the condition WAITING."""
    return [one["wait"] for task in connector["tasks"] for one in task.get("conditions", ()) if "wait" in one]


async def test_a_sink_whose_server_died_is_shown_waiting_until_it_is_back(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """In `herd get connectors`, `describe` and `doctor`, and no more once the rows are written."""
    server = Postgres(tmp_path)
    await server.start()
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    name = f"sink-{topic}"
    place = f"PostgreSQL 127.0.0.1:{server.port}"
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE rows (id bigint, pad text)")
        await mesh.apply(name, {
            "connector.class": "PostgresSink",
            "tasks.max": "1",
            "topics": topic,
            "connection.url": server.dsn,
            "table.name.format": "rows",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        })  # fmt: skip
        await mesh.until_running(name, 1)
        await asyncio.to_thread(mesh.produce, topic, range(10))
        await mesh.until_committed(name, topic)

        server.kill()
        await asyncio.to_thread(mesh.produce, topic, range(10, 20))
        killed_s = time.monotonic()
        found = await mesh.until(name, lambda one: any(wait["tries"] for wait in _waits(one)), "WAITING", _BOUND_S)
        shown_s = time.monotonic() - killed_s
        (wait,) = _waits(found)
        assert wait["waits_for"].startswith(place), wait
        assert all(wait[key] for key in ("message", "since", "tries", "next_time")), wait
        assert found["tasks"][0]["state"] == "RUNNING"

        _, document, _ = await herd(mesh, "get", "connectors", name, "-o", "json")
        assert [one["waits_for"] for one in _waits(document)] == [wait["waits_for"]]
        _, listed, _ = await herd(mesh, "get", "connectors", "--columns", "NAME,ATTENTION")
        assert any(name in line and "waits for" in line for line in listed.splitlines()), listed
        _, described, _ = await herd(mesh, "describe", "connector", name)
        assert place in " ".join(described.split()), described

        stores = [f"--{one}={mesh.stack.addresses(one)[0]}" for one in ("config-store", "status-store")]
        code, examined, _ = await herd(mesh, "doctor", *stores, "-o", "json")
        assert (code, examined["healthy"]) == (0, True), "a database that is away is no fault of the mesh"
        assert [(one["connector"], one["task"]) for one in examined["waits"] if one["waits_for"].startswith(place)] == [
            (name, 0)
        ]

        await server.start()
        back_s = time.monotonic()
        await mesh.until(name, lambda one: not _waits(one), "no longer WAITING", _BOUND_S)
        gone_s = time.monotonic() - back_s
        await mesh.until_committed(name, topic)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            rows = connection.execute("SELECT id FROM rows ORDER BY id").fetchall()
        assert [row[0] for row in rows] == list(range(20))
        print(json.dumps({"shown_s": round(shown_s, 1), "gone_s": round(gone_s, 1), "wait": wait}))
        await mesh.delete(name)
    finally:
        await server.stop()
