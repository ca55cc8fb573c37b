"""`herd drain worker` and `herd undrain worker`: all units moved off a worker before it is stopped, and its return to
work.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, err, out, print_document
from herdmesh.cli.errors import CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, OutputOption, WorkerArgument, with_herder
from herdmesh.cli.times import duration
from herdmesh.rpc.request_ids import new_request_id

drain_app = typer.Typer(no_args_is_help=True, help="Move everything off a worker.")
undrain_app = typer.Typer(no_args_is_help=True, help="Let a drained worker take work again.")


@drain_app.command("worker")
def drain_worker(
    worker_id: WorkerArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when no connector or task is left on it.")
    ] = True,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="TIME", parser=duration, help="Longest wait, as 30s, 5m or 1h.")
    ] = 120,
) -> None:
    """Move all connectors and tasks off a worker and give it no new ones; those that no other worker can run stay until
    one can.
    """

    async def work(client: HerderClient) -> None:
        request = admin.DrainWorkerRequest(request_id=new_request_id(), worker_id=worker_id)
        found = (await client.call(lambda stub: stub.DrainWorker, request)).worker
        if wait:
            try:
                async with asyncio.timeout(timeout_s):
                    found = await _until_drained(client, request, found, quiet=output.is_document)
            except TimeoutError:
                left = len(found.connectors) + len(found.tasks)
                text = (
                    f"{worker_id} still holds {left} connectors and tasks after {timeout_s:g} s; they continue to move"
                )
                raise CommandError("TIMEOUT", text, exit_code=7) from None
        shown = views.worker(found)
        if output.is_document:
            print_document(output, shown)
        else:
            reason = f": {escape(shown['reason'])}" if shown["reason"] else ""
            out.print(f"worker [bold]{escape(worker_id)}[/] is {shown['state']}{reason}")

    with_herder(output, herder, work)


@undrain_app.command("worker")
def undrain_worker(worker_id: WorkerArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Let a draining or drained worker take connectors and tasks again."""

    async def work(client: HerderClient) -> None:
        request = admin.UndrainWorkerRequest(request_id=new_request_id(), worker_id=worker_id)
        shown = views.worker((await client.call(lambda stub: stub.UndrainWorker, request)).worker)
        if output.is_document:
            print_document(output, shown)
        else:
            out.print(f"worker [bold]{escape(worker_id)}[/] takes work again")

    with_herder(output, herder, work)


async def _until_drained(
    client: HerderClient, request: admin.DrainWorkerRequest, found: connector_pb2.Worker, *, quiet: bool
) -> connector_pb2.Worker:
    """Follow the herder's watch until the worker holds no units, whether it is still there or has left for that reason;
    opens a broken watch again. Raises CommandError when the worker was lost while it still held units, or takes units
    again.
    """
    left: int | None = None
    while not _drained(found):
        listed = False
        try:
            watch = messages.WatchConnectorsRequest()
            async for event in client.stream(lambda stub: stub.WatchConnectors, watch):
                kind = event.WhichOneof("event")
                told = [event.worker] if kind == "worker" else event.snapshot_part.workers
                for worker in told:
                    if worker.worker_id == found.worker_id:
                        listed = True
                        found.CopyFrom(worker)
                if kind == "snapshot_complete" and not listed:
                    # The worker left before this watch began: a repeated request returns the outcome.
                    found.CopyFrom((await client.call(lambda stub: stub.DrainWorker, request)).worker)
                held = len(found.connectors) + len(found.tasks)
                if held != left and not quiet:
                    err.print(f"[dim]{held} left[/]")
                left = held
                if _drained(found):
                    break
        except CommandError as error:
            if error.reason not in ("UNREACHABLE", "NO_LEADER", "SHUTTING_DOWN"):
                raise
    return found


def _drained(worker: connector_pb2.Worker) -> bool:
    if worker.state == connector_pb2.WORKER_STATE_CONNECTED:
        text = f"{worker.worker_id} takes work again: it restarted, or was undrained; drain it again"
        raise from_reason("WORKER_NOT_FOUND", text)
    if worker.state == connector_pb2.WORKER_STATE_LOST and not worker.incarnation:
        text = f"{worker.worker_id} was lost before it was drained; its connectors and tasks start elsewhere"
        raise from_reason("WORKER_NOT_FOUND", text)
    return worker.state == connector_pb2.WORKER_STATE_DRAINED
