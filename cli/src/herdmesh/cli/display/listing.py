"""The tables of `herd get`: filters, order, columns.

Owns the columns, the filters and the sort keys. Fetches nothing and prints nothing: rows in, rows out. Invariant:
unknown values sort last, in either direction, and rows with equal keys keep the order of names.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.markup import escape

from herdmesh.cli.display.diagnosis import attention, first_problem
from herdmesh.cli.display.output import (
    TASK_COLUMNS,
    age,
    colored,
    connector_lag,
    connector_uncommitted,
    count,
    task_row,
)
from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_USAGE, CommandError

#: States of a connector or a task (Connect's, without those that are never shown), and types of connectors.
STATES = frozenset({"UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"})
KINDS = ("source", "sink", "unknown")

Cell = Callable[[Json], str]
Key = Callable[[Json], "str | float | None"]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column: its cell as markup, its sort key, and whether it needs more data than the states."""

    cell: Cell
    key: Key
    full: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions on a connector to be listed; empty = all connectors."""

    match: str = ""
    states: frozenset[str] = frozenset()
    kind: str = ""
    worker: str = ""

    def keeps(self, one: Json) -> bool:
        units = [one["connector"], *one["tasks"]]
        return (
            (not self.match or fnmatch.fnmatchcase(one["name"], self.match))
            and (not self.states or any(unit["state"] in self.states for unit in units))
            and self.kind in ("", one["type"])
            and (not self.worker or any(unit["worker_id"] == self.worker for unit in units))
        )


def chosen_columns(names: str) -> list[str]:
    """Column names from `A,B`, any case. Raises CommandError that lists the valid ones."""
    wanted = [name.strip().upper() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown or not wanted:
        named = ", ".join(unknown) or "in an empty list"
        raise CommandError("USAGE", f"no column {named}; there are: {', '.join(COLUMNS)}", exit_code=EXIT_USAGE)
    return wanted


def checked(wanted: Filter) -> Filter:
    """The filter, if any connector could pass it. Raises CommandError that lists the valid values."""
    for what, unknown, known in (
        ("state", sorted(wanted.states - STATES), sorted(STATES)),
        ("type", [wanted.kind] if wanted.kind not in ("", *KINDS) else [], list(KINDS)),
    ):
        if unknown:
            text = f"no {what} {', '.join(unknown)}; there are: {', '.join(known)}"
            raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    return wanted


def chosen_key(name: str) -> str:
    """The column to sort by. Raises CommandError that lists the valid ones."""
    return chosen_columns(name)[0]


def ordered(connectors: Iterable[Json], by: str, *, reverse: bool = False) -> list[Json]:
    """The connectors sorted by a column."""
    key = COLUMNS[by].key
    listed = sorted(connectors, key=lambda one: one["name"])
    known = [one for one in listed if key(one) is not None]
    known.sort(key=lambda one: _comparable(key(one)), reverse=reverse)
    return [*known, *(one for one in listed if key(one) is None)]


def rows(connectors: Iterable[Json], columns: Sequence[str]) -> list[list[str]]:
    """The cells, as markup."""
    return [[COLUMNS[name].cell(one) for name in columns] for one in connectors]


def tasks_of(connectors: Iterable[Json]) -> list[Json]:
    """The tasks of connectors, each with `name` (`connector/0`) and `connector`."""
    return [
        {"name": f"{one['name']}/{task['id']}", "connector": one["name"], **task}
        for one in ordered(connectors, "NAME")
        for task in one["tasks"]
    ]


def task_table(tasks: Iterable[Json], *, wide: bool = False) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of tasks from `tasks_of`."""
    columns = ["NAME", *TASK_COLUMNS[1:], *(("GENERATION", "AGE") if wide else ()), "ATTENTION"]
    rows: list[list[str]] = []
    for task in tasks:
        more = [str(task["generation"] or "-"), age(task.get("since"))] if wide else []
        rows.append([escape(task["name"]), *task_row(task)[1:], *more, escape(first_problem(task))])
    return columns, rows


def unit_table(connector: Json) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a connector's units: the connector itself, then its tasks."""
    columns, rows = task_table(tasks_of([connector]), wide=True)
    own: Json = connector["connector"]
    first = {
        "NAME": escape(connector["name"]),
        "STATE": colored(own["state"]),
        "WORKER": escape(own["worker_id"] or "-"),
        "LAG": connector_lag(connector),
        "RECORDS": count(_records_out(connector)),
        "REC/S": count(round(_moved(connector, "records_per_second"))),
        "STARTS": count(own["start_count"]),
        "GENERATION": str(own["generation"] or "-"),
        "AGE": age(own.get("since")),
        "ATTENTION": escape(first_problem(own)),
    }
    return columns, [[first.get(name, "-") for name in columns], *rows]


def worker_table(workers: Iterable[Json]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of workers."""
    rows = [
        [
            escape(one["worker_id"]),
            colored(one["state"]),
            str(one["slots"]),
            count(one["slots_used"]),
            count(one["tasks_waiting_for_slot"]),
            str(len(one["connectors"])),
            str(len(one["tasks"])),
            escape(one["reason"] or ""),
        ]
        for one in workers
    ]
    return ["WORKER", "STATE", "SLOTS", "USED", "WAITING", "CONNECTORS", "TASKS", "WHY"], rows


def states_of_all(connectors: Sequence[Json], workers: Iterable[Json]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of all objects together: kind, name, state, and the first problem."""
    listed = ordered(connectors, "NAME")
    rows = [["connector", one["name"], one["connector"]["state"], attention(one)] for one in listed]
    rows += [["task", one["name"], one["state"], first_problem(one)] for one in tasks_of(listed)]
    rows += [["worker", one["worker_id"], one["state"], one["reason"] or ""] for one in workers]
    return ["KIND", "NAME", "STATE", "ATTENTION"], [[*map(escape, row)] for row in rows]


def _comparable(value: str | float | None) -> tuple[int, float, str]:
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value or 0), "")


def _states(one: Json) -> str:
    """`3/4 running, 1 failed`."""
    tasks: list[Json] = one["tasks"]
    counts = {state: sum(task["state"] == state for task in tasks) for state in ("RUNNING", "FAILED", "RESTARTING")}
    told = f"{counts['RUNNING']}/{len(tasks)} running"
    told += f", [bold red]{counts['FAILED']} failed[/]" if counts["FAILED"] else ""
    return told + (f", [cyan]{counts['RESTARTING']} restarting[/]" if counts["RESTARTING"] else "")


def _moved(one: Json, name: str) -> float:
    return sum(task.get("progress", {}).get(name, 0) for task in one["tasks"])


def _records_out(one: Json) -> int:
    """Records written since the connector was created, by tasks that it has no more, too."""
    counts: Json | None = one.get("counts")
    return counts["records_out"] if counts else round(_moved(one, "records_out"))


def _workers(one: Json) -> list[str]:
    return sorted({unit["worker_id"] for unit in (one["connector"], *one["tasks"]) if unit["worker_id"]})


def _since(one: Json) -> float | None:
    since = one["connector"].get("since")
    return -datetime.fromisoformat(since).timestamp() if since else None


COLUMNS: dict[str, ListColumn] = {
    "NAME": ListColumn(lambda one: escape(one["name"]), lambda one: one["name"]),
    "TYPE": ListColumn(lambda one: one["type"], lambda one: one["type"]),
    "WANTED": ListColumn(lambda one: colored(one["target_state"] or "STARTED"), lambda one: one["target_state"]),
    "STATE": ListColumn(lambda one: colored(one["connector"]["state"]), lambda one: one["connector"]["state"]),
    "TASKS": ListColumn(_states, lambda one: len(one["tasks"])),
    "FAILED": ListColumn(
        lambda one: count(sum(unit["state"] == "FAILED" for unit in (one["connector"], *one["tasks"]))),
        lambda one: sum(unit["state"] == "FAILED" for unit in (one["connector"], *one["tasks"])),
    ),
    "LAG": ListColumn(connector_lag, lambda one: one["behind_records"]),
    "UNCOMMITTED": ListColumn(connector_uncommitted, lambda one: one["uncommitted_records"]),
    "AGE": ListColumn(lambda one: age(one["connector"].get("since")), _since),
    "WORKERS": ListColumn(
        lambda one: escape(", ".join(_workers(one)) or "-"), lambda one: ",".join(_workers(one)) or None
    ),
    "ATTENTION": ListColumn(lambda one: escape(attention(one)), lambda one: attention(one) or None),
    "RECORDS": ListColumn(lambda one: count(_records_out(one)), _records_out, full=True),
    "REC/S": ListColumn(
        lambda one: count(round(_moved(one, "records_per_second"))),
        lambda one: _moved(one, "records_per_second"),
        full=True,
    ),
}
DEFAULT_COLUMNS = ("NAME", "TYPE", "STATE", "TASKS", "LAG", "RECORDS", "REC/S", "ATTENTION")
#: For more connectors than this, columns that need every task's progress are not listed by default.
WIDE_MAX = 200
NARROW_COLUMNS = tuple(name for name in DEFAULT_COLUMNS if not COLUMNS[name].full)
