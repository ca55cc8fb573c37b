"""Reference pages of the command line: every command of `herd`, and the errors with their exit codes.

Owns the form of these pages. The texts are the application's own: its help, the table of exit codes, the error classes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.cli import get_docs_for_click
from typer.core import TyperGroup

from herdmesh.cli.app import app
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, NEXT_STEPS
from herdmesh.rpc.status import CODES

_TITLE = "Command line"
_EXAMPLES = re.compile(r"^Examples:\n((?:\$ .+\n)+)", re.MULTILINE)
COMMANDS, ERRORS = "docs/reference/cli.md", "docs/reference/errors.md"
_WRITTEN = "`python -m website --pages` writes this page from the code; a test compares."
#: The meaning of each exit code for a script, whatever the reason.
EXIT_MEANINGS = {
    0: "done",
    1: "`diff`: a difference; `doctor`: an error was found; `transform`, `consume`: a record failed; else an internal "
    "error: a bug",
    EXIT_USAGE: "wrong usage of the command line",
    3: "not found",
    4: "exists already, or somebody changed it meanwhile",
    5: "invalid config or request",
    6: "nobody available to do it: retry",
    7: "timed out",
    8: "not built yet",
    9: "data loss",
    10: "overloaded, or a watch must start over",
    11: "not possible in the present state",
}


def pages() -> dict[str, str]:
    """Path below the repository -> text."""
    return {COMMANDS: _commands(), ERRORS: _errors()}


def _commands() -> str:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="herd")
    text = get_docs_for_click(obj=command, ctx=context, name="herd", title=_TITLE)
    introduction = f"{_WRITTEN} How a command ends: [errors](errors.md)."
    text = text.replace(f"# {_TITLE}\n", f"# {_TITLE}\n\n{introduction}\n", 1).rstrip()
    # typer writes the examples of a command as they are; on a page they are a block
    lines = _EXAMPLES.sub(lambda found: f"**Examples**:\n\n```console\n{found[1]}```\n", f"{text}\n").splitlines()
    summaries = dict(_summaries(command, context, "herd"))
    return "\n".join([*_with_links(lines, summaries), ""])


def _summaries(group: Any, context: typer.Context, name: str) -> Iterator[tuple[str, str]]:
    """Full name and first sentence of every command below a group."""
    if not isinstance(group, TyperGroup):
        return
    for short in group.list_commands(context):
        command = group.get_command(context, short)
        assert command is not None
        yield f"{name} {short}", " ".join((command.help or "").split("\n\n")[0].split())
        yield from _summaries(command, context, f"{name} {short}")


def _with_links(lines: list[str], summaries: dict[str, str]) -> Iterator[str]:
    """The lines with complete summaries as links: typer cuts the summaries of a group's commands."""
    group, is_list = "herd", False
    for line in lines:
        if heading := re.match(r"#+ `(herd[^`]*)`$", line):
            group = heading[1]
        is_list = line == "**Commands**:" or (is_list and (not line or line.startswith("* ")))
        item = re.match(r"\* `([\w-]+)`", line) if is_list else None
        if item is None:
            yield line
        else:
            name = f"{group} {item[1]}"
            yield f"* [`{item[1]}`](#{name.replace(' ', '-')}): {summaries[name]}"


def _errors() -> str:
    lines = ["# Errors and exit codes", "", _WRITTEN, ""]
    lines += [
        "An error has a *reason*: a name that does not change, for programs. gRPC callers find it in the `ErrorInfo`",
        "of the status details, with the code below. `herd` prints the message, the reason and the next step, and ends",
        "with the exit code; with `-o json` standard output has one document with `reason`, `message` and `fields`.",
        "",
        "## Exit codes of `herd`",
        "",
        "| Exit code | Meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_MEANINGS.items()),
        "",
        "## Reasons",
        "",
        "| Reason | Meaning | What to do | gRPC code | Exit code |",
        "|---|---|---|---|---|",
    ]
    for error, code in sorted(CODES.items(), key=lambda one: (EXIT_CODES.get(one[0].reason, 1), one[0].reason)):
        about = " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split())
        step = NEXT_STEPS.get(error.reason, "")
        lines.append(f"| `{error.reason}` | {about} | {step} | {code.name} | {EXIT_CODES.get(error.reason, 1)} |")
    return "\n".join([*lines, ""])
