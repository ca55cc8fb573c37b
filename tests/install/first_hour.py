"""Recorder of a newcomer's first hour: the wheels of `dist/` into an empty environment, then every command of
docs/tutorials/first-hour.md in a terminal, with times, as an asciicast of version 2.

Owns the recording. What the commands print is checked elsewhere, by `tests.support.first_hour`. Nothing is cached: pip
downloads all packages, `herd up` the jars. Folders, ports and the user of the recording machine get the page's names.

    make dist && python -m tests.install.first_hour docs/assets/first-hour.cast
    asciinema play docs/assets/first-hour.cast
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.dist import ROOT
from tests.install.__main__ import environment
from tests.support.first_hour import FirstHour, steps

_WIDTH, _HEIGHT = 110, 34
_SPINNER: Final = re.compile("[\u2800-\u28ff]")
_PORT_NOTE: Final = re.compile(r"(\x1b\[[\d;]*m)*note(\x1b\[[\d;]*m)* \S+ listens on port ")
_INSTALL: Final = (
    ("python3 -m venv ~/herdmesh", "{python} -m venv {venv}"),
    (
        "~/herdmesh/bin/pip install herdmesh",
        "{venv}/bin/pip install --quiet --progress-bar off --no-cache-dir --find-links {dist} herdmesh",
    ),
)


class Recording:
    """Events of a terminal, and the seconds that each command took."""

    def __init__(self, rename: Callable[[str], str]) -> None:
        self.events = list[tuple[float, str]]()
        self.took_s = list[tuple[str, float]]()
        self._rename = rename
        self._begun_s = time.monotonic()

    def run(self, shown: str, command: str, folder: Path, env: Mapping[str, str]) -> int:
        """Run a command in a terminal and record it; returns its exit code."""
        lines = shown.rstrip("\n").split("\n")
        self._add("$ " + "\r\n> ".join(lines) + "\r\n")
        begun_s, last = time.monotonic(), ""
        chunks = _terminal(command, folder, env)
        while True:
            try:
                piece = next(chunks)
            except StopIteration as ended:
                self.took_s.append((lines[0], time.monotonic() - begun_s))
                return int(ended.value)
            plain = _SPINNER.sub("", piece)
            if (_SPINNER.search(piece) and plain == last) or _PORT_NOTE.match(piece):
                continue
            last = plain
            self._add(self._rename(piece))

    def write(self, path: Path) -> None:
        """Write the asciicast."""
        head: dict[str, Any] = {"version": 2, "width": _WIDTH, "height": _HEIGHT, "idle_time_limit": 2}
        head |= {"title": "Herdmesh: your first hour", "env": {"TERM": "xterm-256color"}}
        lines = [json.dumps(head), *(json.dumps([round(at_s, 2), "o", text]) for at_s, text in self.events)]
        path.write_text("\n".join(lines) + "\n", "utf-8")

    def _add(self, text: str) -> None:
        self.events.append((time.monotonic() - self._begun_s, text))


def _terminal(command: str, folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Lines, and parts of one that end with a carriage return, as they appear. Returns the exit code."""
    ours, theirs = pty.openpty()
    size = f"stty rows {_HEIGHT} cols {_WIDTH} && "
    running = subprocess.Popen(
        ["bash", "-uc", size + command], cwd=folder, env={**env, "TERM": "xterm-256color"},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    rest = b""
    while True:
        if not select.select([ours], [], [], 0.2)[0] and running.poll() is None:
            continue
        try:
            read = os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            read = b""
        if not read:
            break
        *pieces, rest = re.split(rb"(?<=\n)|(?<=\r)(?!\n)", rest + read)
        yield from (one.decode("utf-8", "replace") for one in pieces)
    os.close(ours)
    if rest:
        yield rest.decode("utf-8", "replace")
    return running.wait()


def main() -> int:
    """Record; exit code 1 when a command ends with another code than on the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.install.first_hour", description="Record the first hour.")
    parser.add_argument("cast", type=Path, help="the asciicast to write")
    parser.add_argument("--python", default="python3", help="the interpreter of the environment")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder with the wheels")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="herdmesh-hour-", dir="/var/tmp"))
    venv = work / "venv"
    env = environment(work, venv)
    hour = FirstHour(work / "first-hour", env)

    def rename(text: str) -> str:
        return hour.renamed(text).replace(str(work / "cache"), "~/.cache")

    recording = Recording(rename)
    for shown, command in _INSTALL:
        given = command.format(python=options.python, venv=venv, dist=options.dist.absolute())
        if recording.run(shown, given, work, env):
            return 1
    for step in steps():
        if step.is_query:
            hour.compared(step)  # a person looks again too
        code = recording.run(step.command, f"set -e\n{step.command}", hour.folder, hour.env)
        if code != step.exit_code:
            print(f"exit code {code}, looked for {step.exit_code}: {step.command}look into {work}", file=sys.stderr)
            return 1
    recording.write(options.cast)
    total_s = 0.0
    for command, took_s in recording.took_s:
        total_s += took_s
        print(f"{took_s:6.1f} s  {total_s:6.1f} s  {command}")
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
