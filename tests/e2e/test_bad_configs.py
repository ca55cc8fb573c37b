"""Invalid input gets a clear error that names the field and the fix; a failure at runtime affects no other task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
