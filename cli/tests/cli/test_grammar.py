"""Tests of the grammar: noun forms, options anywhere, help with examples and readable types."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.examples import EXAMPLES
from herdmesh.cli.grammar import NOUNS, canonical

ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with the words that name it."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        ("get connectors", "get connectors"),
        ("get connector", "get connectors"),
        ("get co", "get connectors"),
        ("get co orders", "get connectors orders"),
        ("get co/orders", "get connectors orders"),
        ("get connector/orders -o yaml", "get connectors orders -o yaml"),
        ("get wo", "get workers"),
        ("get pl", "get plugins"),
        ("get worker 127.0.0.1:7204", "get workers 127.0.0.1:7204"),
        ("get topic orders", "get topics orders"),
        ("get topics co/orders", "get topics orders"),
        ("describe connectors orders", "describe connector orders"),
        ("describe co orders", "describe connector orders"),
        ("describe connector/orders", "describe connector orders"),
        ("describe task orders/0", "describe task orders/0"),
        ("describe task/orders/0", "describe task orders/0"),
        ("describe plugins Sink", "describe plugin Sink"),
        ("drain workers w1", "drain worker w1"),
        ("drain wo w1 --no-wait", "drain worker w1 --no-wait"),
        ("undrain worker/w1", "undrain worker w1"),
        ("pause orders", "pause orders"),
        ("pause connector orders", "pause orders"),
        ("pause co orders", "pause orders"),
        ("pause co/orders", "pause orders"),
        ("pause -o json connectors orders", "pause -o json orders"),
        ("pause co", "pause co"),
        ("pause co/co", "pause co"),
        ("pause co/co/x", "pause co/x"),
        ("pause a/b", "pause a/b"),
        ("delete --yes connector/orders", "delete --yes orders"),
        ("patch co/orders tasks.max=4 co/x=5", "patch orders tasks.max=4 co/x=5"),
        ("offsets get co orders", "offsets get orders"),
        ("dlq show connector/orders 0:1", "dlq show orders 0:1"),
        ("restart task orders/0", "restart orders --task 0"),
        ("restart task/orders/0 -o json", "restart orders --task 0 -o json"),
        ("restart ta a/b/3", "restart a/b --task 3"),
        ("restart orders --task 0", "restart orders --task 0"),
        ("watch co/a co/b", "watch a b"),
        ("pause --wait co/orders", "pause --wait orders"),
        ("delete --wait --no-headers co a b", "--no-headers delete --wait a b"),
        ("plugin new co/x", "plugin new co/x"),
        ("--herder h:1 get co", "get connectors --herder h:1"),
        ("--herder=h:1 get co", "get connectors --herder=h:1"),
        ("get --herder h:1 co orders", "get connectors --herder h:1 orders"),
        ("-o json --herder h:1 pause co orders", "pause -o json --herder h:1 orders"),
        ("-ojson get co", "get connectors -ojson"),
        ("get co --no-headers", "--no-headers get connectors"),
        ("--no-headers get co", "--no-headers get connectors"),
        ("get --no-headers co --match x", "--no-headers get connectors --match x"),
        ("--trace --herder h:1 create -f x", "--trace create --herder h:1 -f x"),
        ("create -f x --trace", "--trace create -f x"),
        ("get co --match --no-headers", "get connectors --match --no-headers"),
        ("restore x --secret -- --no-headers", "--no-headers restore x --secret --"),
        ("get co -rn 5 --no-headers", "--no-headers get connectors -rn 5"),
        ("transform -c x -o value -- --trace", "transform -c x -o value -- --trace"),
        ("nosuch --no-headers", "nosuch --no-headers"),
        ("", ""),
    ],
)
def test_a_line_is_brought_into_declared_form(given: str, declared: str) -> None:
    assert canonical(ROOT, given.split()) == declared.split()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_declared_form_is_not_changed(path: tuple[str, ...]) -> None:
    line = [*path, "x", "--", "--no-headers", "co"]
    assert canonical(ROOT, line) == line


def test_short_names_are_unique_and_no_command_has_the_name_of_a_noun() -> None:
    forms = [form for three in NOUNS.values() for form in three]
    assert len(set(forms)) == len(forms)
    assert not {path[0] for path in COMMANDS if len(path) == 1} & set(forms)


def run(*line: str) -> Any:
    return CliRunner().invoke(app, list(line))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_and_no_type_of_python(path: tuple[str, ...]) -> None:
    """An example is in `herdmesh.cli.examples`."""
    for option in ("-h", "--help"):
        done = run(*path, option)
        assert done.exit_code == 0
        assert f"$ herd {' '.join(path[:1])}" in done.stdout, f"herd {' '.join(path)} has no example in its help"
        for word in ("<bool>", "<str>", "<int>", "<float>", "<list", "<file>", "<path>", "<format>", "<none", "<json"):
            assert word not in done.stdout


def test_the_help_of_herd_has_every_command_in_a_section() -> None:
    shown = run("-h").stdout
    assert "<bool>" not in shown
    titles = re.findall(r"─ (\w[\w, ]+) ─", shown)
    assert titles[:2] == ["Options", "Begin"]
    assert "Commands" not in titles
    assert all(re.search(rf"^│ {name} ", shown, re.MULTILINE) for name in ROOT.commands)


@pytest.mark.parametrize(
    ("path", "line"),
    [pytest.param(path, line, id=line) for path, examples in EXAMPLES.items() for line, _ in examples],
)
def test_an_example_is_valid_and_of_its_command(path: tuple[str, ...], line: str) -> None:
    words = shlex.split(line.rpartition("| ")[2])
    assert words.pop(0) == "herd"
    words = canonical(ROOT, words)
    at = words.index(path[0])
    assert tuple(words[at : at + len(path)]) == path
    command = COMMANDS[path]
    context = typer.Context(command, info_name="herd")
    command.make_parser(context).parse_args(words[at + len(path) :])
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.required:
            assert len(words) > at + len(path)


def test_help_is_the_help_of_the_command() -> None:
    assert run("help").stdout == run("--help").stdout == run("-h").stdout
    assert run("help", "get", "co").stdout == run("get", "connectors", "--help").stdout
    assert "--no-headers" in run("help").stdout
    assert run("help", "nosuch").exit_code == 2


def test_the_version_is_an_option_too() -> None:
    assert run("--version").stdout.split()[:2] == ["herd", version("herdmesh-cli")]


@pytest.mark.parametrize("line", [["describe", "orders"], ["get", "ordrs"], ["drain", "w1"]])
def test_a_missing_noun_is_named_with_an_example(line: list[str]) -> None:
    done = run(*line)
    assert done.exit_code == 2
    told = " ".join(done.stderr.replace("│", " ").split())
    assert "is no kind of object" in told
    assert f"Example: herd {line[0]}" in told
