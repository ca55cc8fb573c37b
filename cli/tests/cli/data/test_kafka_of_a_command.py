"""Tests of the Kafka of a command: where its address comes from, and that a change never goes to a guess."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import CommandError
from herdmesh.cli.kafka.access import KafkaAccess, find_kafka
from herdmesh.cli.mesh import contexts
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in (contexts.CONTEXT_ENV, contexts.KAFKA_ENV, *(name for name, _ in contexts.SERVICES.values())):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    contexts.select("")
    return folder


def herd(*line: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, list(line))
    assert done.exit_code == code, done.output
    return done


def stack(folder: Path, kafka: str, *, runs: bool = True) -> None:
    """The state file of a stack of `herd up`; its broker is this process, or one that has ended."""
    mark = ProcessMark.of(os.getpid()) if runs else ProcessMark(os.getpid(), 1.0)
    services = [ServiceState("broker", kafka, "serving", mark=mark)]
    StackLayout(folder).write_state(StackState(ready=True, bootstrap_servers=kafka, herder="h:1", services=services))


def change(option: str | None = None, file: Path | None = None) -> KafkaAccess:
    return find_kafka(option, file, is_change=True)


def refused(option: str | None = None) -> str:
    with pytest.raises(CommandError) as error:
        change(option)
    assert (error.value.reason, error.value.exit_code) == ("MESH_NOT_NAMED", 2)
    assert "--bootstrap-servers" in error.value.next_step
    return error.value.message


def test_the_order_of_the_places_that_name_a_kafka(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack(home / ".herd", "folder:1")
    found = [find_kafka(None, None).name]
    herd("context", "set", "prod", "--herder", "h:1", "--bootstrap-servers", "prod:1", "--use")
    found.append(find_kafka(None, None).name)
    herd("context", "set", "test", "--herder", "h:1", "--bootstrap-servers", "test:1")
    monkeypatch.setenv("HERDMESH_CONTEXT", "test")
    found.append(find_kafka(None, None).name)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    found.append(find_kafka(None, file).name)
    monkeypatch.setenv(contexts.KAFKA_ENV, "env:1")
    found.append(find_kafka(None, file).name)
    contexts.select("prod")
    found.append(find_kafka(None, None).name)
    found.append(find_kafka("option:1", file).name)
    assert found == [
        *("./.herd (folder:1)", "prod (prod:1)", "test (test:1)", "file:1", "env:1", "prod (prod:1)", "option:1")
    ]


def test_a_context_and_a_file_on_one_line_that_name_different_clusters_are_refused(tmp_path: Path) -> None:
    herd("context", "set", "prod", "--herder", "h:1", "--bootstrap-servers", "prod:1")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    contexts.select("prod")
    with pytest.raises(CommandError, match=r"--context prod is prod:1, and the file of --command-config names file:1"):
        find_kafka(None, file)
    file.write_text("bootstrap.servers=prod:1\nsecurity.protocol=PLAINTEXT\n")
    assert find_kafka(None, file).properties == {"security.protocol": "PLAINTEXT"}


def test_a_context_brings_its_client_properties(tmp_path: Path) -> None:
    file = tmp_path / "prod.properties"
    file.write_text("security.protocol=PLAINTEXT\nbootstrap.servers=other:1\n")
    more = ["--bootstrap-servers", "prod:1", "--command-config", str(file)]
    herd("context", "set", "prod", "--herder", "h:1", *more, "--use")
    found = find_kafka(None, None)
    assert (found.bootstrap_servers, found.file) == ("prod:1", str(file))
    assert found.properties == {"security.protocol": "PLAINTEXT"}
    assert find_kafka("else:1", None).properties == {}, "a login is sent to no other cluster"


def test_a_context_without_a_kafka_does_not_fall_back_to_the_folder(home: Path) -> None:
    stack(home / ".herd", "folder:1")
    herd("context", "set", "prod", "--herder", "h:9", "--use")
    with pytest.raises(CommandError, match="context prod has no address of a Kafka") as error:
        find_kafka(None, None)
    assert "herd context set prod --herder h:9 --bootstrap-servers HOST:PORT" in error.value.next_step


def test_a_context_of_a_stack_has_the_kafka_that_the_stack_has_now(home: Path) -> None:
    data = home / "data"
    herd("context", "set", "dev", "--data", str(data), "--use")
    with pytest.raises(CommandError, match=r"nothing runs in .*, the data folder of context dev"):
        find_kafka(None, None)
    for address in ("k:1", "k:2"):
        stack(data, address)
        assert find_kafka(None, None).bootstrap_servers == address


def test_another_folder_changes_no_topics_of_another_cluster(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack(home / ".herd", "one:1")
    other = tmp_path / "other"
    stack(other / ".herd", "two:1")
    herd("context", "set", "one", "--data", str(home / ".herd"), "--use")
    change()
    assert capsys.readouterr().err == "Kafka: one (one:1)\n"
    monkeypatch.chdir(other)
    assert find_kafka(None, None).bootstrap_servers == "one:1"
    assert "the Kafka of this folder is two:1, and the current context is one (one:1)" in refused()
    assert change("two:1").bootstrap_servers == "two:1"
    contexts.select("one")
    capsys.readouterr()
    assert change().bootstrap_servers == "one:1"
    assert capsys.readouterr().err == "", "--context says it already"


def test_topics_of_a_stack_that_does_not_run_are_not_changed(home: Path) -> None:
    stack(home / ".herd", "folder:1", runs=False)
    assert "the Kafka of ./.herd does not run, and folder:1 may be another one by now" in refused()
    assert find_kafka(None, None).bootstrap_servers == "folder:1"
    for line in (["topics", "create", "a"], ["topics", "delete", "a", "--yes"]):
        assert json.loads(herd(*line, "-o", "json", code=2).stdout)["error"]["reason"] == "MESH_NOT_NAMED"
    done = CliRunner().invoke(app, ["produce", "a", "-o", "json"], input="x\n")
    assert json.loads(done.stdout)["error"]["reason"] == "MESH_NOT_NAMED"


def test_context_show_names_the_kafka_too(home: Path) -> None:
    assert "Kafka: none is known" in herd("context", "show").stdout
    stack(home / ".herd", "folder:1")
    assert "Kafka ./.herd (folder:1): the stack of this folder" in herd("context", "show").stdout
    shown = json.loads(herd("context", "show", "-o", "json").stdout)
    assert (shown["bootstrap_servers"], shown["bootstrap_servers_source"]) == ("folder:1", "folder")
