"""Screens of all commands that an operator reads, at 40, 80, 120 and 200 columns and in a pipe, for whole meshes.

They are kept in `screens/` (its README.md tells what a changed file means); HERDMESH_WRITE_SCREENS=1 writes them again.
"""

from __future__ import annotations

import functools
import io
import os
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from cli.tests.cli import shown_meshes, shown_screens
from cli.tests.cli.shown_mesh import CONFIG_STORES, HERDER, KAFKA, STATUS_STORE, W1, ShownMesh
from cli.tests.cli.shown_screens import WIDTHS, Printed, screen
from herdmesh.cli.app import app
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board
from herdmesh.cli.display.output import OutputConsole, colored, table

SCREENS = Path(__file__).parent / "screens"
_MADE = (shown_meshes.healthy, shown_meshes.night, shown_meshes.many, shown_meshes.outage)
#: By name; made once, because no command changes one.
MESHES = {one.__name__: functools.cache(one) for one in _MADE}
#: Lines of the terminal of a live picture.
HEIGHT = 24
_DOCTOR = (
    *("doctor", "--config-store", ",".join(CONFIG_STORES), "--status-store", STATUS_STORE),
    *("--herder", HERDER, "--bootstrap-servers", KAFKA),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "get-connectors": ("get", "connectors"),
    "get-tasks": ("get", "tasks"),
    "get-workers": ("get", "workers"),
    "get-all": ("get", "all"),
    "describe-connector": ("describe", "connector", "orders-to-warehouse"),
    "describe-source": ("describe", "connector", "shop-source"),
    "describe-task": ("describe", "task", "orders-to-warehouse/1"),
    "describe-worker": ("describe", "worker", W1),
    "doctor": _DOCTOR,
    "top": ("top",),
    "events": ("events", "--limit", "12"),
    "history": ("history", "orders-to-warehouse"),
    "history-diff": ("history", "orders-to-warehouse", "--diff"),
    "topics-list": ("topics", "list"),
    "topics-describe": ("topics", "describe", "orders.eu-central-1.v3"),
    "dlq-list": ("dlq", "list", "orders-to-warehouse"),
    "offsets-get": ("offsets", "get", "orders-to-warehouse"),
    "plan": ("plan", "-f", "FILE"),
    "diff": ("diff", "-f", "FILE"),
    "watch": ("watch",),
}
_OF_MANY = ("doctor", "top", "watch")
SHOWN = [
    *((mesh, name) for mesh in ("healthy", "night") for name in COMMANDS),
    *((mesh, name) for mesh in ("many", "outage") for name in _OF_MANY),
]
_STATES = re.compile(
    r"\b(?:RUNNING|FAILED|PAUSED|STOPPED|UNASSIGNED|RESTARTING|CONNECTED|LOST|DRAINING|HEALTHY|LEADS|UNREACHABLE|"
    r"BROKER_UNREACHABLE)\b"
)
#: Lines that are longer than the terminal so that they can be copied: values, a trace, the title of a table.
_COPIED = r"[+-] |  [+~-] |(tasks of|undecodable in) |herdmesh[.]"
#: A command in backticks, or a word: what no line may break. A line with one of these alone may be too wide.
_UNBROKEN = re.compile(r"[^\s`]*`[^`\n]+`\S*|\S+")


@pytest.fixture(params=SHOWN, ids="-".join)
def shown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Printed]:
    """The file of a screen, and what its command prints."""
    mesh_name, name = request.param
    mesh = MESHES[mesh_name]()
    shown_screens.use(mesh, monkeypatch)
    file = SCREENS / mesh_name / f"{name}.txt"
    return file, [((board_of(mesh).render(height=HEIGHT),), {})] if name == "watch" else printed(name, tmp_path)


def printed(name: str, folder: Path) -> Printed:
    return shown_screens.run(*(shown_screens.config_file(folder) if one == "FILE" else one for one in COMMANDS[name]))


def board_of(mesh: ShownMesh) -> Board:
    board = Board()
    board.trouble = None
    board.connectors = {one.name: views.connector(one) for one in mesh.connectors}
    return board


def test_a_screen_looks_as_it_was_approved(shown: tuple[Path, Printed]) -> None:
    file, recorded = shown
    texts = {f"{width} columns": screen(recorded, width) for width in WIDTHS}
    if file.stem != "watch":  # in a pipe it prints a line for each change
        texts["a pipe"] = screen(recorded, None)
    text = "".join(f"=== {title}\n{text}" for title, text in texts.items())
    if os.environ.get("HERDMESH_WRITE_SCREENS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
    whole = texts.get("a pipe", texts["200 columns"])
    for width in WIDTHS:
        check_width(texts[f"{width} columns"], width)
        if not file.stem.startswith("describe"):  # its first lines repeat states
            assert set(_STATES.findall(texts[f"{width} columns"])) == set(_STATES.findall(whole)), "a state is cut"
    assert not re.search(r"[ \t]+$", whole, re.MULTILINE)


def check_width(text: str, width: int) -> None:
    """No line is too wide, except for a word or command that is, or a value that is to be copied as it is."""
    for line in text.splitlines():
        if cell_len(line) <= width or re.match(_COPIED, line):
            continue
        assert max(map(cell_len, _UNBROKEN.findall(line))) > width - 12, line


@pytest.mark.parametrize("name", ["doctor", "get-connectors", "describe-connector"])
def test_colours_are_never_the_only_sign(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown_screens.use(MESHES["night"](), monkeypatch)
    recorded = printed(name, tmp_path)
    coloured, plain = screen(recorded, 120, colours=True), screen(recorded, 120)
    assert "\x1b[" in coloured
    for text in re.findall(r"\x1b\[1;(?:31|33)m([^\x1b]*)", re.sub(r"\x1b\[0m\x1b\[1;3[13]m", "", coloured)):
        assert re.search(r"fail|error|warning|FAILED|LOST|UNREACHABLE|refused|does not|without", text), text
    for text in ("FAILED", "failed", "error"):
        assert plain.count(text) == coloured.count(text), "the same words with and without colours"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_color_and_a_pipe_have_no_escape_sequences(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    if is_terminal:
        monkeypatch.setenv("NO_COLOR", "1")
    console = OutputConsole(_Stream(is_terminal))
    with console.capture() as captured:
        console.print_sentence("[bold red]error[/] [dim]the disk is full[/]", style="green")
        console.print(table(None, ("NAME", "STATE"), [["orders", colored("FAILED")]]))
    assert captured.get() == "error the disk is full\nNAME    STATE\norders  FAILED\n"


class _Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_a_live_picture_is_never_longer_than_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, make in MESHES.items():
        shown_screens.use(make(), monkeypatch)
        board = board_of(make())
        for width, height in ((80, HEIGHT), (80, 50), (200, HEIGHT)):
            text = screen([((board.render(height=height),), {})], width)
            assert len(text.splitlines()) <= height, (name, width, height)


def test_what_is_wrong_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mesh = MESHES["many"]()
    shown_screens.use(mesh, monkeypatch)
    assert "orders-211" in screen([((board_of(mesh).render(height=HEIGHT),), {})], 80).splitlines()[0]
    assert "orders-211" in screen(printed("top", tmp_path), 80).splitlines()[0]
    first, _, second, *_ = screen(printed("doctor", tmp_path), 80).splitlines()
    assert first == "1 error, 1 warning"
    assert second.startswith("error TASK_FAILED connector orders-211 task 1: ")


def test_an_outage_of_300_connectors_is_one_finding_and_json_has_each(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_screens.use(MESHES["outage"](), monkeypatch)
    done = CliRunner().invoke(app, [*_DOCTOR])
    assert done.stdout.count("WAITING") == 1
    assert "orders-299" in done.stdout, "a pipe names all"
    done = CliRunner().invoke(app, [*_DOCTOR, "-o", "json"])
    assert done.stdout.count('"WAITING"') == 600
