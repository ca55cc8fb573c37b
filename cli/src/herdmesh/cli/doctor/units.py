"""Findings about connectors, tasks and workers, from the leading herder's view.

Owns the judgement, not the queries: views in, findings out. Invariant: a unit that runs as wanted has no finding, and
any other unit has at least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from herdmesh.cli.display.views import Json
from herdmesh.cli.doctor.codes import finding

#: A unit without a worker for less than this time is being placed: a worker may have left, or a config changed.
PLACING_S: Final = 60.0
#: Conditions that are findings under their own names; WAITING is handled with its wait.
_CONDITIONS: Final = ("STALLED", "RECONFIGURATION_LIMITED", "TASK_CONFIGS", "INCONSISTENT_TASKS")


def worker_findings(workers: Sequence[Json], connector_count: int) -> Iterator[Json]:
    """The findings of the herder's workers."""
    if not any(one["state"] in ("CONNECTED", "DRAINING", "") for one in workers):
        many = f": {connector_count} connectors wait for one" if connector_count else ""
        yield finding("NO_WORKER", "worker", "-", f"no worker is connected{many}")
    for one in workers:
        name = one["worker_id"]
        for condition in one["conditions"]:
            if condition["type"] == "DUPLICATE_WORKER_ID":
                yield finding("DUPLICATE_WORKER_ID", "worker", name, condition["message"])
        if one["state"] == "LOST":
            yield finding("WORKER_LOST", "worker", name, one["reason"] or "its session broke")
        if one["state"] in ("DRAINING", "DRAINED"):
            yield finding("WORKER_DRAINING", "worker", name, one["reason"] or "it is drained")


def plugin_findings(refused: Sequence[Json]) -> Iterator[Json]:
    """The finding of each plugin that cannot be used."""
    for one in refused:
        name = f"{one['folder']} ({one['plugin']})" if one["plugin"] else one["folder"]
        yield finding("PLUGIN_REFUSED", "plugin", name, one["why"], one["fix"], workers=one["workers"])


def connector_findings(connectors: Sequence[Json], now: datetime | None = None) -> list[Json]:
    """The findings of all connectors and tasks: errors first, by name, then waits by their beginning."""
    at = now or datetime.now(UTC)
    found = [one for connector in connectors for one in _of_connector(connector, at)]

    def order(one: Json) -> tuple[bool, bool, str, str]:
        is_wait = one["code"] == "WAITING"
        return one["severity"] != "error", is_wait, (one["since"] or "") if is_wait else "", one["name"]

    return sorted(found, key=order)


def _of_connector(connector: Json, now: datetime) -> Iterator[Json]:
    wanted = connector["target_state"] in ("", "STARTED")
    for unit in (connector["connector"], *connector["tasks"]):
        yield from _of_unit(connector["name"], unit, now, wanted=wanted)
    if wanted and not connector["tasks"] and connector["connector"]["state"] == "RUNNING":
        yield _unit_finding("NO_TASKS", connector["name"], connector["connector"], "it runs and has no tasks")


def _of_unit(name: str, unit: Json, now: datetime, *, wanted: bool) -> Iterator[Json]:
    explanation = unit.get("explanation", "")
    if unit["state"] == "FAILED":
        code = "TASK_FAILED" if "id" in unit else "CONNECTOR_FAILED"
        yield _unit_finding(code, name, unit, unit.get("error", "") or explanation, explanation)
    elif unit["state"] == "RESTARTING":
        yield _unit_finding("RESTARTING", name, unit, explanation or "it is being restarted")
    elif wanted and unit["state"] == "UNASSIGNED" and _has_waited(unit, now):
        yield _unit_finding("NOT_RUNNING", name, unit, explanation or "no worker runs it")
    for condition in unit.get("conditions", ()):
        if condition["type"] in _CONDITIONS:
            yield _unit_finding(condition["type"], name, unit, condition["message"])
        elif "wait" in condition:
            yield _unit_finding("WAITING", name, unit, condition["message"], wait=condition["wait"])


def _has_waited(unit: Json, now: datetime) -> bool:
    if any(one["type"] == "NO_WORKER" for one in unit.get("conditions", ())):
        return True
    since = unit.get("since")
    return since is not None and (now - datetime.fromisoformat(since)).total_seconds() >= PLACING_S


def _unit_finding(
    code: str, name: str, unit: Json, message: str, next_step: str = "", wait: Json | None = None
) -> Json:
    """`task` is the task's number, None for the connector itself; `since` when a wait began, or the state."""
    task = unit.get("id")
    since = unit.get("since") if wait is None else wait["since"]
    more = {} if wait is None else {"wait": wait}
    part = f"connector {name}" + ("" if task is None else f" task {task}")
    first = next(iter(message.strip().splitlines()), "")
    return finding(code, "connector", part, first, next_step, connector=name, task=task, since=since, **more)
