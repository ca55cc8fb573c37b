"""`herd demo`: the whole path from a topic to Parquet, shown live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from herdmesh.cli.demo.show import show
from herdmesh.cli.output import Format
from herdmesh.cli.runner import run


def demo(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder for the demo; emptied first.")] = Path(
        ".herd/demo"
    ),
) -> None:
    """Flights from Kafka through Spark into Parquet while a worker is killed."""

    async def work() -> None:
        code = await show(data)
        if code:
            raise typer.Exit(code)

    run(Format.TABLE, work)
