"""Judging rules of the chaos run: the workers of a unit between two checks, from the herders' logs, and the start of
its time limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.moves import balanced, ended, heard, hops, starts
from tests.chaos.run import due_since_s


def test_a_unit_that_was_on_a_worker_for_a_moment_is_found_there(tmp_path: Path) -> None:
    first, second = tmp_path / "herder.log", tmp_path / "herder-2.log"
    first.write_text(
        '{"session": 1, "worker_id": "a:1", "holdings": 0, "event": "hello"}\n'
        '{"session": 2, "worker_id": "b:1", "holdings": 0, "event": "hello"}\n'
        '{"unit": "[with|bar|task-0]", "session": 1, "generation": 10, "event": "start_unit"}\n'
        '{"unit": "[with|bar|worker]", "session": 2, "generation": 11, "event": "start_unit"}\n'
        '{"unit": "[with|bar|task-0]", "session": 2, "reason": "moves", "event": "stop_unit"}\n'
        '{"unit": "[with|bar|task-0]", "session": 2, "generation": 12, "event": "start_unit"}\n'
        "this herder was started again\n"
        '{"session": 1, "worker_id": "c:1", "holdings": 0, "event": "hello"}\n'
        '{"unit": "[with|bar|task-0]", "session": 1, "generation": 30, "event": "start_unit"}\n'
    )
    second.write_text(
        '{"session": 1, "worker_id": "b:1", "holdings": 0, "event": "hello"}\n'
        '{"unit": "[with|bar|task-0]", "session": 1, "generation": 21, "event": "start_unit"}\n'
        '{"event": "start_unit", "unit": "[with|ba'  # killed while it wrote
    )
    found = starts([first, second])
    task = ("with|bar", 0)
    assert hops(found, task, 10, 30) == [(12, "b:1"), (21, "b:1")]
    assert hops(found, task, 21, 40) == [(30, "c:1")]
    assert hops(found, ("with|bar", None), 0, 12) == [(11, "b:1")]
    assert hops(found, ("other", 0), 0, 40) == []


def test_a_move_for_balance_is_distinguished_from_other_stops(tmp_path: Path) -> None:
    log = tmp_path / "herder.log"
    log.write_text(
        '{"unit": "[a|task-0]", "reason": "moves to b:1 for balance", "event": "stop_unit", '
        '"timestamp": "1970-01-01T00:00:05Z"}\n'
        '{"unit": "[a|task-0]", "reason": "it failed", "event": "stop_unit", "timestamp": "1970-01-01T00:00:09Z"}\n'
        '{"unit": "[a|worker]", "reason": "moves to b:1 for balance", "event": "stop_unit", '
        '"timestamp": "1970-01-01T00:00:07Z"}\n'
        '{"unit": "[a|task-0]", "reason": "moves to b:1", "event": "sto'  # killed while it wrote
    )
    assert balanced([log], ("a", 0)) == [5.0]
    assert balanced([log], ("a", None)) == [7.0]
    assert balanced([log], ("b", 0)) == []


def test_a_run_that_ended_is_distinguished_from_one_stopped_while_it_ran(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text(
        '{"unit": "[a|task-0]", "state": "RUNNING", "generation": 4, "failure": null, "event": "state"}\n'
        '{"unit": "[a|task-0]", "state": "FAILED", "generation": 4, "failure": "no broker", "event": "state"}\n'
        '{"unit": "[a|task-1]", "state": "RUNNING", "generation": 5, "failure": "was FAILED", "event": "state"}\n'
        '{"unit": "[a|worker]", "state": "UNASSIGNED", "generation": 6, "failure": null, "event": "state"}\n'
        "this worker was started again\n"
        '{"unit": "[a|worker]", "state": "FAILED", "generation": 7, "failure": "x", "event": "state"}\n'
        '{"unit": "[a|task-1]", "state": "FAILED", "gen'  # killed while it wrote
    )
    assert ended([log]) == {(("a", 0), 4), (("a", None), 7)}
    assert heard([log]) == {(("a", 0), 4), (("a", 1), 5), (("a", None), 6), (("a", None), 7)}


@pytest.mark.parametrize(
    ("fell_s", "ready_s", "expected"),
    [
        (100.1, [], 100.0),
        (106.0, [20.0, 30.0], 100.0),  # noticed late: the limit still counts from the harm
        (99.0, [20.0, 99.5], 100.0),
        (104.0, [20.0, 103.0], 103.0),  # moved to a worker that came back
        (104.0, [20.0, 105.0], 100.0),  # it failed before that worker was there
    ],
)
def test_a_units_time_counts_from_the_harm_or_from_the_worker_it_was_moved_to(
    fell_s: float, ready_s: list[float], expected: float
) -> None:
    assert due_since_s(100.0, fell_s, ready_s) == expected
