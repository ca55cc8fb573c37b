"""Tests of the habits that every command has, over the tree of commands itself: a new command must have them too.

A command without a habit is named here with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.display.output import FORMATS, RECORD_FORMATS
from herdmesh.cli.grammar import canonical

ROOT: Any = typer.main.get_command(app)
Path = tuple[str, ...]


def tree(group: Any = ROOT, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every group and every command, with the words that name it."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from tree(command, (*path, name))
        else:
            yield (*path, name), command


TREE = dict(tree())
COMMANDS = {path: command for path, command in TREE.items() if not isinstance(command, TyperGroup)}
#: Every command that changes something beside the user's own files, and why it has no --wait, where it has none.
CHANGES: dict[Path, str] = {
    **dict.fromkeys([(one,) for one in ("apply", "create", "edit", "patch", "restore")], ""),
    **dict.fromkeys([(one,) for one in ("delete", "pause", "restart", "resume", "stop")], ""),
    ("drain", "worker"): "",
    ("undrain", "worker"): "the response comes when the worker takes work again",
    ("set-logger",): "the response comes when every worker has set the level",
    **dict.fromkeys([("offsets", one) for one in ("set", "reset", "rewind")], "ends when the offsets are committed"),
    ("dlq", "replay"): "ends when the transactions are committed",
    ("topics", "create"): "ends when each partition has a leader",
    ("topics", "delete"): "ends when the cluster no longer lists the topics",
    ("produce",): "ends when the broker has confirmed every record",
    ("example", "run"): "ends when the example has cleaned up",
    ("demo",): "ends when everything is stopped",
    ("up",): "--detach returns when all services serve",
    ("down",): "ends when every process has ended",
    ("run",): "runs until Ctrl-C",
}
QUERIES: set[Path] = {
    *((one,) for one in ("paths", "validate", "plan", "diff", "transform", "history", "consume", "watch", "doctor")),
    *((one,) for one in ("top", "events", "version", "help")),
    *(("get", one) for one in ("connectors", "tasks", "all", "workers", "plugins", "topics", "loggers")),
    *(("describe", one) for one in ("connector", "task", "worker", "plugin")),
    *(("logs", one) for one in ("connector", "task", "worker", "service")),
    *{("topics", "list"), ("topics", "describe"), ("dlq", "list"), ("dlq", "show"), ("offsets", "get")},
    ("example", "list"),
}
#: They change files of the user alone.
OF_FILES: set[Path] = {("plugin", "new"), *(("context", one) for one in ("show", "list", "set", "use", "delete"))}
NO_FORMAT: dict[Path, str] = {("help",): "prints the help of a command"}
RECORDS: set[Path] = {("consume",), ("transform",)}
#: Values that a herder, a Kafka, the folder of a stack or herd itself has the names of.
COMPLETED_ARGUMENTS = frozenset({"name", "names", "task", "worker_id", "class_name", "logger", "topic"})
COMPLETED_OPTIONS = frozenset(
    {("--context", "NAME"), ("--as-connector", "NAME"), ("--explain", "CODE"), ("--worker", "ID")}
)
TWO_MEANINGS: dict[str, str] = {
    "--all": "all connectors; of `herd history` all kinds of changes (-a)",
    "--dry-run": "of `herd apply` by the client or the server",
    "--explain": "of `herd transform` the compiled chain",
    "--file": "of a patch, offsets or dead letters one file, no folder",
    "--from": "a place in a topic; of `herd edit` the file of an edit that was refused",
    "--wait": "of a drain a flag, because it waits for one state only",
    "--config": "KEY=VALUE of a topic as in Kafka's own tools; of `herd transform` a file (-c)",
}
NEW_NAMES: dict[Path, str] = {("plugin", "new"): "the name of a package that does not exist yet"}


def options(command: Any) -> dict[str, Any]:
    return {spelling: one for one in command.params if one.param_type_name == "option" for spelling in one.opts}


def by_name(path: Path) -> str:
    return " ".join(path) or "herd"


def test_every_command_is_a_change_a_query_or_one_of_files() -> None:
    assert CHANGES.keys() | QUERIES | OF_FILES == COMMANDS.keys()
    assert len(CHANGES) + len(QUERIES) + len(OF_FILES) == len(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=by_name)
def test_a_command_prints_every_format(path: Path) -> None:
    option = options(COMMANDS[path]).get("--output")
    if path in NO_FORMAT:
        assert option is None
        return
    assert option is not None
    assert "-o" in option.opts
    for name in (*(RECORD_FORMATS if path in RECORDS else FORMATS), "jsonpath={.name}"):
        assert str(option.type_descriptor.parameter_info.parser(name)) == name


@pytest.mark.parametrize("path", CHANGES, ids=by_name)
def test_a_change_can_be_waited_for(path: Path) -> None:
    found = options(COMMANDS[path])
    assert ("--wait" in found) != bool(CHANGES[path])
    if "--wait" in found:
        assert "--timeout" in found


@pytest.mark.parametrize("path", [one for one in COMMANDS if one[0] == "get"], ids=by_name)
def test_a_list_can_be_watched(path: Path) -> None:
    assert "-w" in options(COMMANDS[path])["--watch"].opts


@pytest.mark.parametrize("path", [one for one in COMMANDS if one[0] == "logs" or one == ("events",)], ids=by_name)
def test_a_log_can_be_followed_and_begins_at_a_time(path: Path) -> None:
    assert {"--follow", "-f", "--since"} <= options(COMMANDS[path]).keys()


@pytest.mark.parametrize("path", COMMANDS, ids=by_name)
def test_names_that_exist_somewhere_are_completed(path: Path) -> None:
    for one in COMMANDS[path].params:
        is_named = one.param_type_name == "argument" and one.name in COMPLETED_ARGUMENTS and path not in NEW_NAMES
        is_option = COMPLETED_OPTIONS & {(spelling, one.metavar) for spelling in one.opts}
        if is_named or is_option:
            assert one._custom_shell_complete is not None, f"{by_name(path)}: {one.name} completes nothing"


@pytest.mark.parametrize("path", [path for path in TREE if path not in COMMANDS], ids=by_name)
def test_the_help_of_a_group_has_examples_of_its_commands(path: Path) -> None:
    """Those of a command are checked by test_grammar.py::test_every_help_has_an_example_and_no_type_of_python."""
    done = CliRunner().invoke(app, [*path, "-h"])
    assert done.exit_code == 0
    assert "Examples:" in done.stdout
    assert f"$ herd {' '.join(path)}".rstrip() in done.stdout


@pytest.mark.parametrize("path", TREE, ids=by_name)
def test_no_old_spelling_stays(path: Path) -> None:
    command = TREE[path]
    assert not command.deprecated
    assert not command.hidden
    for one in command.params:
        assert not getattr(one, "hidden", False)
        assert not getattr(one, "deprecated", False)
        longs = [spelling for spelling in one.opts if spelling.startswith("--")]
        assert len(longs) <= 1, f"{by_name(path)}: {longs} are two spellings of one option"


def test_an_option_means_the_same_in_every_command() -> None:
    """Its short form and the kind of its value: `--timeout` takes 30s everywhere, not seconds here and a time there."""
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    shorts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in TREE.items():
        for spelling, one in options(command).items():
            if not spelling.startswith("--"):
                continue
            short = ",".join(each for each in one.opts if not each.startswith("--"))
            shorts[spelling][short].append(by_name(path))
            kinds[spelling]["" if one.is_flag else str(one.metavar)].append(by_name(path))
    assert {name: dict(found) for name, found in shorts.items() if len(found) > 1 and name not in TWO_MEANINGS} == {}
    assert {name: dict(found) for name, found in kinds.items() if len(found) > 1 and name not in TWO_MEANINGS} == {}


@pytest.mark.parametrize("path", COMMANDS, ids=by_name)
def test_options_of_the_whole_program_may_stand_behind_every_command(path: Path) -> None:
    of_root = ["--no-headers", "--trace", "--context", "x"]
    assert canonical(ROOT, [*path, *of_root]) == [*of_root, *path]
