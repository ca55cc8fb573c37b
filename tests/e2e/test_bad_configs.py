"""Invalid input gets a clear error that names the field and the fix; a failure at runtime affects no other task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import CommandError
from tests.support.mesh import Mesh, assert_exact, parquet_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"connector.class": "NoSuchSink"}, "connector.class", "NoSuchSink"),
        ({"topics": None}, "topics", "topics"),
        ({"value.converter": "NoSuchConverter"}, "value.converter", "NoSuchConverter"),
        ({"tasks.max": "0"}, "tasks.max", "at least 1"),
        ({"tasks.max": "many"}, "tasks.max", "Not a number of type INT"),
        ({"directory": "/proc/nowhere"}, "directory", "/proc/nowhere"),
        ({"transforms": "a"}, "transforms.a.type", "transforms.a.type"),
    ],
    ids=["unknown class", "no topics", "unknown converter", "no tasks", "tasks as text", "folder", "transformation"],
)
async def test_an_invalid_config_is_refused_with_its_field(
    mesh: Mesh,
    tmp_path: Path,
    tmp_topic: Callable[..., str],
    change: dict[str, str | None],
    field: str,
    says: str,
) -> None:
    """Nothing is stored and the refusal names the field."""
    name = tmp_topic("sink")
    config = {key: value for key, value in {**parquet_sink("t", tmp_path), **change}.items() if value is not None}
    with pytest.raises(CommandError) as refused:
        await mesh.apply(name, config)
    assert refused.value.reason == "CONFIG_INVALID"
    messages = [message for where, message in refused.value.fields if where == field]
    assert messages, f"{field} is not named: {refused.value.fields}"
    assert any(says in message for message in messages), messages
    with pytest.raises(CommandError, match=name):
        await mesh.get(name)


#: Keys that users wrote and that had no effect, with the key that they meant.
MISSPELT: Final = {
    "errors.tolerence": "errors.tolerance",
    "errors.deadletterqueue.topic.nme": "errors.deadletterqueue.topic.name",
    "transform": "transforms",
    "herdmesh.restart.enable": "herdmesh.restart.enabled",
    "config.action.relod": "config.action.reload",
    "header.convertor": "header.converter",
    "topics.regx": "topics.regex",
}


async def test_every_command_that_takes_a_config_warns_of_each_misspelt_key(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """Else a dead letter queue or restart policy is off, and nobody knows before the first bad record."""
    name = tmp_topic("sink")
    config = {"connector.class": "FileStreamSink", "topics": mesh.create_topic(tmp_topic(), 1), "file": "/dev/null"}
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": name, "config": {**config, **dict.fromkeys(MISSPELT, "x")}}))
    for command in ("validate", "plan", "apply --dry-run=server", "apply"):
        arguments = [*command.split(), "-f", str(file), "--herder", mesh.stack.state.herder]
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        for key, meant in MISSPELT.items():
            (line,) = (line for line in done.stderr.splitlines() if f"{name}: {key} has no effect" in line)
            assert line.startswith("warning: "), line
            assert line.endswith(f"(did you mean {meant}?)"), line
    shown = await asyncio.to_thread(
        CliRunner().invoke, app, ["describe", "connector", name, "--herder", mesh.stack.state.herder]
    )
    assert all(f"did you mean {meant}?" in shown.stdout for meant in MISSPELT.values()), shown.stdout
    await mesh.delete(name)


async def test_one_failing_task_shows_its_trace_while_other_tasks_run(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """One poisoned partition fails its task; the other task and the other connector continue."""
    topic = mesh.create_topic(tmp_topic(), partitions=2)
    healthy = mesh.create_topic(tmp_topic("healthy"), partitions=1)
    name, other = f"sink-{topic}", f"sink-{healthy}"
    await mesh.apply(name, parquet_sink(topic, tmp_path / "poisoned"))
    await mesh.apply(other, parquet_sink(healthy, tmp_path / "healthy", tasks=1))
    await mesh.until_running(name, 2)
    mesh.produce_raw(topic, partition=0, value=b"this is not JSON")
    shown = await mesh.until(
        name, lambda one: sorted(task["state"] for task in one["tasks"]) == ["FAILED", "RUNNING"], "failed on one task"
    )
    failed = next(task for task in shown["tasks"] if task["state"] == "FAILED")
    for part in (topic, "partition 0", "offset 0"):
        assert part in failed["error"], failed["error"]
    assert "Traceback" in failed["trace"]
    mesh.produce(healthy, range(100))
    await mesh.until_published(tmp_path / "healthy", 100, timeout_s=60)
    assert_exact(tmp_path / "healthy", 100)
    assert (await mesh.get(name))["connector"]["state"] == "RUNNING"
