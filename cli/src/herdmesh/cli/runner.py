"""The options that commands share, and the run of a command that talks to a mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.command_end import command_end
from herdmesh.cli.display.output import FORMATS, Format, err
from herdmesh.cli.errors import EXIT_INTERNAL, CommandError
from herdmesh.cli.mesh.client import HerderClient, find_herder
from herdmesh.cli.mesh.contexts import DEFAULT_DATA_DIR, guard
from herdmesh.devstack.errors import DevstackError

HerderOption = Annotated[
    str | None,
    typer.Option(
        "--herder",
        metavar="HOST:PORT,...",
        help="Any herder of the cluster, or several, comma separated. Default: HERDMESH_HERDER, the current context, "
        "the stack in ./.herd; queries also try 127.0.0.1:7203. `herd context show` tells which.",
    ),
]
OutputOption = Annotated[
    Format,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        parser=Format.parse,
        autocompletion=lambda: [*FORMATS, "jsonpath="],
        help="table; wide: with every column, nothing cut; json, yaml, csv, name, jsonpath='{.name}'. "
        "--no-headers leaves out the line of column names.",
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Whole stack traces, with the frames of libraries.")
]
DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder that keeps everything of the stack.")]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the connector.", autocompletion=completion.connectors)
]
WorkerArgument = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="Its id, as `herd get workers` shows it.", autocompletion=completion.workers),
]
DATA_DIR = DEFAULT_DATA_DIR


def run(output: Format, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one command to its end, as `command_end` does."""
    with command_end(output):
        try:
            asyncio.run(work())
        except DevstackError as error:
            raise CommandError("STACK", str(error), exit_code=EXIT_INTERNAL) from None


def with_herder(output: Format, herder: str | None, work: Callable[[HerderClient], Awaitable[None]]) -> None:
    """Run one command that talks to the leading herder."""

    async def connected() -> None:
        check = guard(herder, tell_wait)
        async with HerderClient(find_herder(herder), check=check, on_wait=tell_wait) as client:
            await work(client)

    run(output, connected)


def tell_wait(line: str) -> None:
    """Say on standard error which mesh the command reaches, or what it waits for."""
    err.print_sentence(f"[dim]{escape(line)}[/]")
