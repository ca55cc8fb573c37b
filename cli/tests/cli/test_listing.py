"""Tests of the filters, the order and the cells of `herd get connectors`."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from herdmesh.cli.display import listing
from herdmesh.cli.display.output import table
from herdmesh.cli.errors import CommandError

NOW = datetime(2026, 11, 21, 17, 0, 0, tzinfo=UTC)


def unit(state: str, worker: str | None = "w1", **more: Any) -> dict[str, Any]:
    return {"state": state, "worker_id": worker, "generation": 3, "start_count": 1, **more}


def connector(
    name: str, state: str = "RUNNING", *tasks: dict[str, Any], lag: int | None = 0, kind: str = "sink"
) -> Any:
    return {
        "name": name,
        "type": kind,
        "target_state": "STARTED",
        "connector": unit(state),
        "tasks": [{"id": number, **one} for number, one in enumerate(tasks)],
        "behind_records": lag,
        "uncommitted_records": 5,
    }


A = connector("orders-a", "RUNNING", unit("RUNNING"), unit("FAILED", "w2", error="disk full"), lag=7)
B = connector("orders-b", "PAUSED", unit("PAUSED"), lag=None)
C = connector("users", "RUNNING", unit("RUNNING"), lag=900, kind="source")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (listing.Filter(), ["orders-a", "orders-b", "users"]),
        (listing.Filter(match="orders-*"), ["orders-a", "orders-b"]),
        (listing.Filter(states=frozenset({"FAILED"})), ["orders-a"]),
        (listing.Filter(states=frozenset({"FAILED", "PAUSED"})), ["orders-a", "orders-b"]),
        (listing.Filter(kind="source"), ["users"]),
        (listing.Filter(worker="w2"), ["orders-a"]),
        (listing.Filter(match="orders-*", worker="w9"), []),
    ],
)
def test_filters(wanted: listing.Filter, names: list[str]) -> None:
    assert [one["name"] for one in (A, B, C) if wanted.keeps(one)] == names


def test_unknown_values_sort_last_in_both_directions() -> None:
    assert [one["name"] for one in listing.ordered([C, B, A], "LAG")] == ["orders-a", "users", "orders-b"]
    assert [one["name"] for one in listing.ordered([C, B, A], "LAG", reverse=True)] == ["users", "orders-a", "orders-b"]


@pytest.mark.parametrize("column", listing.COLUMNS)
def test_every_column_can_be_sorted_and_shown(column: str) -> None:
    listed = listing.ordered([C, B, A], column)
    assert {one["name"] for one in listed} == {"orders-a", "orders-b", "users"}
    assert all(isinstance(cell, str) for row in listing.rows(listed, [column]) for cell in row)


def test_an_unknown_column_is_refused_with_the_valid_ones() -> None:
    assert listing.chosen_columns("name, lag") == ["NAME", "LAG"]
    with pytest.raises(CommandError, match="no column SPEED; there are: NAME, TYPE"):
        listing.chosen_columns("NAME,speed")


def test_attention_shows_the_first_problem() -> None:
    assert listing.attention(A) == "task 1 of 2 failed: disk full"
    assert listing.attention(C) == ""
    waiting = connector("x", "UNASSIGNED")
    waiting["connector"]["explanation"] = "no connected worker has the plugin Foo"
    assert listing.attention(waiting) == "no connected worker has the plugin Foo"


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-11-21T16:59:58Z", "2s"),
        ("2026-11-21T16:55:00Z", "5m"),
        ("2026-11-21T14:00:00Z", "3h"),
        ("2026-11-18T16:00:00Z", "3d"),
        ("2026-11-21T17:00:09Z", "0s"),
        (None, "-"),
    ],
)
def test_age(since: str | None, shown: str) -> None:
    assert listing.age(since, NOW) == shown


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (listing.Filter(states=frozenset({"RUNING", "FAILED"})), "no state RUNING; there are: FAILED, PAUSED"),
        (listing.Filter(kind="snk"), "no type snk; there are: source, sink"),
    ],
)
def test_a_filter_that_no_connector_can_pass_is_refused(wanted: listing.Filter, says: str) -> None:
    with pytest.raises(CommandError, match=says):
        listing.checked(wanted)


def test_each_connector_has_its_first_problem_below_it_on_a_narrow_terminal() -> None:
    long = connector("orders-of-yesterday", "RUNNING", unit("FAILED", error="first line " * 20 + "\nsecond line"))
    screen = Console(width=80, file=io.StringIO())
    shown = ("NAME", "STATE", "TASKS", "ATTENTION")
    screen.print(table(None, shown, listing.rows([long], shown)))
    assert isinstance(screen.file, io.StringIO)
    header, line, story = screen.file.getvalue().splitlines()
    assert header.split() == list(shown[:-1])
    assert line == "orders-of-yesterday  RUNNING  0/1 running, 1 failed"
    assert story.startswith("  task 0 failed: first line")
    assert story.endswith("…")
