"""Reader of starts and moves of units in the herders' logs, and of failed units in the workers' logs.

Owns the reading. Comparing the workers of units before and after a round would miss a worker that had a unit only for a
moment between.

Invariant: a start that a leader logged is found under the worker it was sent to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from tests.chaos.truth import Unit

Starts = dict[Unit, dict[int, str]]
"""By unit and generation: the id of the worker that got the start command."""


def starts(logs: Iterable[Path]) -> Starts:
    """All starts that these herders ever commanded. A session's number is its herder's own, and used again after a
    restart.
    """
    found: Starts = {}
    for log in logs:
        workers: dict[int, str] = {}
        for line in log.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # an incomplete line: being written, or its herder died meanwhile
            if '"event": "hello"' in line:
                said = json.loads(line)
                workers[said["session"]] = said["worker_id"]
            elif '"event": "start_unit"' in line:
                said = json.loads(line)
                found.setdefault(_unit(said["unit"]), {})[said["generation"]] = workers[said["session"]]
    return found


def balanced(logs: Iterable[Path], unit: Unit) -> list[float]:
    """Times at which leaders moved the unit away from a live worker, in seconds since 1970."""
    return [
        datetime.fromisoformat(said["timestamp"]).timestamp()
        for log in logs
        for line in log.read_text().splitlines(keepends=True)
        if line.endswith("\n") and '"event": "stop_unit"' in line and ' for balance"' in line
        if _unit((said := json.loads(line))["unit"]) == unit
    ]


def hops(found: Starts, unit: Unit, after: int, before: int) -> list[tuple[int, str]]:
    """Generations between these two, each with the worker that got the start command, in order."""
    return [one for one in sorted(found.get(unit, {}).items()) if after < one[0] < before]


def ended(logs: Iterable[Path]) -> set[tuple[Unit, int]]:
    """Failed units with their generations, from the logs of their workers."""
    found: set[tuple[Unit, int]] = set()
    for log in logs:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and '"event": "state"' in line and '"FAILED"' in line:
                said = json.loads(line)
                if said["state"] == "FAILED":
                    found.add((_unit(said["unit"]), said["generation"]))
    return found


def heard(logs: Iterable[Path]) -> set[tuple[Unit, int]]:
    """Units and the generations with which they reached any state, from the logs of their workers. A command that a
    leader sent just before it was killed may have reached no worker.
    """
    return {
        (_unit((said := json.loads(line))["unit"]), said["generation"])
        for log in logs
        for line in log.read_text().splitlines(keepends=True)
        if line.endswith("\n") and '"event": "state"' in line
    }


def _unit(label: str) -> Unit:
    """The unit of `[flights|task-0]` or `[flights|worker]`."""
    connector, _, which = label[1:-1].rpartition("|")
    return connector, None if which == "worker" else int(which.removeprefix("task-"))
