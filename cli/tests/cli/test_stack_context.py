"""Tests of the context that `herd up` adds and `herd down` deletes, and of the data folder that `--context` names."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh import contexts, stack_context
from herdmesh.cli.mesh.contexts import Context, Contexts, find_target
from herdmesh.devstack.layout import ProcessMark, StackLayout, StackState


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in (contexts.CONTEXT_ENV, *(name for name, _ in contexts.SERVICES.values())):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "my shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    contexts.select("")
    return folder


def stack(folder: Path, herder: str = "h:1", *, runs: bool = True) -> Path:
    """A data folder; its supervisor is this process, or one that has ended."""
    mark = ProcessMark.of(os.getpid()) if runs else ProcessMark(os.getpid(), 1.0)
    StackLayout(folder).write_state(StackState(mark, ready=True, herder=herder))
    return folder


def test_a_stack_is_reached_by_its_context_from_every_folder_until_it_is_stopped(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = stack(Path(".herd"))
    named = stack_context.add(data)
    assert named.lines() == [
        "Its context is my-shop: `herd --context my-shop get connectors` reaches it from every folder."
    ]
    monkeypatch.chdir(tmp_path)
    assert find_target(None).source == "default", "no context became the current one"
    contexts.select("my-shop")
    assert find_target(None).address == "h:1"
    assert stack_context.data_folder(contexts.DEFAULT_DATA_DIR) == home / ".herd"
    assert stack_context.running() == [("my-shop", str(home / ".herd"))]
    assert stack_context.remove(home / ".herd") == "my-shop"
    assert Contexts.read().named == {}
    assert stack_context.remove(home / ".herd") == ""


def test_the_current_context_stays_and_is_named(home: Path) -> None:
    with Contexts.change() as found:
        found.named["prod"], found.current = Context("p:1"), "prod"
    named = stack_context.add(stack(home / ".herd"))
    assert Contexts.read().current == "prod"
    assert "The current context is prod, and commands use that one, also in this folder" in named.lines()[1]
    with Contexts.change() as found:
        found.current = "my-shop"
    assert "the current one" in stack_context.add(home / ".herd").lines()[0]
    stack_context.remove(home / ".herd")
    assert (Contexts.read().current, list(Contexts.read().named)) == ("", ["prod"])


def test_names_are_chosen_by_folder_and_never_taken_from_another_mesh(home: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name / ".herd" for name in ("a/shop", "b/shop")]
    assert [stack_context.add(stack(one)).name for one in folders] == ["shop", "shop-2"]
    assert stack_context.add(folders[0]).name == "shop", "the next start has the same name"
    assert stack_context.add(stack(tmp_path / "mesh-data")).name == "mesh-data"
    with pytest.raises(CommandError, match=f"context shop-2 is {folders[1]} already"):
        stack_context.check(folders[0], "shop-2")
    stack_context.check(folders[0], "dev")
    assert stack_context.add(folders[0], "dev").name == "dev"
    assert sorted(Contexts.read().named) == ["dev", "mesh-data", "shop-2"], "renamed"


def test_a_context_of_the_user_is_kept_and_used(home: Path) -> None:
    data = stack(home / ".herd")
    with Contexts.change() as found:
        found.named["mine"] = Context(data=str(data))
    assert stack_context.add(data).name == "mine"
    assert stack_context.remove(data) == ""
    assert list(Contexts.read().named) == ["mine"]


def test_the_context_of_a_folder_that_was_removed_goes_with_the_next_start(home: Path, tmp_path: Path) -> None:
    stack_context.add(stack(tmp_path / "gone" / ".herd"))
    StackLayout(tmp_path / "gone" / ".herd").state_file.unlink()
    stack_context.add(stack(home / ".herd"))
    assert list(Contexts.read().named) == ["my-shop"]


def test_many_starts_at_once_lose_no_context(tmp_path: Path) -> None:
    folders = [stack(tmp_path / f"f{number}" / ".herd") for number in range(12)]
    threads = [threading.Thread(target=stack_context.add, args=(one,)) for one in folders]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(Contexts.read().named) == 12


def test_down_in_another_folder_names_the_stacks_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack_context.add(stack(tmp_path / "shop" / ".herd"))
    done = CliRunner().invoke(app, ["down"], env={"COLUMNS": "400"})
    assert done.exit_code == 0
    assert f"in {tmp_path / 'shop' / '.herd'} a stack runs: `herd down --context shop` stops it" in done.stdout


def test_down_deletes_the_context_of_a_stack_that_is_gone(home: Path) -> None:
    stack_context.add(stack(home / ".herd", runs=False))
    done = CliRunner().invoke(app, ["down", "--context", "my-shop", "-o", "json"])
    assert json.loads(done.stdout) == {"result": "not_running", "data": str(home / ".herd"), "context": "my-shop"}
    assert Contexts.read().named == {}


@pytest.mark.parametrize(
    ("line", "says", "code"),
    [
        (["down", "--context", "prod"], "a mesh that `herd up` did not start on this machine", 2),
        (["down", "--context", "none"], "no context none; there are: prod", 3),
        (["down", "--context", "prod", "--data", "x"], "--data and --context both name a mesh", 2),
        (["up", "--context", "prod"], "context prod is p:1 already", 2),
    ],
)
def test_a_context_that_cannot_be_meant_is_refused(line: list[str], says: str, code: int) -> None:
    with Contexts.change() as found:
        found.named["prod"] = Context("p:1")
    done = CliRunner().invoke(app, line)
    assert done.exit_code == code
    assert says in " ".join(done.stderr.split())


def test_a_stack_runs_without_a_context_where_none_can_be_written(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from herdmesh.cli.commands.up import _name  # pyright: ignore[reportPrivateUsage]

    contexts.contexts_file().parent.parent.write_text("a file where the folder would be")
    assert _name(stack(home / ".herd")) is None
    assert "the stack has no context: " in capsys.readouterr().err
