"""Where units were started, and which were moved for balance, as the logs of the herders tell it; and which failed, as
those of the workers do.

Owns reading them. A look at the places of units before and after a round misses who had a unit for a moment between.

Invariant: a start that a leader logged is found under the worker it was sent to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from tests.chaos.truth import Unit

Starts = dict[Unit, dict[int, str]]
"""By unit and generation: the id of the worker that was told to start it."""


def starts(logs: Iterable[Path]) -> Starts:
    """All that these herders ever ordered. A session's number is its herder's own, and used again after a restart."""
    found: Starts = {}
    for log in logs:
        workers: dict[int, str] = {}
        for line in log.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # being written, or its herder died while it was
            if '"event": "hello"' in line:
                said = json.loads(line)
                workers[said["session"]] = said["worker_id"]
            elif '"event": "start_unit"' in line:
                said = json.loads(line)
                found.setdefault(_unit(said["unit"]), {})[said["generation"]] = workers[said["session"]]
    return found


def balanced(logs: Iterable[Path], unit: Unit) -> list[float]:
    """When leaders took the unit from a worker that lives to give it to another, in seconds since 1970."""
    return [
        datetime.fromisoformat(said["timestamp"]).timestamp()
        for log in logs
        for line in log.read_text().splitlines(keepends=True)
        if line.endswith("\n") and '"event": "stop_unit"' in line and ' for balance"' in line
        if _unit((said := json.loads(line))["unit"]) == unit
    ]


def hops(found: Starts, unit: Unit, after: int, before: int) -> list[tuple[int, str]]:
    """Generations between these two, and who was told to start it with each, in order."""
    return [one for one in sorted(found.get(unit, {}).items()) if after < one[0] < before]


def ended(logs: Iterable[Path]) -> set[tuple[Unit, int]]:
    """Units, and with which generation they failed, as the logs of their workers tell it."""
    found: set[tuple[Unit, int]] = set()
    for log in logs:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and '"event": "state"' in line and '"FAILED"' in line:
                said = json.loads(line)
                if said["state"] == "FAILED":
                    found.add((_unit(said["unit"]), said["generation"]))
    return found


def heard(logs: Iterable[Path]) -> set[tuple[Unit, int]]:
    """Units, and the generations with which they came to be in any state, as the logs of their workers tell it. What a
    leader ordered just before it was killed may have reached nobody."""
    return {
        (_unit((said := json.loads(line))["unit"]), said["generation"])
        for log in logs
        for line in log.read_text().splitlines(keepends=True)
        if line.endswith("\n") and '"event": "state"' in line
    }


def _unit(label: str) -> Unit:
    """Of `[flights|task-0]` or `[flights|worker]`."""
    connector, _, which = label[1:-1].rpartition("|")
    return connector, None if which == "worker" else int(which.removeprefix("task-"))
