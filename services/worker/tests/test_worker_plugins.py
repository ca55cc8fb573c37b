"""A real worker with plugin folders, real Spark and a real broker: two versions of a connector run side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from services.worker.tests.fakes import start_task
from services.worker.tests.test_worker_process import WorkerProcess, create_topic, produce
from tests.support import plugin_environments

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(180)]


async def test_versions_of_a_plugin_run_side_by_side_each_with_its_own_libraries(
    kafka_bootstrap: str, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders, two versions of the connector, two of the library it needs; Herdmesh's own stay the worker's. The
    first also has a transformation of its folder."""
    plugins = tmp_path / "plugins"
    for version, tinylib in (("1.0", "1"), ("2.0", "2")):
        plugin_environments.greet(plugins / version, version, tinylib)
    monkeypatch.setenv("HERDMESH_PLUGIN_PATH", str(plugins))
    worker = WorkerProcess(kafka_bootstrap, tmp_path)
    try:
        await worker.start()
        listed = [one for one in worker.herder.hellos[-1].plugins if one.class_name == plugin_environments.GREET]
        assert [one.version for one in listed] == ["1.0", "2.0"]
        topic = await create_topic(worker.bootstrap, tmp_topic())
        await produce(worker.bootstrap, topic, ["a", "b"])
        for name, wanted in (("greet-1", "1.0"), ("greet-2", "")):
            config = {**worker.sink(name, topic), "connector.class": "Greet"}
            if wanted:
                config["connector.plugin.version"] = wanted
                config |= {"transforms": "loud", "transforms.loud.type": "Louder",
                           "transforms.loud.plugin.version": wanted}  # fmt: skip
            worker.herder.send(start_task(name, config, {"file": config["file"]}))
        for name, version, tinylib in (("greet-1", "1.0", "1"), ("greet-2", "2.0", "2")):
            await worker.until(name, lambda name=name: len(worker.lines(name)) == 2, "written")
            said = [line.split(" ") for line in worker.lines(name)]
            assert {(one[0], one[1]) for one in said} == {(version, tinylib)}
            assert sorted(one[4] for one in said) == (["a!1", "b!1"] if version == "1.0" else ["a", "b"])
            assert all(f"/{version}/lib/" in one[2] and f"/{version}/lib/" not in one[3] for one in said)
            statuses = await worker.until(name, lambda name=name: worker.store.of(name), "its status")
            assert statuses[-1].version == version
    finally:
        await worker.stop()
