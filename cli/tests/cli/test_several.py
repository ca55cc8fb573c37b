"""Tests of `herd pause|resume|stop|restart|delete` of several connectors: the selection, the order of checks, partial
failures, one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2 as connectors
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle
from herdmesh.cli.app import app
from herdmesh.cli.batch import confirming
from herdmesh.cli.commands import lifecycle as command
from herdmesh.cli.display.output import Format
from herdmesh.cli.errors import from_reason
from herdmesh.cli.runner import run
from tests.support.batch_herder import BatchHerder


class Herder(BatchHerder):
    """A herder with connectors a, b and c; b has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[str] = []
        self.refuses = ""

    async def call(self, _method: Any, request: Any) -> Any:
        if isinstance(request, messages.ListConnectorsRequest):
            found = [connectors.Connector(name=name) for name in "abc"]
            for one in found:
                failed = one.name == "b"
                one.status.state = common.RUN_STATE_FAILED if failed else common.RUN_STATE_RUNNING
            return messages.ListConnectorsResponse(connectors=found)
        if request.name == self.refuses:
            raise from_reason("CONNECTOR_NOT_FOUND", f"no connector {request.name}")
        self.changed.append(request.name)
        if isinstance(request, messages.DeleteConnectorRequest):
            return messages.DeleteConnectorResponse()
        if isinstance(request, lifecycle.RestartConnectorRequest):
            return lifecycle.RestartConnectorResponse()
        return lifecycle.PauseConnectorResponse(connector=connectors.Connector(name=request.name))


@pytest.fixture
def herder(monkeypatch: pytest.MonkeyPatch) -> Herder:
    made = Herder()

    def with_herder(output: Format, _: str | None, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        run(output, lambda: work(made))

    monkeypatch.setattr(command, "with_herder", with_herder)
    return made


def herd(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("a", "c", "a"), ["a", "c"]),
        (("--match", "[ab]"), ["a", "b"]),
        (("--state", "failed"), ["b"]),
        (("--match", "a", "--state", "failed"), []),
        (("--all",), ["a", "b", "c"]),
        (("-f", "files"), ["c", "b"]),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "restart", "delete"])
def test_connectors_are_selected_in_each_way(
    herder: Herder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    arguments: tuple[str, ...],
    changed: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("files").write_text("- {name: c, connector.class: X}\n- {name: ' b ', connector.class: X}\n")
    yes = ("--yes",) if verb == "delete" else ()
    code, text, _ = herd(verb, *arguments, *yes, "-o", "json")
    assert (code, herder.changed) == (0, changed)
    assert [one["name"] for one in json.loads(text)] == changed


@pytest.mark.parametrize("arguments", [(), ("a", "--all"), ("--all", "--match", "a"), ("--state", "failed", "-f", "x")])
def test_exactly_one_way_to_select_is_needed(herder: Herder, arguments: tuple[str, ...]) -> None:
    code, _, stderr = herd("pause", *arguments)
    assert (code, herder.changed) == (2, [])
    assert "name connectors, or give one of --match/--state, --all and --file" in stderr


def test_one_name_gives_one_document(herder: Herder) -> None:
    code, text, _ = herd("pause", "a", "-o", "json")
    assert (code, json.loads(text)["result"]) == (0, "paused")


def test_a_misspelt_name_changes_nothing(herder: Herder) -> None:
    code, _, stderr = herd("stop", "a", "bb")
    assert (code, herder.changed) == (3, [])
    assert "no connector bb; nothing was changed" in " ".join(stderr.split())


def test_an_error_of_one_does_not_keep_the_others_from_their_change(herder: Herder) -> None:
    herder.refuses = "b"
    code, text, _ = herd("stop", "a", "b", "c", "-o", "json")
    document = json.loads(text)
    assert (code, herder.changed) == (3, ["a", "c"])
    assert [one["name"] for one in document["results"]] == ["a", "c"]
    assert document["error"]["message"] == "1 of 3 connectors were not stopped as wanted; the others were"
    assert document["error"]["fields"] == [{"field": "b", "message": "no connector b"}]


def test_nobody_is_asked_about_a_connector_that_does_not_exist(herder: Herder) -> None:
    for arguments, says in ((("x",), "no connector x"), (("--state", "up"), "no state UP")):
        code, _, stderr = herd("delete", *arguments)
        assert code != 0
        assert says in stderr
        assert "confirmation" not in stderr
    code, _, stderr = herd("delete", "a", "b")
    assert (code, herder.changed) == (2, [])
    assert "delete asks for confirmation: give --yes where nobody can answer" in stderr


def test_a_deletion_is_confirmed_with_the_names(herder: Herder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "is_interactive", lambda: True)
    code, _, stderr = herd("delete", "a", "b", stdin="n\n")
    assert (code, herder.changed) == (1, [])
    assert "Delete 2 connectors (a, b)?" in stderr
    code, _, _ = herd("delete", "--all", stdin="y\n")
    assert (code, herder.changed) == (0, ["a", "b", "c"])


def test_an_open_selection_without_a_match_changes_nothing(herder: Herder) -> None:
    code, _, stderr = herd("delete", "--match", "z*", "--yes")
    assert (code, herder.changed) == (0, [])
    assert "no connector is selected; nothing was changed" in stderr
