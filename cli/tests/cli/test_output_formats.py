"""Tests of `-o`: every format of a command that has documents, errors, `--no-headers`, and NO_COLOR."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from herdmesh.cli import commands
from herdmesh.cli.display import output
from herdmesh.cli.display.output import FORMATS, Format, print_document, print_error, print_line
from herdmesh.cli.errors import CommandError

ORDERS: Any = {"name": "orders", "lag": 1_234, "tasks": [0, 1]}


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("name", [*FORMATS, "jsonpath={.name}"])
def test_a_format_is_parsed_and_printed_as_it_was_given(name: str) -> None:
    assert str(Format.parse(name)) == name
    assert Format.parse(name).is_document == (name not in ("table", "wide"))


@pytest.mark.parametrize("name", ["xml", "jsonpath", "jsonpath=", "json=x", "TABLE", ""])
def test_an_unknown_format_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="there are: table, wide, json, yaml, name, csv, jsonpath="):
        Format.parse(name)


def printed(capsys: pytest.CaptureFixture[str], name: str, document: Any, **more: Any) -> str:
    print_document(Format.parse(name), document, **more)
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_each_format_prints_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(capsys, "json", ORDERS)) == ORDERS
    assert yaml.safe_load(printed(capsys, "yaml", ORDERS)) == ORDERS
    assert printed(capsys, "name", ORDERS) == "connector/orders\n"
    assert printed(capsys, "csv", ORDERS) == 'name,lag,tasks\norders,1234,"[0, 1]"\n'
    assert printed(capsys, "jsonpath={.tasks[1]}", ORDERS) == "1\n"
    assert printed(capsys, "name", []) == ""


def test_an_enum_is_its_text_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("json", "yaml", "csv", "jsonpath={.name}"):
        assert "red" in printed(capsys, name, {"name": Colour.RED})


def test_csv_of_a_table_has_bare_cells(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (("NAME", "LAG", "STATE", "NOTE"), [["a\\[b]", "1,234", "[bold red]FAILED[/]", "-"], ["c", "-", "", "x,y"]])
    assert printed(capsys, "csv", [], rows=rows) == 'NAME,LAG,STATE,NOTE\na[b],1234,FAILED,\nc,,,"x,y"\n'


def test_no_headers_leaves_out_the_line_of_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.out, "headers", False)
    assert printed(capsys, "csv", {"a": 1}) == "1\n"


def test_a_stream_is_a_line_of_json_or_a_document_of_yaml_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("json", "yaml", "name", "csv", "jsonpath={.lag}"):
        for _ in range(2):
            print_line(Format.parse(name), ORDERS)
    told = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in told[:2]] == [ORDERS, ORDERS]
    assert told[2] == "---"
    assert told[-6:] == [*["connector/orders"] * 2, *['orders,1234,"[0, 1]"'] * 2, *["1234"] * 2]


@pytest.mark.parametrize("name", ["json", "yaml"])
def test_an_error_is_a_document_in_json_and_yaml(capsys: pytest.CaptureFixture[str], name: str) -> None:
    print_error(CommandError("USAGE", "no such thing", "Name another."), Format.parse(name))
    told = capsys.readouterr()
    assert yaml.safe_load(told.out)["error"]["reason"] == "USAGE"
    assert told.err == ""


@pytest.mark.parametrize("name", ["name", "csv", "jsonpath={.name}", "wide"])
def test_an_error_is_text_on_standard_error_in_other_formats(capsys: pytest.CaptureFixture[str], name: str) -> None:
    print_error(CommandError("USAGE", "no such thing"), Format.parse(name))
    told = capsys.readouterr()
    assert told.out == ""
    assert "no such thing" in told.err


@pytest.mark.parametrize(("value", "coloured"), [("1", False), ("", True)])
def test_no_color_leaves_out_every_style(monkeypatch: pytest.MonkeyPatch, value: str, coloured: bool) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = output.OutputConsole(sys.stdout)
    with console.capture() as told:
        console.print("[bold red]FAILED[/]")
    assert ("\x1b[" in told.get()) == coloured


def test_a_pipe_has_no_width_whatever_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with open("/dev/null", "w", encoding="utf-8") as stream:
        assert output.OutputConsole(stream).width > 1_000


def test_no_command_prints_json_by_itself() -> None:
    """Documents go through `herdmesh.cli.display.output`, so that each command has every format."""
    folder = Path(inspect.getfile(commands)).parent
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            compared = isinstance(node, ast.Compare) and any(
                isinstance(one, ast.Attribute) and one.attr == "JSON" for one in node.comparators
            )
            assert not compared, f"{file.name}:{getattr(node, 'lineno', 0)}: use output.is_document"
