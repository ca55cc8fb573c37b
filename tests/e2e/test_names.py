"""A connector's name with everything that Connect allows in it, through every command of `herd` and a whole mesh."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh, assert_exact, parquet_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]
RECORDS = 200


@pytest.mark.parametrize("shape", ["ünïcödé-日本-😀-{}", "a/b ../%2F?#[x]'\"\\-{}", "{}-" + "n" * 400], ids=range(3))
async def test_a_connector_of_any_name_runs_and_is_changed(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str], shape: str
) -> None:
    topic = mesh.create_topic(tmp_topic())
    name, json_out = shape.format(topic), ("-o", "json")
    mesh.produce(topic, range(RECORDS))
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": f" {name}\t", "config": parquet_sink(topic, tmp_path / "out")}))
    code, created, stderr = await herd(mesh, "create", "-f", str(file), *json_out)
    assert (code, created["name"]) == (0, name), stderr
    code, applied, stderr = await herd(mesh, "apply", "-f", str(file), *json_out)
    assert (code, applied["name"]) == (0, name), stderr
    await mesh.until_running(name, 2)
    await mesh.until_published(tmp_path / "out", RECORDS)
    await mesh.until_committed(name, topic)
    for command in (("get", "connectors"), ("describe", "connector"), ("get", "topics"), ("restart",)):
        code, _, stderr = await herd(mesh, *command, name)
        assert code == 0, (command, stderr)
    await mesh.until_running(name, 2)
    mesh.produce(topic, range(RECORDS, 2 * RECORDS))
    await mesh.until_published(tmp_path / "out", 2 * RECORDS)
    await mesh.until_committed(name, topic)
    assert_exact(tmp_path / "out", 2 * RECORDS)
    code, _, stderr = await herd(mesh, "delete", f"{name} ", "--yes")
    assert code == 0, stderr
