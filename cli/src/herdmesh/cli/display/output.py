"""The output of commands: tables for people, documents for programs.

Owns the formats of `-o`, colours, columns and the envelope of an error. Does not fetch. The text of a document in YAML,
CSV or by a JSONPath is made in `herdmesh.cli.display.documents`. Invariant: with `-o json` standard output holds
exactly one JSON document (one per line for streams), and all text for people goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from herdmesh.cli.display import documents
from herdmesh.cli.display.sentences import Sentence
from herdmesh.cli.display.tables import FLOOR, PIPE_WIDTH, Fit, ScreenColumn, ScreenTable
from herdmesh.cli.errors import CommandError
from herdmesh.connect.spi import RUN_SLOT, WAITING

if TYPE_CHECKING:
    from herdmesh.cli.display.views import Json

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
    "fetching": "cyan",
    "starting": "cyan",
    "restarting": "yellow",
    "failed": "bold red",
}


#: The exit code of a shell for a process that ended by SIGPIPE: nobody reads its output any more.
EXIT_PIPE: Final = 141


@dataclass(frozen=True, slots=True)
class Format:
    """An output format: the value of `-o`. `template` is for jsonpath alone."""

    name: str
    template: str = ""

    TABLE: ClassVar[Format]
    WIDE: ClassVar[Format]
    JSON: ClassVar[Format]
    YAML: ClassVar[Format]
    NAME: ClassVar[Format]
    CSV: ClassVar[Format]

    @property
    def is_document(self) -> bool:
        """True when standard output is for programs: the command prints one document and nothing else."""
        return self.name not in ("table", "wide")

    @property
    def has_errors(self) -> bool:
        """True when an error is a document too; in other formats it is text on standard error."""
        return self.name in ("json", "yaml", "typed")

    @property
    def is_wide(self) -> bool:
        """True when a table has all its columns and nothing is cut."""
        return self.name == "wide"

    def __str__(self) -> str:
        return f"{self.name}={self.template}" if self.template else self.name

    @classmethod
    def parse(cls, given: str | Format) -> Format:
        """The format of a text such as `yaml` or `jsonpath={.name}`. Raises BadParameter that lists the formats."""
        if isinstance(given, Format):
            return given
        return cls._one_of(FORMATS, given)

    @classmethod
    def parse_of_records(cls, given: str | Format) -> Format:
        """As `parse`, with the two formats that records alone have: value, typed."""
        if isinstance(given, Format):
            return given
        return cls._one_of(RECORD_FORMATS, given)

    @classmethod
    def _one_of(cls, formats: Sequence[str], given: str) -> Format:
        name, equals, template = given.partition("=")
        if name == "jsonpath" and template:
            return cls(name, template)
        if given not in formats or equals:
            raise typer.BadParameter(f"no format {given}; there are: {', '.join(formats)}, jsonpath='{{.name}}'")
        return cls(name)


#: The formats without a template.
FORMATS: Final = ("table", "wide", "json", "yaml", "name", "csv")
#: Those of records.
RECORD_FORMATS: Final = (*FORMATS, "value", "typed")
Format.TABLE, Format.WIDE, Format.JSON = Format("table"), Format("wide"), Format("json")
Format.YAML, Format.NAME, Format.CSV = Format("yaml"), Format("name"), Format("csv")


class OutputConsole(Console):
    """A console that knows whether it is for a person. Its tables ask it for their width and for their headers."""

    def __init__(self, stream: TextIO, *, stderr: bool = False) -> None:
        terminal = stream.isatty()
        # https://no-color.org: any value that is not empty. rich would leave bold and dim.
        plain = bool(os.environ.get("NO_COLOR"))
        super().__init__(
            stderr=stderr,
            highlight=False,
            emoji=False,
            width=None if terminal else PIPE_WIDTH,
            color_system=None if plain else "auto",
        )
        self.headers = True
        """False = a table has no line of column names (`--no-headers`)."""
        self.whole = False
        """True = a table has all its columns and nothing is cut (`-o wide`)."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints, but a line that is longer than the terminal continues on the next one instead of ending."""
        options.setdefault("crop", False)
        super().print(*objects, **options)

    def print_sentence(self, text: str, *, hang: int = 2, style: str = "", brief: str | None = None) -> None:
        """Print a sentence (markup): on a terminal in lines of whole words, the later ones indented by `hang`; in a
        pipe as one line. A terminal shows `brief` instead, if it is given.
        """
        self.print(Sentence(text, hang, brief), style=style or None)

    def on_broken_pipe(self) -> None:
        """End the command when nobody reads its output any more."""
        discard_output()
        raise SystemExit(EXIT_PIPE)


def discard_output() -> None:
    """Send the rest of standard output nowhere: its pipe is closed, and Python would print an error about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


out = OutputConsole(sys.stdout)
err = OutputConsole(sys.stderr, stderr=True)


def print_document(
    output: Format, document: Any, *, kind: str = "", rows: tuple[Sequence[str], Iterable[Sequence[str]]] | None = None
) -> None:
    """Print one document of plain values on standard output, in a format for programs.

    `kind` is the noun before each name (`-o name`), "" = by the key that names the object. `rows` are columns and cells
    (markup) of `-o csv`, where the command has a table of its own; else the document's values are the columns.
    """
    if output != Format.JSON:
        document = json.loads(json.dumps(document))  # plain values: an enum is its text
    match output.name:
        case "yaml":
            text = documents.yaml_text(document)
        case "name":
            text = "\n".join(documents.names(document, kind))
        case "jsonpath":
            text = documents.jsonpath_text(document, output.template)
        case "csv" if rows is not None:
            columns, cells = rows
            text = documents.csv_rows(columns, ([_bare(cell) for cell in row] for row in cells), headers=out.headers)
        case "csv":
            text = documents.csv_text(document, headers=out.headers)
        case _:
            text = json.dumps(document, indent=2, ensure_ascii=False)
    _write(text)


def print_line(output: Format, document: Any, *, kind: str = "") -> None:
    """Print one event of a stream: a line of JSON, a document of a YAML stream, or the lines of another format."""
    if output == Format.JSON:
        _write(json.dumps(document, ensure_ascii=False))
        return
    document = json.loads(json.dumps(document))
    if output == Format.YAML:
        _write(f"---\n{documents.yaml_text(document)}")
    elif output == Format.CSV:
        _write(documents.csv_text(document, headers=False))
    else:
        print_document(output, document, kind=kind)


def _write(text: str) -> None:
    if text:
        out.print(text.removesuffix("\n"), markup=False, soft_wrap=True)


def _bare(cell: str) -> str:
    """A cell for a program: no markup, no separators of thousands, nothing for a dash."""
    text = Text.from_markup(cell, emoji=False).plain
    if text == "-":
        return ""
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")


def error_document(error: CommandError) -> Json:
    """The JSON of a failure."""
    document: Json = {"error": {"reason": error.reason, "message": error.message, "next_step": error.next_step}}
    if error.fields:
        document["error"]["fields"] = [{"field": field, "message": message} for field, message in error.fields]
    return document


def print_error(error: CommandError, output: Format) -> None:
    """Print cause and next step: in JSON and YAML as a document, else as text on standard error."""
    if output.has_errors:
        print_document(Format.YAML if output == Format.YAML else Format.JSON, error_document(error))
        return
    err.print_sentence(f"[bold red]error[/] {escape(error.message)} [dim]({error.reason})[/]")
    for field, message in error.fields:
        err.print_sentence(f"  [bold]{escape(field)}[/]: {escape(message)}", hang=4)
    if error.next_step:
        err.print_sentence(f"[dim]next:[/] {escape(error.next_step)}")


def colored(state: str) -> str:
    """A state as markup in its colour."""
    style = STATE_STYLES.get(state)
    return f"[{style}]{escape(state)}[/]" if style else escape(state)


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    cut_columns: Collection[str] | None = None,
    *,
    every_column: bool = False,
    story: str = "",
    numbers: Collection[str] = (),
    drop: Sequence[str] = (),
) -> ScreenTable:
    """A table without lines between rows; cells are markup. `cut_columns` None = the columns that usually are too long.

    A table with a cut column has one line for each row, so its first column is cut too where nothing else helps. In
    other tables texts continue on the next line. `every_column` = no column is left out on a narrow terminal, because
    the user has chosen them. `story` is the column that is printed below its row on a narrow terminal, "" = the usual
    one; `numbers` are columns of numbers in this table alone; `drop` are the columns to leave out first, in order.
    """
    cut = _CUT.intersection(columns) if cut_columns is None else set(cut_columns)
    story = story or next((name for name in columns if name in _STORIES), "")
    ranks = {**_RANKS, **{name: at - len(drop) for at, name in enumerate(drop)}}

    def made(name: str) -> ScreenColumn:
        is_number = name in _NUMERIC or name in numbers
        if is_number or name in _WHOLE:
            fit = Fit.KEEP
        elif cut:
            fit = Fit.CUT if name in cut else Fit.MIDDLE if name == columns[0] or name in _NAMES else Fit.KEEP
        else:
            fit = Fit.MIDDLE if name in _NAMES else Fit.FOLD
        rank = None if every_column else ranks.get(name)
        floor = _KEY_FLOOR if name == columns[0] == "KEY" else FLOOR
        is_minor = rank is not None and 0 <= rank <= _MINOR_MAX
        return ScreenColumn(name, fit, is_number, rank, is_minor, is_story=name == story, floor=floor)

    return ScreenTable(title, [made(name) for name in columns], [list(row) for row in rows])


#: Columns whose cells are cut at the width of the terminal: a list of a thousand has one line for each, and
#: `herd describe` has the rest.
_CUT = {"ATTENTION"}
#: Columns that explain their row, and are below it on a narrow terminal.
_STORIES: Final = ("ATTENTION", "WHY", "REASON", "MESSAGE", "VALUE", "MEANING")
#: Columns that mean something else, or cannot be copied, when they are cut or folded: states, times, places.
_WHOLE: Final = frozenset(
    {"STATE", "WANTED", "CONDITION", "ACTION", "ROLE", "LEVEL", "TIME", "LETTER", "OPERATION", "TYPE", "PART"}
)
#: Columns of names, whose middle is left out: many names begin alike and end in a number.
_NAMES: Final = frozenset({"NAME", "WORKER", "CONNECTOR", "ADDRESS", "TOPIC", "CALLER", "SERVICE", "LOGGER"})
#: A key of a config is not folded before it is this wide.
_KEY_FLOOR: Final = 40
_NUMERIC = {
    *("LAG", "BEHIND", "UNCOMMITTED", "RECORDS", "REC/S", "SLOTS", "STARTS", "RESTARTS", "PID", "TASK", "UNDECODABLE"),
    *("PARTITION", "OFFSET", "COMMITTED", "POSITION", "END", "FAILED", "AGE", "CONNECTORS", "GENERATION", "RUNS"),
    *("CPU", "MEMORY", "PARTITIONS", "REPLICAS", "FIRST OFFSET", "END OFFSET", "REVISION", "ATTEMPT"),
    *("USED", "WAITING"),
}
#: Columns that a narrow terminal leaves out, the first one first. Others are never left out: names, states, ATTENTION.
_RANKED: Final = (
    *("PID", "RESTARTS", "GENERATION", "STARTS", "REPLICAS", "RECORDS", "REC/S", "UNCOMMITTED", "TYPE", "WANTED"),
    *("AGE", "ALIASES", "VERSION", "IMPORTANCE", "POSITION", "END", "COMMITTED", "CHANGED", "ACTIVITY", "FAILED"),
    *("CONNECTORS", "SLOTS", "USED", "WAITING", "WORKERS", "WORKER", "ADDRESS", "UNDECODABLE"),
    *("LAG", "BEHIND", "TASKS"),
)
_RANKS: Final = {name: rank for rank, name in enumerate(_RANKED)}
#: Columns up to this one are left out before a story moves below its row.
_MINOR_MAX: Final = _RANKS["AGE"]


def paged(shown: ScreenTable, lines: int, summary: str = "") -> None:
    """Print a table, through the terminal's pager when it is longer than the terminal; never when it is piped. The
    summary (markup) is printed before a table that is paged: its worst line may be on any page.
    """
    if out.is_terminal and lines + 2 > out.height:
        with out.pager(styles=True):
            if summary:
                out.print_sentence(f"{summary}\n")
            out.print(shown)
    else:
        out.print(shown)


def task_rows(connector: Json) -> list[list[str]]:
    """Rows for the tasks of one connector."""
    return [task_row(task) for task in connector["tasks"]]


def task_row(task: Json) -> list[str]:
    """The cells of a task in `TASK_COLUMNS`."""
    moved: Json = task.get("progress", {})
    return [
        str(task["id"]),
        colored(task["state"]),
        escape(task["worker_id"] or "-"),
        moved.get("activity", "-").lower(),
        task_lag(task),
        count(moved.get("records_out")),
        count(round(moved.get("records_per_second", 0))),
        count(task["start_count"]),
    ]


_STANDING = ("PAUSED", "FAILED")
"""States in which a task reads nothing while its worker still has its last positions."""


def task_lag(task: Json) -> str:
    """Records of its partitions that a sink task has not read yet. While the task waits for its target, the records
    that it has read and not committed count as well: they are not delivered, however deep the task's own queue is.

    For a paused or failed task Kafka is not queried: the lag is by the ends of its partitions when it paused or failed,
    shown with its age; more records may wait by now.
    """
    lag = _not_delivered(task)
    if task["state"] in _STANDING and lag is not None:
        return f"{count(lag)} ({_ago(task.get('since'))})"
    return count(lag if task["state"] == "RUNNING" else None)


def connector_lag(connector: Json) -> str:
    """Lag of all tasks; while some are paused or failed, its age is that of the oldest of their positions."""
    tasks = [task for task in connector["tasks"] if task["state"] == "RUNNING" and _waits_for_target(task)]
    if connector["behind_records"] is None or not tasks:
        return _of_tasks(connector, "behind_records")
    queued = sum(task.get("progress", {}).get("uncommitted_records") or 0 for task in tasks)
    return count(connector["behind_records"] + queued)


def _not_delivered(task: Json) -> int | None:
    progress: Json = task.get("progress", {})
    behind = progress.get("behind_records")
    if behind is None or not _waits_for_target(task):
        return behind
    return behind + (progress.get("uncommitted_records") or 0)


def _waits_for_target(task: Json) -> bool:
    waits = (one.get("wait") for one in task.get("conditions", ()) if one["type"] == WAITING)
    return any(wait is not None and wait["waits_for"] != RUN_SLOT for wait in waits)


def connector_uncommitted(connector: Json) -> str:
    """Records that a sink's tasks have read and not committed yet; with an age as in `connector_lag`."""
    return _of_tasks(connector, "uncommitted_records")


def _of_tasks(connector: Json, figure: str) -> str:
    lags = [task.get("progress", {}).get(figure) for task in connector["tasks"]]
    standing = [task["since"] for task in connector["tasks"] if task["state"] in _STANDING and task.get("since")]
    known = all(task["state"] in (*_STANDING, "RUNNING") for task in connector["tasks"]) and None not in lags
    if connector[figure] is not None or not (standing and known):
        return count(connector[figure])
    return f"{count(sum(lags))} ({_ago(min(standing))})"


def _ago(since: str | None) -> str:
    return f"{age(since)} ago" if since else "old"


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
