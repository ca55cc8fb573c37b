"""Tests of the input checks of `herd create` and `herd patch` before any request is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.cli.app import app
from herdmesh.cli.errors import EXIT_USAGE

NOBODY = ("--herder", "127.0.0.1:9", "-o", "json")
GOOD: dict[str, Any] = {"name": "a", "config": {"connector.class": "X"}}


def refused(*arguments: str) -> str:
    """The message of a command that refuses a bad file or argument, without a herder."""
    done = CliRunner().invoke(app, [*arguments, *NOBODY])
    assert done.exit_code == EXIT_USAGE, done.output
    message: str = json.loads(done.stdout)["error"]["message"]
    return message


def file(folder: Path, document: Any) -> str:
    path = folder / "file.json"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([GOOD, {**GOOD, "name": " a "}], "connector a is in"),
        ([], "no connector in it"),
        ({**GOOD, "initial_state": "UP"}, "no initial state UP; there are: running, paused, stopped"),
    ],
)
def test_a_file_that_is_not_one_valid_connector_is_refused(tmp_path: Path, document: Any, says: str) -> None:
    assert says in refused("create", "-f", file(tmp_path, document))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "expected a JSON object"),
        ('{"offsets": {}}', 'expected {"offsets"'),
        ('{"offsets": [{"partition": {}, "offset": {}}, {"partition": {}}]}', "offsets[1]: expected"),
    ],
)
def test_invalid_offsets_are_refused(tmp_path: Path, text: str, says: str) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text(text)
    assert says in refused("create", "-f", file(tmp_path, GOOD), "--offsets", str(offsets))


@pytest.mark.parametrize("command", ["validate", "create", "apply"])
@pytest.mark.parametrize("text", ["{", "no JSON", '{"name": "a", "config": {"connector.class": X}}', "<config/>"])
def test_a_config_that_is_not_json_is_refused_before_a_request(tmp_path: Path, command: str, text: str) -> None:
    """Java's REST API answers such a config with 500 or 400; here only properties can be sent."""
    path = tmp_path / "file.json"
    path.write_text(text)
    assert "not JSON" in refused(command, "-f", str(path))


def test_apply_does_not_drop_an_initial_state(tmp_path: Path) -> None:
    assert "use `herd create`" in refused("apply", "-f", file(tmp_path, {**GOOD, "initial_state": "STOPPED"}))


@pytest.mark.parametrize("change", ["tasks.max", "=1", ""])
def test_an_invalid_change_is_refused(change: str) -> None:
    assert "write KEY=VALUE" in refused("patch", "a", change)


def test_an_empty_patch_is_refused() -> None:
    assert "nothing to change" in refused("patch", "a")
