"""Tests of `herd offsets`: input checks and confirmation before a request, and the display of the response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from herdmesh.api.herder.v1 import offset_messages_pb2 as messages
from herdmesh.cli.app import app
from herdmesh.cli.errors import EXIT_USAGE, from_reason
from herdmesh.cli.mesh.client import HerderClient

NOBODY = ("--herder", "127.0.0.1:9")
AT_7 = {"partition": {"kafka_topic": "t", "kafka_partition": 1}, "offset": {"kafka_offset": 7}}


def herd(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["offsets", *arguments, *NOBODY])


@pytest.fixture
def waited() -> list[float]:
    """The timeout of each request, in seconds."""
    return []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, waited: list[float]) -> list[Any]:
    """The requests to a herder that answers everything with one offset."""
    requests: list[Any] = []
    entry = messages.OffsetEntry(partition_json=json.dumps(AT_7["partition"]), offset_json=json.dumps(AT_7["offset"]))

    async def call(_client: HerderClient, _pick: Any, request: Any, timeout_s: float = 60.0) -> Any:
        requests.append(request)
        waited.append(timeout_s)
        if request.name == "runs":
            raise from_reason("CONNECTOR_NOT_STOPPED", "connector 'runs' is not stopped; stop it first")
        kind = type(request).__name__.replace("Request", "Response")
        message = {} if kind == "GetOffsetsResponse" else {"message": "done"}
        return getattr(messages, kind)(offsets=[entry], **message)

    monkeypatch.setattr(HerderClient, "call", call)
    return requests


def test_offsets_are_shown_as_a_table_and_in_connects_form(asked: list[Any]) -> None:
    shown = herd("get", "a").stdout.split()
    assert shown == ["TOPIC", "PARTITION", "OFFSET", "t", "1", "7"]
    assert json.loads(herd("get", "a", "-o", "json").stdout) == {"offsets": [AT_7]}
    assert [request.name for request in asked] == ["a", "a"]


def test_set_accepts_the_output_of_get(asked: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(herd("get", "a", "-o", "json").stdout)
    done = herd("set", "a", "-f", str(file), "--yes", "-o", "json")
    assert json.loads(done.stdout) == {
        "result": "set", "name": "a", "dry_run": False, "message": "done", "offsets": [AT_7],
    }  # fmt: skip
    (entry,) = asked[-1].offsets
    assert (json.loads(entry.partition_json), json.loads(entry.offset_json)) == (AT_7["partition"], AT_7["offset"])
    assert asked[-1].request_id


@pytest.mark.parametrize(("offset", "stored"), [("7", '{"kafka_offset": 7}'), ("null", None)])
def test_set_of_one_offset_of_a_sink(asked: list[Any], offset: str, stored: str | None) -> None:
    done = herd("set", "a", "--topic", "t", "--partition", "0", "--offset", offset, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "as they would be" in done.stdout
    (entry,) = asked[-1].offsets
    assert asked[-1].dry_run
    assert (entry.offset_json if entry.HasField("offset_json") else None) == stored


@pytest.mark.parametrize(
    "arguments",
    [(), ("--topic", "t"), ("--topic", "t", "--partition", "0"), ("-f", "x", "--offset", "1"),
     ("--topic", "t", "--partition", "0", "--offset", "-1"), ("--topic", "t", "--partition", "0", "--offset", "x")],
)  # fmt: skip
def test_set_requires_a_file_or_one_complete_offset(asked: list[Any], arguments: Sequence[str]) -> None:
    assert herd("set", "a", "--yes", *arguments).exit_code == EXIT_USAGE
    assert not asked


@pytest.mark.parametrize(
    "arguments",
    [("set", "a", "--topic", "t", "--partition", "0", "--offset", "1"), ("reset", "a"), ("rewind", "a", "--to", "1h")],
)
def test_a_change_without_terminal_requires_yes(asked: list[Any], arguments: Sequence[str]) -> None:
    done = herd(*arguments)
    assert (done.exit_code, asked) == (EXIT_USAGE, [])
    assert "give --yes where nobody can answer" in done.stderr


def test_a_reset_shows_the_old_offsets_and_a_rewind_requires_a_valid_time(asked: list[Any]) -> None:
    shown = herd("reset", "a", "--yes").stdout
    assert shown.split()[:2] == ["a:", "done"]
    assert "as they were" in shown
    assert herd("rewind", "a", "--to", "2026-11-22T08:00:00", "--yes").exit_code == 0
    assert asked[-1].time.ToJsonString() == "2026-11-22T08:00:00Z"
    for unusable in ("soon", "999999d", "9" * 20 + "s"):
        done = herd("rewind", "a", "--to", unusable, "--yes")
        assert done.exit_code == EXIT_USAGE
        assert f"--to {unusable}: write an age such as 15m" in done.stderr


def test_a_rewind_goes_forward_only_when_allowed(asked: list[Any]) -> None:
    for more, allowed in (((), False), (("--allow-forward",), True)):
        assert herd("rewind", "a", "--to", "1h", "--dry-run", *more).exit_code == 0
        assert asked[-1].allow_forward is allowed


def test_the_timeout_of_a_change_is_that_of_java_or_the_given_one(asked: list[Any], waited: list[float]) -> None:
    """The connector is called first, and may take long to agree."""
    one = ("--topic", "t", "--partition", "0", "--offset", "1")
    for command in (("set", "a", *one), ("reset", "a"), ("rewind", "a", "--to", "1h")):
        assert herd(*command, "--yes").exit_code == 0
        assert herd(*command, "--yes", "--timeout", "300").exit_code == 0
    assert waited == [90.0, 300.0] * 3


def test_a_change_of_a_running_connector_is_refused_with_the_command_to_stop_it(asked: list[Any]) -> None:
    done = herd("reset", "runs", "--yes")
    assert done.exit_code == 11
    assert "`herd stop runs` stops it" in done.stderr
    assert len(asked) == 1
