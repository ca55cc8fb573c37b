"""Screens of `get`, `describe` and `watch` at 40, 80, 120 and 200 columns, for people to look at.

The screens of lists are kept in `screens/` (its README.md tells what a changed file means); HERDMESH_WRITE_SCREENS=1
writes them again. No table is wider than the terminal, and no state is cut. `test_shown_screens.py` has the screens of
all other commands, for whole meshes.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from herdmesh.cli.commands import describe
from herdmesh.cli.display import board as boards
from herdmesh.cli.display import listing
from herdmesh.cli.display.diagnosis import diagnose
from herdmesh.cli.display.output import OutputConsole, table

WIDTHS = (40, 80, 120, 200)
SCREENS = Path(__file__).parent / "screens"
STATES = ("RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "STOPPED")


def unit(state: str, worker: str | None = "127.0.0.1:7204", **more: Any) -> dict[str, Any]:
    return {"state": state, "worker_id": worker, "generation": 23, "start_count": 3, **more}


def task(number: int, state: str = "RUNNING", **more: Any) -> dict[str, Any]:
    progress = {
        "activity": "RUNNING" if state == "RUNNING" else state,
        "records_out": 1_204_311 + number,
        "records_per_second": 8_214.3 if state == "RUNNING" else 0.0,
        "behind_records": 51_212,
        "uncommitted_records": 120,
        "partitions": [
            {
                "topic": "orders.eu-central-1.v3",
                "partition": number,
                "committed_offset": 1_204_191,
                "position": 1_204_311,
                "end_offset": 1_255_523,
                "behind_records": 51_212,
                "uncommitted_records": 120,
            }
        ],
    }
    return {"id": number, "config": {}, "progress": progress, **unit(state, **more)}


def connector(name: str, kind: str, state: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "target_state": "STARTED",
        "connector": unit(state),
        "tasks": list(tasks),
        "behind_records": 102_424,
        "uncommitted_records": 240,
        "config": {
            "connector.class": "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
            "topics": "orders.eu-central-1.v3",
            "errors.deadletterqueue.topic.name": "orders.eu-central-1.v3.dead-letters",
        },
        "warnings": [],
        **more,
    }


FULL = "the database refused the batch: FATAL: remaining connection slots are reserved for roles with SUPERUSER"
NO_PLUGIN = "no connected worker has the plugin ParqetSink"
CONNECTORS = [
    connector(
        "orders-eu-central-1-to-warehouse",
        "sink",
        "RUNNING",
        task(0),
        task(1, "FAILED", error=FULL, error_class="RETRIABLE"),
    ),
    connector("users", "source", "PAUSED", task(0, "PAUSED"), behind_records=None),
    connector(
        "clicks", "sink", "UNASSIGNED", behind_records=None, connector=unit("UNASSIGNED", None, explanation=NO_PLUGIN)
    ),
    connector("archive", "sink", "STOPPED", behind_records=0, target_state="STOPPED"),
]


def console(width: int) -> OutputConsole:
    made = OutputConsole(io.StringIO())
    made._force_terminal, made.file = True, io.StringIO()  # pyright: ignore[reportPrivateUsage]
    made.width = width
    return made


def text_of(made: Console) -> str:
    assert isinstance(made.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", made.file.getvalue())


def get_screen(width: int) -> str:
    made = console(width)
    columns = listing.DEFAULT_COLUMNS
    made.print(table(None, columns, listing.rows(CONNECTORS, columns)))
    return text_of(made)


def tasks_screen(width: int) -> str:
    made = console(width)
    made.print(table(None, *listing.task_table(listing.tasks_of(CONNECTORS))))
    return text_of(made)


def watch_screen(width: int) -> str:
    made, board = console(width), boards.Board()
    board.trouble = None
    board.connectors = {one["name"]: one for one in CONNECTORS}
    made.print(board.render())
    return text_of(made)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("screen", [get_screen, tasks_screen, watch_screen])
def test_a_list_looks_as_it_was_approved(screen: Callable[[int], str], width: int) -> None:
    shown = screen(width)
    kept = SCREENS / f"{screen.__name__.removesuffix('_screen')}-{width}.txt"
    if os.environ.get("HERDMESH_WRITE_SCREENS"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(shown, "utf-8")
    assert shown == kept.read_text("utf-8")
    assert max(len(line) for line in shown.splitlines() if not line.startswith("tasks of")) <= width
    assert "(- ago)" not in shown
    for state in ("PAUSED", "UNASSIGNED", "STOPPED"):
        if screen is not tasks_screen:
            assert state in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_a_description_cuts_no_state_and_no_table_is_too_wide(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in CONNECTORS:
        made = console(width)
        monkeypatch.setattr(describe, "out", made)
        describe.print_connector(one, diagnose(one))
        shown = text_of(made)
        assert one["connector"]["state"] in shown
        for number, each in enumerate(one["tasks"]):
            assert re.search(rf"^ *{number}  {each['state']}\b", shown, re.MULTILINE)
        tables = [part.splitlines() for part in re.split(r"\n\n", shown) if re.match(r"(tasks|offsets|config)\b", part)]
        assert len(tables) >= 1
        for lines in tables:
            assert max(map(len, lines[1:])) <= width, lines


def test_a_pipe_has_every_column_and_the_whole_error() -> None:
    made = OutputConsole(io.StringIO())
    made.file = io.StringIO()
    columns = listing.DEFAULT_COLUMNS
    made.print(table(None, columns, listing.rows(CONNECTORS, columns)))
    header, *lines = text_of(made).splitlines()
    assert header.split() == list(columns)
    assert lines[0].endswith(FULL)
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines[1:])) <= 150, "the long error of the first line makes no other line longer"


def test_wide_has_every_column_at_any_width() -> None:
    made = console(40)
    made.whole = True
    columns = list(listing.COLUMNS)
    made.print(table(None, columns, listing.rows(CONNECTORS, columns)))
    assert text_of(made).splitlines()[0].split() == columns
    assert FULL in text_of(made)


def test_the_list_on_the_page_of_the_command_line_is_a_screen() -> None:
    page = Path(__file__).parents[3] / "docs/how-to/command-line.md"
    (block,) = re.findall(r"^```text\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert block == get_screen(80)
