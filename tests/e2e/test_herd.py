"""The `herd` command against a real mesh, as a script would use it: JSON out, exit codes in.

Most are called in this process: starting one takes longer than the command. Commands that end with a code and an error
message run as processes of their own, one of each code; and others in test_up_and_down.py and test_tutorial.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from tests.support.mesh import Mesh, parquet_sink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


async def herd(mesh: Mesh, *arguments: str, stdin: str = "") -> tuple[int, Any, str]:
    """(exit code, parsed standard output or its text, standard error)."""
    # in a thread: the command runs an event loop of its own
    done = await asyncio.to_thread(
        CliRunner().invoke, app, _with_herder(mesh, arguments), input=stdin, catch_exceptions=False
    )
    return done.exit_code, json.loads(done.stdout) if "json" in arguments else done.stdout, done.stderr


async def herd_process(mesh: Mesh, *arguments: str) -> tuple[int, str]:
    """(exit code, standard error)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "herdmesh.cli", *_with_herder(mesh, arguments)), stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


def _with_herder(mesh: Mesh, arguments: Sequence[str]) -> list[str]:
    herder = () if arguments[0] == "history" else ("--herder", mesh.stack.state.herder)
    return [*arguments, *herder]


async def test_life_of_a_connector(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """apply, get, describe, pause, resume, restart, stop, delete."""
    topic = mesh.create_topic(tmp_topic())
    name = f"sink-{topic}"
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": name, "config": parquet_sink(topic, tmp_path / "out")}))
    json_out = ("-o", "json")

    code, document, _ = await herd(mesh, "apply", "-f", str(file), *json_out)
    assert (code, document["result"], document["name"]) == (0, "created", name)
    await mesh.until_running(name, 2)
    # a flat config from standard input updates it
    flat = {"name": name, **parquet_sink(topic, tmp_path / "out"), "herdmesh.linger.ms": "1000", "flush.sise": "1"}
    code, document, _ = await herd(mesh, "apply", "-f", "-", *json_out, stdin=json.dumps(flat))
    assert (code, document["result"]) == (0, "updated")
    await mesh.until_running(name, 2)

    code, document, _ = await herd(mesh, "get", "connectors", name, *json_out)
    assert (code, document["name"], document["type"]) == (0, name, "sink")
    code, text, _ = await herd(mesh, "describe", "connector", name)
    assert code == 0
    assert "herdmesh.linger.ms" in text
    assert "flush.sise has no effect" in text
    code, document, _ = await herd(mesh, "get", "workers", *json_out)
    assert (code, len(document)) == (0, 2)
    code, document, _ = await herd(mesh, "get", "plugins", *json_out)
    assert code == 0
    assert {"ParquetSink", "FileStreamSource", "FileStreamSink"} <= {
        alias for one in document for alias in (*one["aliases"], one["class"])
    }

    code, document, _ = await herd(mesh, "pause", name, *json_out)
    assert (code, document["target_state"]) == (0, "PAUSED")
    await mesh.until(name, lambda one: {task["state"] for task in one["tasks"]} == {"PAUSED"}, "PAUSED")
    code, document, _ = await herd(mesh, "resume", name, *json_out)
    assert code == 0
    await mesh.until_running(name, 2)
    starts = {task["id"]: task["start_count"] for task in (await mesh.get(name))["tasks"]}
    code, document, _ = await herd(mesh, "restart", name, "--include-tasks", *json_out)
    assert (code, document["result"]) == (0, "restarted")
    await mesh.until(
        name,
        lambda one: all(
            task["state"] == "RUNNING" and task["start_count"] > starts[task["id"]] for task in one["tasks"]
        ),
        "restarted",
    )
    code, document, _ = await herd(mesh, "stop", name, *json_out)
    assert (code, document["target_state"]) == (0, "STOPPED")
    await mesh.until(name, lambda one: one["connector"]["state"] == "STOPPED", "STOPPED")
    code, document, _ = await herd(mesh, "delete", name, "--yes", *json_out)
    assert (code, document["result"]) == (0, "deleted")
    code, document, _ = await herd(mesh, "get", "connectors", name, *json_out)
    assert (code, document["error"]["reason"]) == (3, "CONNECTOR_NOT_FOUND")


async def test_errors_name_cause_and_next_step(mesh: Mesh, tmp_path: Path) -> None:
    """Exit codes follow the reason; a not-found error lists existing names; an invalid config names its fields."""
    code, stderr = await herd_process(mesh, "describe", "connector", "nobody")
    assert code == 3
    assert "nobody" in stderr
    assert "there are:" in stderr
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"name": "bad", "config": {**parquet_sink("t", tmp_path), "tasks.max": "0"}}))
    code, stderr = await herd_process(mesh, "apply", "-f", str(bad))
    assert code == 5
    assert "connector bad: the config was refused" in stderr
    assert "tasks.max" in stderr
    code, result, _ = await herd(mesh, "validate", "-f", str(bad), "-o", "json")
    assert (code, result["error_count"]) == (5, 1)
    wrong = {one["value"]["name"]: one["value"]["errors"] for one in result["configs"] if one["value"]["errors"]}
    assert wrong == {"tasks.max": ["Invalid value 0 for configuration tasks.max: Value must be at least 1"]}
    code, stderr = await herd_process(mesh, "apply", "-f", str(tmp_path / "missing.json"))
    assert code == 2
    assert "missing.json" in stderr
    code, document, _ = await herd(mesh, "restart", "nobody", "-o", "json")
    assert (code, document["error"]["reason"]) == (3, "CONNECTOR_NOT_FOUND")


async def test_doctor_finds_nothing_in_a_healthy_mesh(mesh: Mesh) -> None:
    state = mesh.stack.state
    stores = ("--config-store", state.config_store, "--status-store", state.status_store)
    code, found, _ = await herd(mesh, "doctor", *stores, "-o", "json")
    # other tests share the mesh: the states of their connectors are no concern of this one
    assert [one for one in found["findings"] if one["part"] != "connector" and one["severity"] == "error"] == []
    assert code == (1 if any(one["severity"] == "error" for one in found["findings"]) else 0)
    assert not [one for one in found["findings"] if one["code"] in ("VERSION_SKEW", "CLOCK_SKEW", "WORKER_UNREACHABLE")]
    assert [one["condition"] for one in found["replicas"]] == ["HEALTHY", "HEALTHY"]
    assert found["herder"]["address"] == state.herder


async def test_commands_of_an_operator(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """plan, filtered lists, describe, drain and undrain, loggers, topics."""
    topic = mesh.create_topic(tmp_topic())
    name = f"sink-{topic}"
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": name, "config": parquet_sink(topic, tmp_path / "out")}))
    json_out = ("-o", "json")

    code, plan, _ = await herd(mesh, "plan", "-f", str(file), *json_out)
    assert code == 0
    assert [(step["task"], step["action"]) for step in plan["steps"]] == [(None, "START"), (0, "START"), (1, "START")]
    await herd(mesh, "apply", "-f", str(file))
    running = await mesh.until_running(name, 2)
    file.write_text(json.dumps({"name": name, "config": parquet_sink(topic, tmp_path / "out", tasks=1)}))
    code, plan, _ = await herd(mesh, "plan", "-f", str(file), *json_out)
    assert [(step["task"], step["action"]) for step in plan["steps"]] == [
        (None, "RESTART"),
        (0, "RESTART"),
        (1, "STOP"),
    ]
    assert (await mesh.get(name))["tasks"][1]["state"] == "RUNNING", "a plan changes nothing"

    code, listed, _ = await herd(mesh, "get", "connectors", "--match", f"{name[:-1]}?", "--state", "running", *json_out)
    assert (code, [one["name"] for one in listed]) == (0, [name])
    code, listed, _ = await herd(mesh, "get", "connectors", "--state", "failed", "--match", name, *json_out)
    assert (code, listed) == (0, [])
    code, text, _ = await herd(mesh, "get", "connectors", "-c", "name,workers,age", "--sort", "age", "-n", "1")
    assert (code, text.split()[:3]) == (0, ["NAME", "WORKERS", "AGE"])
    code, _, stderr = await herd(mesh, "get", "connectors", "-c", "speed")
    assert (code, "there are: NAME" in stderr) == (2, True)

    code, text, _ = await herd(mesh, "describe", "connector", name)
    assert code == 0
    assert f"generation {running['connector']['generation']}" in text
    code, plugin, _ = await herd(mesh, "describe", "plugin", "ParquetSink", *json_out)
    assert (code, "directory" in {key["name"] for key in plugin["config"]}) == (0, True)
    code, topics, _ = await herd(mesh, "get", "topics", name, *json_out)
    assert (code, topics["name"]) == (0, name)

    victim = running["tasks"][0]["worker_id"]
    code, drained, _ = await herd(mesh, "drain", "worker", victim, *json_out)
    assert (code, drained["state"], drained["tasks"]) == (0, "DRAINED", [])
    moved = await mesh.until_running(name, 2)
    assert victim not in {unit["worker_id"] for unit in (moved["connector"], *moved["tasks"])}
    code, undrained, _ = await herd(mesh, "undrain", "worker", victim, *json_out)
    assert (code, undrained["state"]) == (0, "CONNECTED")

    code, changed, _ = await herd(mesh, "set-logger", "herdmesh.worker", "debug", "--worker", victim, *json_out)
    assert (code, "herdmesh.worker" in changed["affected"]) == (0, True)
    code, loggers, _ = await herd(mesh, "get", "loggers", "herdmesh.worker", *json_out)
    assert (code, {one["level"] for one in loggers if one["worker_id"] == victim}) == (0, {"DEBUG"})
    await herd(mesh, "set-logger", "herdmesh.worker", "info", "--worker", victim)
    code, failed, _ = await herd(mesh, "set-logger", "herdmesh.worker", "loud", *json_out)
    assert (code, failed["error"]["reason"]) == (5, "REQUEST_INVALID")


async def test_create_patch_history_and_restore(mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """A connector begins in the state and at the offsets of its create; an earlier config is restored, secrets kept."""
    name, lines, json_out = tmp_topic("src"), tmp_path / "in.txt", ("-o", "json")
    lines.write_text("first\nsecond\n")
    config = {"connector.class": "FileStreamSource", "file": str(lines), "topic": mesh.create_topic(tmp_topic())}
    secret = "producer.override.sasl.password"
    files = {
        "source.json": {"name": name, "config": {**config, secret: "hush"}, "initial_state": "STOPPED"},
        "offsets.json": {"offsets": [{"partition": {"filename": str(lines)}, "offset": {"position": 6}}]},
        "patch.json": {"file": str(tmp_path / "other.txt"), "added": 1},
    }
    for file, document in files.items():
        (tmp_path / file).write_text(json.dumps(document))
    source, offsets, patch = (str(tmp_path / file) for file in files)

    code, made, _ = await herd(mesh, "create", "-f", source, "--offsets", offsets, *json_out)
    assert (code, made["result"], made["target_state"]) == (0, "created", "STOPPED")
    code, patched, _ = await herd(mesh, "patch", name, "added=2", f"{secret}-", "-f", patch, *json_out)
    assert (code, patched["config"]["added"], secret in patched["config"]) == (0, "2", False)
    stores = ("--config-store", mesh.stack.state.config_store)
    code, changes, _ = await herd(mesh, "history", name, *stores, *json_out)
    assert changes[0]["changed"] == sorted(["added", "file", secret])
    first = changes[-1]
    assert (first["redacted"], "hush" in str(changes)) == ([secret], False)
    assert "@" in first["caller"]
    restore = ("restore", name, "--revision", first["revision"].rpartition("@")[2], *stores, *json_out)
    code, refused, _ = await herd(mesh, *restore)
    assert (code, secret in refused["error"]["message"]) == (2, True)
    code, restored, _ = await herd(mesh, *restore, "--secret", f"{secret}=again")
    assert (code, restored["config"]) == (0, {**config, "name": name, secret: "****"})
    assert restored["target_state"] == "STOPPED"


async def test_logs_events_and_use_of_a_running_connector(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic = mesh.create_topic(tmp_topic())
    name = f"sink-{topic}"
    await mesh.apply(name, parquet_sink(topic, tmp_path / "out"))
    await mesh.until_running(name, 2)
    code, lines, _ = await herd(mesh, "logs", "connector", name, "-o", "json")
    assert code == 0
    assert {line["task"] for line in lines if line["connector"] == name} >= {0, 1}, "each run sends its lines"
    code, used, _ = await herd(mesh, "top", "--interval", "0.2", "-o", "json")
    assert (code, used["silent"]) == (0, {})
    assert all(one["memory_bytes"] > 0 for one in used["workers"])
    code, found, _ = await herd(mesh, "events", name, "--config-store", mesh.stack.state.config_store, "-o", "json")
    assert code == 0
    assert {"change", "placed", "state"} <= {one["kind"] for one in found}
    await mesh.delete(name)
