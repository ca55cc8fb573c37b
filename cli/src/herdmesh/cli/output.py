"""The output of commands: tables for people, JSON for programs.

Owns colours, columns and the JSON envelope. Does not fetch. Invariant: with `-o json` standard output holds exactly one
JSON document (one per line for streams), and all text for people goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from herdmesh.cli.errors import CommandError
from herdmesh.cli.quick_table import QuickTable

if TYPE_CHECKING:
    from herdmesh.cli.views import Json

STATE_STYLES = {
    "RUNNING": "green",
    "PAUSED": "yellow",
    "STOPPED": "yellow",
    "UNASSIGNED": "magenta",
    "RESTARTING": "cyan",
    "FAILED": "bold red",
    "CONNECTED": "green",
    "LOST": "bold red",
    "DRAINING": "yellow",
    "DRAINED": "yellow",
    "STARTED": "green",
    "START": "green",
    "STOP": "yellow",
    "RESTART": "cyan",
    "HEALTHY": "green",
    "LEADS": "green",
    "UNREACHABLE": "bold red",
    "serving": "green",
    "starting": "cyan",
    "restarting": "yellow",
    "failed": "bold red",
}


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"


#: Output that is not a terminal gets whole lines, so that a search in it finds uncut texts.
_WIDTH_OF_PIPES = 100_000


def _width(stream: TextIO) -> int | None:
    """The width of the output, None = the terminal's own."""
    return None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_OF_PIPES


out = Console(highlight=False, width=_width(sys.stdout))
err = Console(stderr=True, highlight=False, width=_width(sys.stderr))


def print_json(document: Any) -> None:
    """Print one document, indented, on standard output."""
    out.print(json.dumps(document, indent=2, ensure_ascii=False), markup=False, soft_wrap=True)


def print_json_line(document: Any) -> None:
    """Print one event of a stream on one line."""
    out.print(json.dumps(document, ensure_ascii=False), markup=False, soft_wrap=True)


def error_document(error: CommandError) -> Json:
    """The JSON of a failure."""
    document: Json = {"error": {"reason": error.reason, "message": error.message, "next_step": error.next_step}}
    if error.fields:
        document["error"]["fields"] = [{"field": field, "message": message} for field, message in error.fields]
    return document


def print_error(error: CommandError, output: Format) -> None:
    """Print cause and next step."""
    if output is Format.JSON:
        print_json(error_document(error))
        return
    err.print(f"[bold red]error[/] {escape(error.message)} [dim]({error.reason})[/]", soft_wrap=True)
    for field, message in error.fields:
        err.print(f"  [bold]{escape(field)}[/]: {escape(message)}", soft_wrap=True)
    if error.next_step:
        err.print(f"[dim]next:[/] {escape(error.next_step)}", soft_wrap=True)


def colored(state: str) -> str:
    """A state as markup in its colour."""
    style = STATE_STYLES.get(state)
    return f"[{style}]{escape(state)}[/]" if style else escape(state)


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]], cut_columns: Collection[str] | None = None
) -> QuickTable:
    """A table without lines between rows; cells are markup. `cut_columns` None = the columns that usually are
    too long.
    """
    built = QuickTable(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold dim")
    cut_names = _CUT if cut_columns is None else cut_columns
    cut = {at for at, column in enumerate(columns) if column in cut_names}
    for column in columns:
        # Columns that may wrap are made narrow first: in a table with cut columns, no other column wraps.
        justify = "right" if column in _NUMERIC else "left"
        built.add_column(column, justify=justify, overflow="fold", no_wrap=bool(cut) and column not in cut_names)
    for row in rows:
        built.add_row(*(_one_line(cell) if at in cut else cell for at, cell in enumerate(row)))
    return built


def _one_line(cell: str) -> Text:
    text = Text.from_markup(cell)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


#: Columns whose cells are cut at the width of the terminal: a list of a thousand has one line for each, and
#: `herd describe` has the rest.
_CUT = {"ATTENTION"}
_NUMERIC = {
    *(
        "LAG",
        "BEHIND",
        "UNCOMMITTED",
        "RECORDS",
        "REC/S",
        "SLOTS",
        "STARTS",
        "RESTARTS",
        "PID",
        "TASK",
        "UNDECODABLE",
        "PARTITION",
        "OFFSET",
        "FAILED",
        "AGE",
        "CONNECTORS",
        "GENERATION",
    )
}


def paged(shown: QuickTable, lines: int) -> None:
    """Print a table, through the terminal's pager when it is longer than the terminal; never when it is piped."""
    if out.is_terminal and lines + 2 > out.height:
        with out.pager(styles=True):
            out.print(shown)
    else:
        out.print(shown)


def task_rows(connector: Json) -> list[list[str]]:
    """Rows for the tasks of one connector."""
    rows: list[list[str]] = []
    for task in connector["tasks"]:
        moved: Json = task.get("progress", {})
        rows.append(
            [
                str(task["id"]),
                colored(task["state"]),
                escape(task["worker_id"] or "-"),
                moved.get("activity", "-").lower(),
                task_lag(task),
                count(moved.get("records_out")),
                count(round(moved.get("records_per_second", 0))),
                count(task["start_count"]),
            ]
        )
    return rows


_STANDING = ("PAUSED", "FAILED")
"""States in which a task reads nothing while its worker still has its last positions."""


def task_lag(task: Json) -> str:
    """Records of its partitions that a sink task has not read yet. For a paused or failed task Kafka is not queried:
    the lag is by the ends of its partitions when it paused or failed, shown with its age; more records may wait by now.
    """
    lag = task.get("progress", {}).get("behind_records")
    if task["state"] in _STANDING and lag is not None:
        return f"{count(lag)} ({age(task.get('since'))} ago)"
    return count(lag if task["state"] == "RUNNING" else None)


def connector_lag(connector: Json) -> str:
    """Lag of all tasks; while some are paused or failed, its age is that of the oldest of their positions."""
    return _of_tasks(connector, "behind_records")


def connector_uncommitted(connector: Json) -> str:
    """Records that a sink's tasks have read and not committed yet; with an age as in `connector_lag`."""
    return _of_tasks(connector, "uncommitted_records")


def _of_tasks(connector: Json, figure: str) -> str:
    lags = [task.get("progress", {}).get(figure) for task in connector["tasks"]]
    standing = [task["since"] for task in connector["tasks"] if task["state"] in _STANDING and task.get("since")]
    known = all(task["state"] in (*_STANDING, "RUNNING") for task in connector["tasks"]) and None not in lags
    if connector[figure] is not None or not (standing and known):
        return count(connector[figure])
    return f"{count(sum(lags))} ({age(min(standing))} ago)"


def age(since: str | None, now: datetime | None = None) -> str:
    """`2026-11-21T17:00:05Z` -> `4m`: the largest unit that fits; unknown -> a dash."""
    if not since:
        return "-"
    seconds = max(0.0, ((now or datetime.now(UTC)) - datetime.fromisoformat(since)).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


TASK_COLUMNS = ("TASK", "STATE", "WORKER", "ACTIVITY", "LAG", "RECORDS", "REC/S", "STARTS")


def count(value: int | None) -> str:
    """1234567 -> 1,234,567; unknown -> a dash."""
    return "-" if value is None else f"{value:,}"
