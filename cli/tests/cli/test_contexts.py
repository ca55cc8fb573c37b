"""Tests of `herd context`, and of the mesh of a command: a change never goes to a mesh that is only a guess."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as messages
from herdmesh.cli.app import app
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh import contexts
from herdmesh.cli.mesh.contexts import find_kafka_target, find_target, guard, select
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackLayout, StackState

CHANGE, QUERY = messages.PauseConnectorRequest(name="x", request_id="r"), admin.GetClusterRequest()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in (contexts.CONTEXT_ENV, *(name for name, _ in contexts.SERVICES.values())):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    contexts.select("")
    return folder


def herd(*line: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["context", *line])
    assert done.exit_code == code, done.output
    return done.stdout if not code else done.stderr


def stack(folder: Path, herder: str, *, runs: bool = True) -> None:
    """The state file of a stack of `herd up`; its herder is this process, or one that has ended."""
    mark = ProcessMark.of(os.getpid()) if runs else ProcessMark(os.getpid(), 1.0)
    services = [ServiceState("herder", herder, "serving", mark=mark)]
    StackLayout(folder).write_state(StackState(ready=True, herder=herder, config_store="c:1", services=services))


def refused(option: str | None = None) -> str:
    with pytest.raises(CommandError) as error:
        guard(option)(CHANGE)
    assert (error.value.reason, error.value.exit_code) == ("MESH_NOT_NAMED", 2)
    here = find_target(option).source != "context"
    assert error.value.next_step.startswith("`herd up --detach` starts one here." if here else "Name it:")
    return error.value.message


def test_the_order_of_the_places_that_name_a_mesh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [find_target(None).text()]
    stack(home / ".herd", "folder:1")
    found.append(find_target(None).text())
    herd("set", "prod", "--herder", "prod:1", "--use")
    found.append(find_target(None).text())
    herd("set", "test", "--herder", "test:1")
    monkeypatch.setenv("HERDMESH_CONTEXT", "test")
    found.append(find_target(None).text())
    monkeypatch.setenv("HERDMESH_HERDER", "env:1")
    found.append(find_target(None).text())
    contexts.select("prod")
    found.append(find_target(None).text())
    found.append(find_target("option:1").text())
    assert found == [
        *("127.0.0.1:7203", "./.herd (folder:1)", "prod (prod:1)", "test (test:1)", "env:1", "prod (prod:1)"),
        "option:1",
    ]


def test_a_context_is_set_used_listed_and_deleted() -> None:
    assert "no contexts yet" in herd("list")
    herd("set", "prod", "--herder", "a:1,b:1", "--config-store", "c:1")
    herd("set", "test", "--herder", "t:1")
    assert "commands use prod (a:1,b:1)" in herd("use", "prod")
    assert [line.split() for line in herd("list").splitlines()[1:]] == [
        ["*", "prod", "a:1,b:1", "-"],
        ["test", "t:1", "-"],
    ]
    assert herd("list", "-o", "name") == "context/prod\ncontext/test\n"
    assert json.loads(herd("show", "-o", "json")) == {
        "name": "prod", "herder": "a:1,b:1", "source": "context", "bootstrap_servers": None,
        "bootstrap_servers_source": None,
    }  # fmt: skip
    assert find_target(None, "config_store").address == "c:1"
    herd("delete", "prod")
    assert find_target(None).source == "default"
    assert "no context prod; there are: test" in " ".join(herd("use", "prod", code=3).split())
    herd("use", "test")
    herd("use", "--none")
    assert find_target(None).source == "default"


@pytest.mark.parametrize(
    "line", [["set", "x"], ["set", "x", "--herder", "a:1", "--data", "d"], ["use"], ["use", "x", "--none"]]
)
def test_wrong_usage_changes_nothing(line: list[str]) -> None:
    herd(*line, code=2)
    assert not contexts.contexts_file().exists()


def test_a_file_that_is_not_one_of_contexts_is_named() -> None:
    contexts.contexts_file().parent.mkdir(parents=True)
    contexts.contexts_file().write_text("[]")
    assert "contexts.json cannot be read as contexts" in herd("list", code=2)


def test_a_context_of_a_stack_has_the_ports_that_it_has_now(home: Path) -> None:
    data = home / "data"
    herd("set", "dev", "--data", str(data), "--use")
    with pytest.raises(CommandError, match=r"nothing runs in .*, the data folder of context dev"):
        find_target(None)
    for address in ("h:1", "h:2"):
        stack(data, address)
        assert find_target(None).address == address


def test_a_query_may_go_anywhere() -> None:
    guard(None)(QUERY)


@pytest.mark.parametrize("named", ["option", "environment", "context", "context by environment", "current context"])
def test_a_change_may_go_to_a_mesh_that_is_named(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    herd("set", "prod", "--herder", "prod:1")
    said: list[str] = []
    match named:
        case "environment":
            monkeypatch.setenv("HERDMESH_HERDER", "prod:1")
        case "context":
            contexts.select("prod")
        case "context by environment":
            monkeypatch.setenv("HERDMESH_CONTEXT", "prod")
        case "current context":
            herd("use", "prod")
        case _:
            pass
    check = guard("prod:1" if named == "option" else None, said.append)
    check(CHANGE)
    check(CHANGE)
    assert said == (["mesh: prod (prod:1)"] if "context" in named and named != "context" else [])


def test_a_change_goes_to_the_mesh_of_the_folder_only_while_it_runs(home: Path) -> None:
    stack(home / ".herd", "folder:1")
    guard(None)(CHANGE)
    stack(home / ".herd", "folder:1", runs=False)
    assert "the mesh of ./.herd does not run, and folder:1 may be another one by now" in refused()
    guard("folder:1")(CHANGE)


def test_another_folder_does_not_send_a_change_to_another_mesh(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack(home / ".herd", "one:1")
    other, nowhere = tmp_path / "other", tmp_path / "nowhere"
    nowhere.mkdir()
    stack(other / ".herd", "two:1")
    monkeypatch.chdir(nowhere)
    assert "none runs in this folder (127.0.0.1:7203 is only the usual address)" in refused()
    herd("set", "one", "--data", str(home / ".herd"), "--use")
    guard(None)(CHANGE)  # the context is one:1 in every folder
    assert find_target(None).address == "one:1"
    monkeypatch.chdir(other)
    assert "the mesh of this folder is two:1, and the current context is one (one:1)" in refused()
    contexts.select("one")
    guard(None)(CHANGE)
    monkeypatch.chdir(home)
    contexts.select("")
    guard(None)(CHANGE)  # both say the same


def test_the_command_line_refuses_the_guess_before_it_connects() -> None:
    done = CliRunner().invoke(app, ["pause", "orders", "-o", "json"])
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["reason"] == "MESH_NOT_NAMED"


def test_the_option_of_the_whole_program_names_a_context() -> None:
    done: Any = CliRunner().invoke(app, ["get", "co", "--context", "nosuch"])
    assert done.exit_code == 3
    assert "no context nosuch" in done.stderr


def test_a_query_of_a_mesh_that_has_ended_fails_at_once(home: Path) -> None:
    """The address of a stopped stack is not asked, since nothing, or another program, may answer there by now."""
    stack(home / ".herd", "folder:1", runs=False)
    state = StackLayout(home / ".herd").read_state()
    assert state is not None
    assert find_target(None).address == "folder:1", "its supervisor is not known, so it may still start services"
    state.supervisor = ProcessMark(os.getpid(), 1.0)
    StackLayout(home / ".herd").write_state(state)
    with pytest.raises(CommandError) as error:
        find_target(None)
    assert (error.value.reason, error.value.message) == ("UNREACHABLE", "the mesh of ./.herd does not run")
    assert error.value.next_step.startswith("`herd up --detach` starts it. Name it: --herder HOST:PORT")
    assert find_target("named:1").address == "named:1"


def test_the_kafka_of_a_stack_that_has_ended_is_not_asked_unless_it_is_another_cluster(home: Path) -> None:
    gone = ProcessMark(os.getpid(), 1.0)
    services = [ServiceState(name, "h:1", "stopped", mark=gone) for name in ("broker", "herder")]
    layout = StackLayout(home / ".herd")
    layout.write_state(StackState(herder="h:1", bootstrap_servers="k:1", services=services))
    with pytest.raises(CommandError, match=r"the Kafka of ./.herd does not run") as error:
        find_kafka_target(None)
    assert error.value.reason == "UNREACHABLE"
    herd("set", "other", "--data", str(home / ".herd"))
    select("other")
    for find in (find_target, find_kafka_target):
        with pytest.raises(CommandError, match=r"nothing runs in .*, the data folder of context other"):
            find(None)
    select("")
    layout.write_state(StackState(herder="h:1", bootstrap_servers="k:1", services=services[1:]))
    assert find_kafka_target(None).address == "k:1", "a cluster that the stack only used"
