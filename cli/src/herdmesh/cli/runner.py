"""The options that every command has, and the one place where a command's error becomes output and an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from herdmesh.cli.client import DEFAULT_DATA_DIR, HerderClient, find_herder
from herdmesh.cli.errors import EXIT_INTERNAL, CommandError
from herdmesh.cli.output import Format, print_error
from herdmesh.devstack.errors import DevstackError

HerderOption = Annotated[
    str | None,
    typer.Option(
        "--herder",
        metavar="HOST:PORT",
        help="Any herder of the cluster, or several, comma separated. Default: HERDMESH_HERDER, the stack in ./.herd, "
        "else 127.0.0.1:7203.",
    ),
]
OutputOption = Annotated[Format, typer.Option("-o", "--output", help="table for people, json for programs.")]
DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder that keeps everything of the stack.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the connector.")]
DATA_DIR = DEFAULT_DATA_DIR


def run(output: Format, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one command to its end. Exits with the code of its error, 130 on Ctrl-C."""
    try:
        asyncio.run(work())
    except CommandError as error:
        print_error(error, output)
        raise typer.Exit(error.exit_code) from None
    except DevstackError as error:
        print_error(CommandError("STACK", str(error)), output)
        raise typer.Exit(EXIT_INTERNAL) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def with_herder(output: Format, herder: str | None, work: Callable[[HerderClient], Awaitable[None]]) -> None:
    """Run one command that talks to the leading herder."""

    async def connected() -> None:
        async with HerderClient(find_herder(herder)) as client:
            await work(client)

    run(output, connected)
