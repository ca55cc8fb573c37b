"""`herd watch`: changes of connectors and tasks as they happen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.live import Live

from herdmesh.cli import completion
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board
from herdmesh.cli.display.connector_lines import ConnectorLines
from herdmesh.cli.display.output import Format, out, print_line
from herdmesh.cli.mesh.client import find_herder
from herdmesh.cli.runner import HerderOption, OutputOption, run

_REFRESH_S = 0.25


def watch(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these connectors.", autocompletion=completion.connectors),
    ] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show connectors and tasks live until Ctrl-C. In a pipe one line per change, with -o json one document."""
    board = Board(names or ())
    address = find_herder(herder)

    def line(name: str, connector: views.Json | None) -> None:
        print_line(output, connector if connector is not None else {"name": name, "deleted": True})

    lines = ConnectorLines()

    def text(name: str, connector: views.Json | None) -> None:
        if change := lines.change(name, connector):
            out.print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {change[0]}", soft_wrap=True)

    async def work() -> None:
        if output.is_document or not out.is_terminal:
            await board.follow(address, line if output.is_document else text)
            return
        following = asyncio.create_task(board.follow(address))
        try:
            with Live(board.render(height=out.height), console=out, screen=False, auto_refresh=False) as live:
                while not following.done():
                    live.update(board.render(height=out.height), refresh=True)
                    await asyncio.sleep(_REFRESH_S)
            following.result()
        finally:
            following.cancel()

    run(output, work)
