"""The page docs/tutorials/first-hour.md as a run: its commands one after the other in an empty folder, each output
compared with the page's.

Owns the steps of the page, the comparison, and the parts of an output that differ from run to run. Does not own the
environment: the checkout's `herd` (tests/e2e/test_first_hour.py) or the installed packages' (tests/install).

Invariant: the comparison covers everything that a command prints to both outputs, and its exit code, except times,
ports, process ids, versions of Python, and white space.
"""

from __future__ import annotations

import getpass
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from herdmesh.devstack.layout import StackLayout
from tests.support.printed_pages import renamed, without_what_varies

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "first-hour.md"
WAIT_S: Final = 60.0
_STAYS_S: Final = 4.0
_FOLDER: Final = "/srv/first-hour"
_CALLER: Final = "ada@laptop"
_USUAL: Final = {"broker": 9092, "config-store": 7201, "status-store": 7202, "herder": 7203, "worker-1": 7204}
_STEP: Final = re.compile(
    r"^```sh\n(?P<command>.*?)^```$(?:\n\n```text\n(?P<output>.*?)^```$)?", re.DOTALL | re.MULTILINE
)
#: Commands that change nothing: run again until they print the page's output.
_QUERY: Final = re.compile(r"(herd (get|doctor|describe|logs|consume|dlq list|history)|cat [^>]*$)")
_VARIES: Final = (
    (re.compile(r"\(Python [\d.]+\)"), "(Python)"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r" \(\d+\w+ ago\)"), ""),
    (re.compile(r"\brun_id=\S+"), "run_id=ID"),
    (re.compile(r"^note \S+ listens on port .*\n", re.MULTILINE), ""),
    (re.compile(r"(?<=PutConnectorConfig  )\d+"), "N"),
)
_COLUMNS: Final = {"PID", "REC/S", "AGE", "GENERATION"}
_CELLS: Final = re.compile(r" {2,}")


@dataclass(frozen=True)
class Step:
    """A block of commands, and the output behind it; None = it prints nothing."""

    command: str
    output: str | None
    at: int
    """Position of the output in the page."""

    @property
    def is_query(self) -> bool:
        """Whether it changes nothing."""
        return _QUERY.match(self.command) is not None

    @property
    def exit_code(self) -> int:
        """The exit code that the output implies: 5 of a refused config, 1 of a difference and of `herd doctor`."""
        output = self.output or ""
        if self.command.startswith("herd doctor"):
            return int(re.search(r"^\d+ errors?\b", output, re.MULTILINE) is not None)
        if re.search(r"^error ", output, re.MULTILINE):
            return 5
        return int(self.command.startswith("herd diff"))


def steps() -> list[Step]:
    """All steps of the page, in order."""
    return [Step(one["command"], one["output"], one.start("output")) for one in _STEP.finditer(PAGE.read_text("utf-8"))]


class FirstHour:
    """The page's commands in a folder. With `writes` their outputs replace those of the page."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, writes: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.env = {**env, "XDG_CONFIG_HOME": str(folder.parent / "config")}  # no context of the user's
        self._writes = writes

    def run(self) -> None:
        """Run all steps. Raises AssertionError for the first one that does not print the page's output."""
        written = dict[int, str]()
        for step in steps():
            printed = self._settled(step) if self._writes else self.compared(step)
            if step.output is not None:
                written[step.at] = printed
        if self._writes:
            _rewrite(written)

    def compared(self, step: Step) -> str:
        """Run a step; a query until it prints the page's output. Raises AssertionError."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            printed, code = self._printed(step)
            if _same(printed, step.output or "") and code == step.exit_code:
                return printed
            shown = f"{step.command}exit code {code}, printed\n{printed}\nand not\n{step.output}"
            assert step.is_query, shown
            assert time.monotonic() < deadline_s, shown
            time.sleep(0.2)

    def _settled(self, step: Step) -> str:
        """What a query prints once that stays the same for a while; the first output of a change."""
        printed, since_s = self._printed(step)[0], time.monotonic()
        while step.is_query and time.monotonic() - since_s < _STAYS_S:
            time.sleep(0.25)
            again = self._printed(step)[0]
            since_s = since_s if _same(again, printed) else time.monotonic()
            printed = again
        return printed

    def _printed(self, step: Step) -> tuple[str, int]:
        done = subprocess.run(
            ["bash", "-euc", step.command],
            cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        return self.renamed(done.stdout), done.returncode

    def renamed(self, output: str) -> str:
        """The output with the page's names of the folder, the caller and the ports."""
        return renamed(output, dict(self._names()))

    def _names(self) -> Iterator[tuple[str, str]]:
        yield str(self.folder), _FOLDER
        yield f"{getpass.getuser()}@{platform.node()}", _CALLER
        state = StackLayout(self.folder / ".herd").read_state()
        for service in state.services if state is not None else ():
            if service.address:
                yield service.address, f"127.0.0.1:{_USUAL[service.name]}"


def _same(printed: str, shown: str) -> bool:
    return _without_what_varies(printed) == _without_what_varies(shown)


def _without_what_varies(text: str) -> str:
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return without_what_varies("\n".join(_without_columns(text.splitlines())))


def _without_columns(lines: list[str]) -> Iterator[str]:
    """The lines with N in the cells of columns that vary."""
    varying = list[int]()
    for line in lines:
        cells = _CELLS.split(line.strip())
        if cells[0].isupper() and len(cells) > 1:
            varying = [at for at, name in enumerate(cells) if name in _COLUMNS]
        elif not line.strip():
            varying = []
        elif varying:
            cells = ["N" if at in varying else cell for at, cell in enumerate(cells)]
        yield "  ".join(cells)


def _rewrite(outputs: Mapping[int, str]) -> None:
    text = PAGE.read_text("utf-8")
    for step in reversed(steps()):
        if step.output is not None:
            kept = re.sub(r"^note \S+ listens on port .*\n", "", outputs[step.at], flags=re.MULTILINE)
            lines = "\n".join(line.rstrip() for line in kept.strip("\n").splitlines())
            text = f"{text[: step.at]}{lines}\n{text[step.at + len(step.output) :]}"
    PAGE.write_text(text, "utf-8")
