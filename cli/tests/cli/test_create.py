"""What `herd create` and `herd patch` read before they ask anybody."""

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
    """The message of a command that reads a bad file or argument: no herder is needed to say so."""
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
        ([GOOD, {**GOOD, "name": "b"}], "2 connectors; `herd create` takes one"),
        ([], "no connector in it"),
        ({**GOOD, "initial_state": "UP"}, "no initial state UP; there are: running, paused, stopped"),
    ],
)
def test_a_file_that_is_not_one_connector(tmp_path: Path, document: Any, says: str) -> None:
    assert says in refused("create", "-f", file(tmp_path, document))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "expected a JSON object"),
        ('{"offsets": {}}', 'expected {"offsets"'),
        ('{"offsets": [{"partition": {}, "offset": {}}, {"partition": {}}]}', "offsets[1]: expected"),
    ],
)
def test_offsets_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text(text)
    assert says in refused("create", "-f", file(tmp_path, GOOD), "--offsets", str(offsets))


@pytest.mark.parametrize("command", ["validate", "create", "apply"])
@pytest.mark.parametrize("text", ["{", "no JSON", '{"name": "a", "config": {"connector.class": X}}', "<config/>"])
def test_a_config_that_is_no_json_is_refused_before_it_is_sent(tmp_path: Path, command: str, text: str) -> None:
    """Java's REST API answers it with 500 or 400; here nothing but properties can be sent."""
    path = tmp_path / "file.json"
    path.write_text(text)
    assert "not JSON" in refused(command, "-f", str(path))


def test_apply_does_not_drop_an_initial_state(tmp_path: Path) -> None:
    assert "use `herd create`" in refused("apply", "-f", file(tmp_path, {**GOOD, "initial_state": "STOPPED"}))


@pytest.mark.parametrize("change", ["tasks.max", "=1", ""])
def test_a_change_that_says_nothing(change: str) -> None:
    assert "write KEY=VALUE" in refused("patch", "a", change)


def test_a_patch_of_nothing() -> None:
    assert "nothing to change" in refused("patch", "a")
