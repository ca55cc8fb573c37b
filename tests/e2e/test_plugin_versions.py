"""Plugin folders end to end, through `herd`, herder, worker and Spark: two versions of a connector and of a
transformation side by side, each with its own version of the library that it needs; and a source there that is
rewound to a time, by its connector in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from herdmesh.devstack.broker import Broker
from libs.core.tests.engine.harness import Kafka
from tests.docs.blocks import blocks
from tests.e2e.test_herd import herd
from tests.support import plugin_environments
from tests.support.mesh import Mesh, running_mesh
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]


async def test_versions_of_plugins_run_side_by_side_each_with_its_own_libraries(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Herdmesh's own libraries stay the worker's. Configs that no worker can run are refused: a missing version, a task
    of two folders, a setting that the plugin's own rules refuse.
    """
    plugins = tmp_path / "plugins"
    for version, tinylib in (("1.0", "1"), ("2.0", "2")):
        plugin_environments.greet(plugins / version, version, tinylib)
    plugin_environments.seconds(plugins / "seconds")
    monkeypatch.setenv("HERDMESH_PLUGIN_PATH", str(plugins))

    def config(name: str, **more: str) -> str:
        base = {"connector.class": "Greet", "topics": topic, "tasks.max": "1", "file": str(tmp_path / name),
                "key.converter": "StringConverter", "value.converter": "StringConverter"}  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "config": {**base, **more}}))
        return str(tmp_path / f"{name}.json")

    loud = {"transforms": "loud", "transforms.loud.type": "Louder"}
    async with running_mesh(tmp_path / "plugged", kafka, workers=1, ends_by_force=True) as mesh:
        await mesh.until_workers()
        code, found, _ = await herd(mesh, "get", "plugins", "-o", "json")
        assert code == 0
        ours = [(one["class"], one["type"], one["version"]) for one in found if one["class"].startswith("org.example")]
        assert ours == [
            (plugin_environments.GREET, "sink", "1.0"), (plugin_environments.GREET, "sink", "2.0"),
            ("org.example.Louder", "transformation", "1.0"), ("org.example.Louder", "transformation", "2.0"),
            ("org.example.Seconds", "source", "1.0"),
        ]  # fmt: skip
        topic = mesh.create_topic(tmp_topic(), partitions=1)
        old = {"connector.plugin.version": "1.0"}
        files = {"greet.json": config("hello", **{"connector.plugin.version": "3.0"})}
        await _prints_what_the_page_shows(mesh, "docs/how-to/plugins.md", files)
        created = {
            "greet-1": {**old, **loud, "transforms.loud.plugin.version": "1.0"},
            "greet-2": {},
            "stream": {"connector.class": "FileStreamSink", **loud},
        }
        for name, more in created.items():
            code, _, said = await herd(mesh, "create", "-f", config(name, **more))
            assert code == 0, said
        for name, more, says in (
            ("none", {"connector.plugin.version": "3.0"}, "available versions: [1.0, 2.0]"),
            ("both", {**old, **loud}, "a task is one process"),
            ("loud", {**loud, **old, "transforms.loud.mark": "!!"}, "!! is too long for tinylib 2"),
        ):
            code, _, said = await herd(mesh, "create", "-f", config(name, **more))
            assert code != 0
            assert says in " ".join(said.split())
        await asyncio.to_thread(mesh.produce_raw, topic, 0, b"a")
        for name, version, tinylib, value in (("greet-1", "1.0", "1", "a!1"), ("greet-2", "2.0", "2", "a")):
            await mesh.until_running(name, 1)
            await mesh.until_committed_at_least(name, topic, 1)
            (line,) = (tmp_path / name).read_text().splitlines()
            own, of_tinylib, tinylib_at, msgspec_at, written = line.split(" ")
            assert (own, of_tinylib, written) == (version, tinylib, value)
            assert f"/{version}/lib/" in tinylib_at
            assert f"/{version}/lib/" not in msgspec_at
        await mesh.until_committed_at_least("stream", topic, 1)
        # An installed connector, with a transformation from a plugin folder.
        assert (tmp_path / "stream").read_text() == "a!2\n"
        statuses = await asyncio.to_thread(Kafka(mesh.bootstrap).records, "mesh-plugged-status", 5)
        said = {
            key.decode(): json.loads(value)["version"]
            for key, value in statuses
            if key and value and b"task-greet" in key
        }
        assert said == {"status-task-greet-1-0": "1.0", "status-task-greet-2-0": "2.0"}
        out = mesh.create_topic(tmp_topic("seconds"), partitions=1)
        source = {"connector.class": "Seconds", "topic": out, "count": "10", "pids": str(tmp_path / "pids")}
        code, _, said = await herd(mesh, "create", "-f", config("seconds", **source))
        assert code == 0, said
        assert await asyncio.to_thread(mesh.consume_values, out, 10) == [b"%d" % number for number in range(10)]
        await _rewound(mesh, "seconds", out, tmp_path / "pids")


async def _prints_what_the_page_shows(mesh: Mesh, page: str, files: dict[str, str]) -> None:
    """Each `console` block is a command and its output; `files`: the page's name of a file -> its path."""
    shown = [block.text.splitlines() for block in blocks(page) if block.language == "console"]
    assert shown
    for command, *wanted in shown:
        arguments = [files.get(one, one) for one in shlex.split(command.removeprefix("$ herd "))]
        _, printed, said = await herd(mesh, *arguments)
        text = f"{printed}{said}"
        for name, path in files.items():
            text = text.replace(path, name)
        assert text.split() == " ".join(wanted).split(), command


async def _rewound(mesh: Mesh, name: str, out: str, pids: Path) -> None:
    """Rewind to the sixth second and a half: the connector computes the offset, in a process of its own below the
    worker.
    """
    await mesh.lifecycle("StopConnector", name)
    back = ("offsets", "rewind", name, "--to", "1970-01-01T00:00:05.5Z", "-o", "json")
    code, told, said = await herd(mesh, *back, "--dry-run")
    assert code == 0, said
    assert [one["offset"] for one in told["offsets"]] == [{"next": 6}]
    code, told, said = await herd(mesh, "offsets", "get", name, "-o", "json")
    assert (code, [one["offset"] for one in told["offsets"]]) == (0, [{"next": 10}]), said
    code, told, said = await herd(mesh, *back, "--yes")
    assert (code, [one["offset"] for one in told["offsets"]]) == (0, [{"next": 6}]), said
    asked = {int(pid) for pid in (await asyncio.to_thread(pids.read_text)).split()}
    assert mesh.pid("worker-1") not in asked, "the plugin's code ran in the worker"
    await mesh.lifecycle("ResumeConnector", name)
    found = await asyncio.to_thread(mesh.consume_values, out, 14)
    assert found[10:] == [b"6", b"7", b"8", b"9"]


@pytest.mark.skipif(not SOAKING, reason="a mesh of its own with two workers: make soak ARGS=herder")
async def test_tasks_run_on_the_worker_that_has_the_transformation(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two real workers is restarted when the plugin is there."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    monkeypatch.setenv("HERDMESH_PLUGIN_PATH", str(plugins))
    async with running_mesh(tmp_path / "lacking", kafka, workers=2, ends_by_force=True) as mesh:
        await mesh.until_workers()
        topic = mesh.create_topic(tmp_topic(), partitions=1)
        plugin_environments.greet(plugins / "2.0", "2.0", "2")
        able = sorted(one["worker_id"] for one in (await mesh.cluster())["workers"])[1]
        address = next(one["address"] for one in (await mesh.cluster())["workers"] if one["worker_id"] == able)
        mesh.kill(mesh.service_at(address))
        async with asyncio.timeout(90):
            found = await _plugins(mesh)
            while "org.example.Louder" not in found:
                await asyncio.sleep(0.2)
                found = await _plugins(mesh)
        for number in range(4):
            await mesh.apply(f"loud-{number}", {
                "connector.class": "FileStreamSink", "topics": topic, "tasks.max": "1",
                "file": str(tmp_path / f"loud-{number}"), "transforms": "loud", "transforms.loud.type": "Louder",
                "key.converter": "StringConverter", "value.converter": "StringConverter",
            })  # fmt: skip
        for number in range(4):
            shown = await mesh.until_running(f"loud-{number}", 1)
            assert {shown["connector"]["worker_id"], shown["tasks"][0]["worker_id"]} == {able}


async def _plugins(mesh: Mesh) -> set[str]:
    _, found, _ = await herd(mesh, "get", "plugins", "-o", "json")
    return {one["class"] for one in found}
