"""Tasks that always have records share the slots of a worker that has too few of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.cli.display.views import Json
from herdmesh.devstack.broker import Broker
from tests.support.mesh import running_mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timed, pytest.mark.asyncio(loop_scope="session")]

STRING = "org.apache.kafka.connect.storage.StringConverter"
BACKLOG = 30_000
"""More than tasks read at their limit while the test waits: a task that has read everything goes idle, and rightly
misses turns.
"""
LIMIT = 100


def _runs(shown: Json) -> list[int]:
    return [task.get("progress", {}).get("run_count", 0) for task in shown["tasks"]]


async def test_two_connectors_share_two_slots_and_the_tasks_of_one_take_turns(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tasks of one connector and the only one of another, all with records all the time, in two slots: the three
    take turns in one slot, again and again, and the one keeps the other."""
    monkeypatch.setenv("HERDMESH_SHARE_MS", "300")

    def sink(topic: str, tasks: int) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSink", "tasks.max": str(tasks), "topics": topic,
            "file": str(tmp_path / topic), "key.converter": STRING, "value.converter": STRING,
        }  # fmt: skip

    def limited(topic: str, tasks: int) -> dict[str, str]:
        return {**sink(topic, tasks), "herdmesh.rate.records.per.second": str(LIMIT)}

    async with running_mesh(tmp_path / "stack", kafka, workers=1, slots=2, ends_by_force=True) as mesh:
        alone, many = mesh.create_topic(tmp_topic("alone"), 1), mesh.create_topic(tmp_topic("many"), 3)
        for topic in (alone, many):
            mesh.produce(topic, range(BACKLOG))
        await mesh.apply(alone, limited(alone, 1))
        await mesh.apply(many, limited(many, 3))
        begun = _runs(await mesh.until_running(alone, 1))
        shown = await mesh.until(many, lambda one: len(one["tasks"]) == 3 and min(_runs(one)) >= 3, "thrice in turn")
        taken = _runs(mesh.board.connectors[alone])[0] - begun[0]
        assert max(_runs(shown)) - min(_runs(shown)) <= 2, f"no turn is left out: {_runs(shown)}"
        assert all(task["state"] == "RUNNING" for task in shown["tasks"]), "waiting for a slot is no trouble"
        assert taken <= 2, "once both have a slot, nobody takes the one's"
        (worker,) = (await mesh.cluster())["workers"]
        assert (worker["slots"], worker["slots_used"], worker["tasks_waiting_for_slot"]) == (2, 2, 2)
        await mesh.apply(many, sink(many, 3))
        await mesh.until_committed(many, many)
        assert len((tmp_path / many).read_text().splitlines()) == BACKLOG
