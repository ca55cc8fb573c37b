"""`herd set-logger`: the level of a logger, on one worker or on all of them (KIP-976)."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli import completion
from herdmesh.cli.display.output import Format, out, print_document
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id


def set_logger(
    logger: Annotated[
        str,
        typer.Argument(
            metavar="LOGGER", help="Name of the logger; `root` is the root logger.", autocompletion=completion.loggers
        ),
    ],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF.")],
    worker: Annotated[
        str,
        typer.Option(
            "--worker", metavar="ID", help="Only on this worker; default: on all.", autocompletion=completion.workers
        ),
    ] = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change the level of a logger and of all loggers below it."""

    async def work(client: HerderClient) -> None:
        request = admin.SetLoggersRequest(
            request_id=new_request_id(), logger=logger, level=level.upper(), worker_id=worker
        )
        reply = await client.call(lambda stub: stub.SetLoggers, request)
        if output.is_document:
            print_document(
                output,
                {"logger": logger, "level": level.upper(), "worker_id": worker or None, "affected": [*reply.affected]},
            )
            return
        where = f"worker {escape(worker)}" if worker else "every worker"
        out.print(f"[bold]{escape(logger)}[/] is {level.upper()} on {where}")
        for one in reply.affected:
            out.print(f"  {escape(one)}")

    with_herder(output, herder, work)
