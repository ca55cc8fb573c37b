"""`herd watch`: changes of connectors and tasks as they happen."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.live import Live

from herdmesh.cli import views
from herdmesh.cli.board import Board
from herdmesh.cli.client import find_herder
from herdmesh.cli.output import Format, out, print_json_line
from herdmesh.cli.runner import HerderOption, OutputOption, run

_REFRESH_S = 0.25


def watch(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these connectors.")] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show connectors and tasks live until Ctrl-C; with -o json one line per change."""
    board = Board(names or ())
    address = find_herder(herder)

    def line(name: str, connector: views.Json | None) -> None:
        print_json_line(connector if connector is not None else {"name": name, "deleted": True})

    async def work() -> None:
        if output is Format.JSON:
            await board.follow(address, line)
            return
        following = asyncio.create_task(board.follow(address))
        try:
            with Live(board.render(), console=out, screen=False, auto_refresh=False) as live:
                while not following.done():
                    live.update(board.render(), refresh=True)
                    await asyncio.sleep(_REFRESH_S)
        finally:
            following.cancel()

    run(output, work)
