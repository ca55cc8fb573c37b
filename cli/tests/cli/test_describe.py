"""Tests of the lines of `herd describe connector` for one unit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.text import Text

from herdmesh.api.worker.v1 import task_pb2
from herdmesh.cli.commands.describe import story
from herdmesh.cli.display import listing, views
from herdmesh.cli.display.output import connector_lag, connector_uncommitted, task_lag


def told(**more: Any) -> list[str]:
    unit = {"state": "FAILED", "worker_id": "w1", "generation": 12, "start_count": 4, **more}
    return [Text.from_markup(line).plain for line in story(unit)]


def test_state_owner_and_generation() -> None:
    assert told() == ["FAILED on w1, generation 12"]
    assert told(worker_id=None) == ["FAILED on no worker"]


def test_the_reason_for_its_worker_is_shown() -> None:
    because = {"placed_because": "worker w2 [b] was lost", "placed_time": "2026-11-21T17:00:05Z"}
    assert told(**because)[1] == "on w1 since 2026-11-21T17:00:05Z, because worker w2 [b] was lost"
    adopted = "leader epoch 7 found it there and left it"
    assert told(placed_because=adopted)[1] == f"on w1, because {adopted}"


@pytest.mark.parametrize(
    ("restart", "line"),
    [
        (
            {"attempt": 3, "attempts_max": 10, "next_time": "2026-11-21T17:00:05Z", "last_error": "broker away"},
            "restart 3 of 10 at 2026-11-21T17:00:05Z, last error: broker away",
        ),
        (
            {"attempt": 11, "attempts_max": 10, "next_time": None},
            "restarted 10 of 10 times; no further automatic restart: fix the cause, then `herd restart`",
        ),
    ],
)
def test_the_restart_history_is_shown(restart: dict[str, Any], line: str) -> None:
    assert told(auto_restart=restart)[1] == line


def test_a_restart_in_progress_is_shown() -> None:
    assert told(state="RESTARTING", auto_restart={"attempt": 3, "attempts_max": 10, "next_time": None})[1] == (
        "restart 3 of 10"
    )


def test_explanation_conditions_and_last_error_are_shown() -> None:
    lines = told(
        explanation="waits up to 12 s for worker w1 to return",
        conditions=[{"type": "STALLED", "message": "no record for 5 m"}],
        error="disk full [/tmp]",
        error_class="RETRIABLE",
    )
    assert lines[1:] == [
        "disk full [/tmp] (retriable)",
        "waits up to 12 s for worker w1 to return",
        "STALLED no record for 5 m",
    ]


def test_a_unit_that_failed_for_good_shows_no_next_restart() -> None:
    restart = {"attempt": 1, "attempts_max": 10, "next_time": None, "last_error": "disk full"}
    lines = told(explanation="failed (FATAL): remove the cause", auto_restart=restart, error="x", error_class="FATAL")
    assert lines[1:] == ["x (fatal)", "failed (FATAL): remove the cause"]


def test_a_restart_is_told_once() -> None:
    """By the explanation, although status and condition have it too."""
    restart = {"attempt": 2, "attempts_max": 10, "next_time": "2026-11-21T17:00:05Z", "last_error": "away"}
    lines = told(
        auto_restart=restart,
        error="away",
        error_class="RETRIABLE",
        explanation="failed (RETRIABLE); restart 2 of 10 follows at 2026-11-21T17:00:05Z",
        conditions=[{"type": "RESTARTING", "message": "2 of 10, next at 2026-11-21T17:00:05Z"}],
    )
    assert lines[1:] == ["away (retriable)", "failed (RETRIABLE); restart 2 of 10 follows at 2026-11-21T17:00:05Z"]


def test_the_same_error_is_shown_once() -> None:
    restart = {"attempt": 2, "attempts_max": 10, "next_time": "2026-11-21T17:00:05Z", "last_error": "disk full"}
    lines = told(auto_restart=restart, error="disk full", error_class="RETRIABLE")
    assert lines[1:] == ["disk full (retriable)", "restart 2 of 10 at 2026-11-21T17:00:05Z"]


def sink_task(state: str, minutes: int, *parts: tuple[int, int, int]) -> dict[str, Any]:
    """A task in a state for some minutes; its partitions as (committed, position, end)."""
    partitions = [
        task_pb2.PartitionProgress(topic="t", partition=at, committed_offset=done, position=position, end_offset=end)
        for at, (done, position, end) in enumerate(parts)
    ]
    since = (datetime.now(UTC) - timedelta(minutes=minutes, seconds=5)).isoformat()
    return {"state": state, "since": since, "progress": views.progress(task_pb2.TaskProgress(partitions=partitions))}


def test_lag_of_a_paused_sink_is_its_last_known_lag_with_its_age() -> None:
    paused, older = sink_task("PAUSED", 4, (1_000, 1_000, 1_500)), sink_task("PAUSED", 9, (0, 0, 7))
    assert task_lag(paused) == "500 (4m ago)"
    assert connector_lag({"tasks": [paused, older], "behind_records": None}) == "507 (9m ago)"
    running = sink_task("RUNNING", 1, (5, 5, 6))
    assert connector_lag({"tasks": [paused, running], "behind_records": None}) == "501 (4m ago)"


def test_lag_of_a_failed_sink_is_that_of_its_failure_with_its_age() -> None:
    failed, running = sink_task("FAILED", 4, (1, 1, 51)), sink_task("RUNNING", 9, (5, 5, 6))
    assert task_lag(failed) == "50 (4m ago)"
    both = {"tasks": [failed, running], "behind_records": None, "uncommitted_records": None}
    assert connector_lag(both) == listing.COLUMNS["LAG"].cell(both) == "51 (4m ago)"
    assert connector_uncommitted(both) == listing.COLUMNS["UNCOMMITTED"].cell(both) == "0 (4m ago)"


def test_lag_of_a_sink_that_waits_for_its_target_has_the_records_in_its_queue() -> None:
    waits = {"type": "WAITING", "message": "waits for HTTP here", "wait": {"waits_for": "HTTP here"}}
    queued = {**sink_task("RUNNING", 1, (600, 620, 622)), "conditions": [waits]}
    assert task_lag(queued) == connector_lag({"tasks": [queued], "behind_records": 2}) == "22"
    slot = {"type": "WAITING", "message": "waits for a run slot", "wait": {"waits_for": "a run slot"}}
    assert task_lag({**queued, "conditions": [slot]}) == "2", "it delivers as soon as it runs"


def test_unknown_lag_is_shown_as_a_dash() -> None:
    unknown = sink_task("PAUSED", 4, (-1, -1, 10))
    unassigned = sink_task("UNASSIGNED", 4, (1, 1, 3))
    assert [task_lag(one) for one in (unknown, sink_task("PAUSED", 4), sink_task("FAILED", 4), unassigned)] == ["-"] * 4
    assert connector_lag({"tasks": [sink_task("PAUSED", 4, (1, 1, 3)), unknown], "behind_records": None}) == "-"
    assert connector_lag({"tasks": [], "behind_records": None}) == "-"


def test_lag_of_a_running_sink_is_current() -> None:
    assert task_lag(sink_task("RUNNING", 4, (-1, 3, 10))) == "7"
    assert connector_lag({"tasks": [sink_task("RUNNING", 4, (1, 1, 3))], "behind_records": 2}) == "2"


def test_uncommitted_records_are_counted_separately_from_lag() -> None:
    keeps_up = sink_task("RUNNING", 4, (70_000, 100_000, 100_000), (5, 9, 10))
    assert task_lag(keeps_up) == "1", "a commit every 60 s does not make a task look behind"
    assert keeps_up["progress"]["uncommitted_records"] == 30_004
    assert connector_uncommitted({"tasks": [keeps_up], "uncommitted_records": 30_004}) == "30,004"
    paused = sink_task("PAUSED", 4, (1, 3, 3))
    assert connector_uncommitted({"tasks": [paused], "uncommitted_records": None}) == "2 (4m ago)"
