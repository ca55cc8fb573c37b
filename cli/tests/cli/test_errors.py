"""Tests that every reason of the contract has one exit code, and every error has a cause and a next step."""

from __future__ import annotations

import json

import pytest

from herdmesh.api.common.v1 import error_pb2
from herdmesh.cli.display.output import Format, print_error
from herdmesh.cli.errors import EXIT_CODES, NEXT_STEPS, CommandError, from_reason, shown_violations, unreachable

REASONS = {
    name.removeprefix("ERROR_REASON_")
    for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name
    if not name.endswith("UNSPECIFIED")
}


def test_every_reason_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == REASONS


def test_every_reason_has_a_next_step() -> None:
    """A next step is one or two sentences that begin with a command, or a verb in the imperative."""
    assert set(NEXT_STEPS) == REASONS
    for reason, text in NEXT_STEPS.items():
        assert text.endswith("."), reason
        assert len(text.split()) >= 4, reason


def test_no_failure_exits_like_success_or_wrong_usage() -> None:
    assert not {0, 2} & set(EXIT_CODES.values())


def test_json_error_has_reason_fields_and_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(from_reason("CONFIG_INVALID", "refused", (("tasks.max", "must be at least 1"),)), Format.JSON)
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["reason"] == "CONFIG_INVALID"
    assert document["error"]["fields"] == [{"field": "tasks.max", "message": "must be at least 1"}]
    assert document["error"]["next_step"]


def test_text_error_goes_to_standard_error_and_keeps_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(CommandError("INTERNAL", "failed at [conn-1|task-0]"), Format.TABLE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[conn-1|task-0]" in captured.err


def test_the_next_step_of_unreachable_is_how_to_start_a_herder() -> None:
    error = unreachable("127.0.0.1:1", "refused")
    assert error.exit_code == EXIT_CODES["NO_LEADER"]
    assert "herd up" in error.next_step


def test_a_wrong_value_has_one_error_without_its_key_before_it() -> None:
    """Connect reports a value that it cannot parse a second time, as null."""
    null = "Invalid value null for configuration tasks.max: Value must be non-null"
    assert shown_violations(
        [
            ("tasks.max", "Invalid value two for configuration tasks.max: Not a number of type INT"),
            ("tasks.max", f"{null} (write 1 or more)"),
            ("file", "file: cannot be written"),
            ("file", "file: cannot be written"),
            ("topics", "first"),
            ("topics", "second"),
            ("retries", null),
        ]
    ) == (
        ("tasks.max", "Invalid value two for configuration tasks.max: Not a number of type INT"),
        ("file", "cannot be written"),
        ("topics", "first"),
        ("topics", "second"),
        ("retries", null),
    )
