"""One run of an example: each command is printed, run, and its output printed and compared with the page.

Invariant: the commands of "Clean up" run also after a failure and after Ctrl-C, so that the example can be run again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.example.page import Example, ExampleStep, matches

WAIT_S: Final = 90.0
_PAUSE_S: Final = 0.3
Show = Callable[[str, str], None]
"""Prints a text of a kind: `text`, `command` or `output`."""


def run_example(example: Example, folder: Path, environment: Mapping[str, str], show: Show) -> None:
    """Run all steps. Raises CommandError for a command that fails, or does not print the page's output in `WAIT_S`."""
    steps = list(example.steps())
    try:
        for step in steps:
            if not step.cleans_up:
                _run(step, folder, environment, show)
    except BaseException:
        for step in steps:
            if step.cleans_up:
                for line in step.command.splitlines():  # one by one: some of it may not exist yet
                    _shell(line, folder, environment)
        raise
    for step in steps:
        if step.cleans_up:
            _run(step, folder, environment, show)


def _run(step: ExampleStep, folder: Path, environment: Mapping[str, str], show: Show) -> None:
    if step.text:
        show("text", step.text)
    show("command", step.command.rstrip())
    deadline_s = time.monotonic() + WAIT_S
    done = _shell(step.command, folder, environment)
    while step.output is not None and not matches(done.stdout, step.output) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
        done = _shell(step.command, folder, environment)
    show("output", done.stdout.rstrip())
    if done.returncode:
        raise _failed(f"the last command ended with exit code {done.returncode}", folder)
    if step.output is not None and not matches(done.stdout, step.output):
        raise _failed(f"after {WAIT_S:g} s its output is not yet\n{step.output.rstrip()}", folder)


def _shell(command: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _failed(text: str, folder: Path) -> CommandError:
    next_step = f"`herd get connectors` and `herd doctor` show the cluster; the example's files are in {folder}."
    return CommandError("EXAMPLE_FAILED", text, next_step, EXIT_CODES["TIMEOUT"])
