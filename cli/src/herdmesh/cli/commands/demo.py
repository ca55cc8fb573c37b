"""`herd demo`: the whole path from a topic to Parquet, shown live."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from herdmesh.cli.display.output import Format
from herdmesh.cli.runner import OutputOption, run
from herdmesh.rpc.process import EXIT_FORCED


def demo(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Folder for the demo; a new or empty one.")
    ] = Path(".herd/demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep topic, Parquet and logs, and say where they are. Default: removed.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Flights from Kafka through Spark into Parquet while a worker is killed. Files are kept when it fails."""

    async def work() -> None:
        from herdmesh.cli.demo.show import show

        code = await show(data, output, keep=keep)
        if code == EXIT_FORCED:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # a thread may still write flights to the broker, which is gone
        if code:
            raise typer.Exit(code)

    run(output, work)
