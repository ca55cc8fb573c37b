"""Commands of `herd` that change several connectors of a real mesh: files of every form, selections, waits, dry runs.

docs/how-to/change-connectors.md runs as printed.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from tests.docs.blocks import blocks
from tests.e2e.test_herd import herd
from tests.support.mesh import Mesh

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

JSON = ("-o", "json")


def _config(topic: str, file: Path, **more: str) -> dict[str, str]:
    strings = dict.fromkeys(("key.converter", "value.converter"), "org.apache.kafka.connect.storage.StringConverter")
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": topic, **strings, **more}


async def test_files_of_every_form_are_applied_waited_for_and_changed_together(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """A folder with JSON, YAML and properties; applied twice; paused, restarted, deleted by pattern, state and file."""
    topic, run = mesh.create_topic(tmp_topic()), tmp_topic("many")
    names = [f"{run}-{form}" for form in ("json", "props", "yaml")]
    folder = tmp_path / "connectors"
    folder.mkdir()
    configs = [_config(topic, tmp_path / f"{name}.txt", **{"tasks.max": "1"}) for name in names]
    (folder / "a.json").write_text(json.dumps({"name": names[0], "config": configs[0]}))
    lines = [f"{key}={value}" for key, value in {"name": names[1], **configs[1]}.items()]
    (folder / "b.properties").write_text("\n".join(["# a comment", *lines]))
    inner = [f"  {key}: {value}" for key, value in configs[2].items()]
    (folder / "c.yaml").write_text("\n".join([f"name: {names[2]}", "config:", *inner]))
    (folder / "notes.txt").write_text("not a connector")

    apply = ("apply", "-f", str(folder))
    code, dry, _ = await herd(mesh, *apply, "--dry-run=server", *JSON)
    assert (code, [(one["name"], one["result"]) for one in dry]) == (0, [(name, "created") for name in names])
    code, made, _ = await herd(mesh, *apply, "--wait", *JSON)
    assert (code, [one["result"] for one in made]) == (0, ["created"] * 3)
    running = {name: await mesh.get(name) for name in names}
    assert {unit["state"] for one in running.values() for unit in (one["connector"], *one["tasks"])} == {"RUNNING"}
    code, again, _ = await herd(mesh, *apply, *JSON)
    assert (code, [one["result"] for one in again]) == (0, ["unchanged"] * 3)
    code, text, _ = await herd(mesh, *apply)
    assert text.splitlines() == [f"connector {name} unchanged" for name in names]
    assert [_starts(await mesh.get(name)) for name in names] == [_starts(one) for one in running.values()]

    code, paused, _ = await herd(mesh, "pause", "--match", f"{run}-*", "--wait", "--timeout", "90s", *JSON)
    assert (code, [one["result"] for one in paused]) == (0, ["paused"] * 3)
    assert [(await mesh.get(name))["tasks"][0]["state"] for name in names] == ["PAUSED"] * 3
    code, resumed, _ = await herd(mesh, "resume", "--match", f"{run}-*", "--state", "paused", "--wait=running", *JSON)
    assert (code, len(resumed)) == (0, 3)
    before = await mesh.get(names[1])
    code, _, _ = await herd(mesh, "restart", names[1], "--include-tasks", "--wait", *JSON)
    after = await mesh.get(names[1])
    assert code == 0
    assert all(new > old for new, old in zip(_starts(after), _starts(before), strict=True))
    assert [unit["state"] for unit in (after["connector"], *after["tasks"])] == ["RUNNING", "RUNNING"]

    code, refused, _ = await herd(mesh, "stop", names[0], f"{names[1]}x", *JSON)
    assert (code, refused["error"]["reason"]) == (3, "CONNECTOR_NOT_FOUND")
    assert f"{names[1]}x (did you mean {names[1]}?); nothing was changed" in refused["error"]["message"]
    assert (await mesh.get(names[0]))["target_state"] == "STARTED"
    code, _, stderr = await herd(mesh, "delete", "-f", str(folder))
    assert (code, "give --yes where nobody can answer" in stderr) == (2, True)
    code, gone, _ = await herd(mesh, "delete", "-f", str(folder), "--yes", "--wait", *JSON)
    assert (code, [one["result"] for one in gone]) == (0, ["deleted"] * 3)


async def test_fifty_connectors_of_one_file_are_applied_and_deleted_in_seconds(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    """The goal is 5 s each on a quiet machine; three times that holds beside other tests."""
    topic, run = mesh.create_topic(tmp_topic()), tmp_topic("fifty")
    names = [f"{run}-{number:02}" for number in range(50)]
    file = tmp_path / "fifty.json"
    documents = [{"name": name, "config": _config(topic, tmp_path / f"{name}.txt")} for name in names]
    file.write_text(json.dumps(documents))
    begun_s = time.monotonic()
    code, made, _ = await herd(mesh, "apply", "-f", str(file), *JSON)
    applied_s = time.monotonic() - begun_s
    assert (code, [(one["name"], one["result"]) for one in made]) == (0, [(name, "created") for name in names])
    begun_s = time.monotonic()
    code, gone, _ = await herd(mesh, "delete", "-f", str(file), "--yes", *JSON)
    deleted_s = time.monotonic() - begun_s
    assert (code, [(one["name"], one["result"]) for one in gone]) == (0, [(name, "deleted") for name in names])
    assert (applied_s < 15, deleted_s < 15) == (True, True), (applied_s, deleted_s)


def _starts(connector: Any) -> list[tuple[int, int]]:
    return [(unit["generation"], unit["start_count"]) for unit in (connector["connector"], *connector["tasks"])]


async def test_the_page_about_changes_runs_as_printed(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = [(block.language, block.text) for block in blocks("docs/how-to/change-connectors.md")]
    topic = mesh.create_topic(tmp_topic())
    names = {"topics=orders": f"topics={topic}", "topics: orders": f"topics: {topic}", "-file": f"-{tmp_topic('file')}"}
    names |= {"file=": f"file={tmp_path}/", "file: ": f"file: {tmp_path}/"}

    def here(text: str) -> str:
        for there, ours in names.items():
            text = text.replace(there, ours)
        return text

    monkeypatch.chdir(tmp_path)
    yaml, properties = tmp_path / "connectors" / "orders.yaml", tmp_path / "connectors" / "audit.properties"
    (tmp_path / "connectors").mkdir()
    for file, of in ((yaml, "yaml"), (properties, "properties")):
        (text,) = [here(text) for language, text in page if language == of]
        file.write_text(text)
    steps = iter([(language, here(text)) for language, text in page if language in ("sh", "text")])
    for _, command in steps:
        language, wanted = next(steps)
        assert language == "text"
        if command.startswith("herd diff"):
            yaml.write_text(yaml.read_text().replace("tasks.max: 1", "tasks.max: 2"))
        done = await asyncio.to_thread(
            CliRunner().invoke,
            *(app, shlex.split(command)[1:]),
            env={"HERDMESH_HERDER": mesh.stack.state.herder},
            catch_exceptions=False,
        )
        assert done.output == wanted, command


async def test_diff_and_edit_show_changes_and_hide_secrets(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: a config that was printed with hidden secrets is refused, and a refused edit is kept."""
    name, topic = tmp_topic("edit"), mesh.create_topic(tmp_topic())
    secret = "consumer.override.sasl.password"
    config = _config(topic, tmp_path / "out.txt", **{secret: "hush-planted"})
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    code, made, _ = await herd(mesh, "apply", "-f", str(file), *JSON)
    assert (code, made["config"][secret]) == (0, "****")
    code, shown, _ = await herd(mesh, "get", "connectors", name, *JSON)
    assert {one["config"][secret] for one in (shown, *shown["tasks"])} == {"****"}
    code, whole, _ = await herd(mesh, "get", "connectors", name, "--show-secrets", *JSON)
    assert whole["config"][secret] == "hush-planted"
    code, text, _ = await herd(mesh, "describe", "connector", name)
    assert "hush-planted" not in text
    file.write_text(json.dumps(shown))
    code, refused, _ = await herd(mesh, "apply", "-f", str(file), *JSON)
    assert (code, [one["field"] for one in refused["error"]["fields"]]) == (5, [secret])

    file.write_text(json.dumps({"name": name, "config": {**config, "batch.note": "new", secret: "other-planted"}}))
    code, found, _ = await herd(mesh, "diff", "-f", str(file), *JSON)
    assert (code, found["result"]) == (1, "updated")
    assert found["changes"] == [
        {"key": "batch.note", "change": "added", "new": "new", "secret": False},
        {"key": secret, "change": "changed", "old": "****", "new": "****", "secret": True},
    ]
    code, text, _ = await herd(mesh, "diff", "-f", str(file))
    assert (code, "planted" in text) == (1, False)
    assert f"+ {secret}: **** (a secret that differs)" in text.splitlines()
    file.write_text(json.dumps({"name": name, "config": config}))
    code, text, _ = await herd(mesh, "diff", "-f", str(file))
    assert (code, text) == (0, f"connector {name}: no difference\n")

    editor = tmp_path / "editor.py"
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    monkeypatch.delenv("VISUAL", raising=False)
    editor.write_text("")
    code, kept, _ = await herd(mesh, "edit", name, *JSON)
    assert (code, kept["result"]) == (0, "unchanged")
    editor.write_text(_editing("'tasks.max: two'"))
    code, refused, _ = await herd(mesh, "edit", name, *JSON)
    assert (code, [one["field"] for one in refused["error"]["fields"]]) == (5, ["tasks.max"])
    left = refused["error"]["next_step"].partition("kept in ")[2].partition(":")[0]
    text = await asyncio.to_thread(Path(left).read_text)
    assert "tasks.max: two" in text
    assert "planted" not in text
    editor.write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\nfile.write_text(file.read_text().replace('two', '2'))\n"
    )
    code, done, _ = await herd(mesh, "edit", name, "--from", left, "--wait", *JSON)
    assert (code, done["result"], done["config"]["tasks.max"]) == (0, "updated", "2")
    assert not await asyncio.to_thread(Path(left).exists)
    code, whole, _ = await herd(mesh, "get", "connectors", name, "--show-secrets", *JSON)
    assert whole["config"] == {**config, "name": name, "tasks.max": "2"}


def _editing(line: str) -> str:
    """An editor that adds a line to the config, which is last in the file."""
    return f"import sys\nwith open(sys.argv[1], 'a') as file:\n    file.write('  ' + {line} + chr(10))\n"
