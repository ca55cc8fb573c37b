"""`herd pause|resume|stop|restart|delete`: the life cycle of a connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as config_messages
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as messages
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.output import Format, out, print_document
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub


def pause(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Keep a connector's tasks on their workers and move no records."""
    request = messages.PauseConnectorRequest(request_id=new_request_id(), name=name)
    _change(lambda stub: stub.PauseConnector, request, "paused", name, herder, output)


def resume(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Let a paused or stopped connector run again."""
    request = messages.ResumeConnectorRequest(request_id=new_request_id(), name=name)
    _change(lambda stub: stub.ResumeConnector, request, "resumed", name, herder, output)


def stop(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Stop a connector's tasks and keep its config and offsets."""
    request = messages.StopConnectorRequest(request_id=new_request_id(), name=name)
    _change(lambda stub: stub.StopConnector, request, "stopped", name, herder, output)


def restart(
    name: NameArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    task: Annotated[int | None, typer.Option("--task", metavar="N", help="Only this task.")] = None,
    include_tasks: Annotated[bool, typer.Option("--include-tasks", help="The tasks too.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Only connectors and tasks that are FAILED.")
    ] = False,
) -> None:
    """Restart a connector, its tasks, or one task."""
    if task is not None and (include_tasks or only_failed):
        raise typer.BadParameter("--task cannot be combined with these options: it restarts that task in any state")

    async def work(client: HerderClient) -> None:
        if task is not None:
            one = messages.RestartTaskRequest(request_id=new_request_id(), name=name, task=task)
            await client.call(lambda stub: stub.RestartTask, one)
            _say(
                output,
                {"result": "restarted", "name": name, "task": task},
                f"task [bold]{escape(name)}-{task}[/] restarted",
            )
            return
        request = messages.RestartConnectorRequest(
            request_id=new_request_id(), name=name, include_tasks=include_tasks, only_failed=only_failed
        )
        reply = await client.call(lambda stub: stub.RestartConnector, request)
        items: list[views.Json] = [
            {
                "task": item.task if item.HasField("task") else None,
                "state": views.run_state(item.state),
                "restarted": item.restarted,
                "worker_id": item.worker_id or None,
            }
            for item in reply.items
        ]
        restarted = [item for item in items if item["restarted"]]
        told = ", ".join("connector" if item["task"] is None else f"task {item['task']}" for item in restarted)
        _say(
            output,
            {"result": "restarted", "name": name, "items": items},
            f"[bold]{escape(name)}[/]: {told or 'nothing'} restarted",
        )

    with_herder(output, herder, work)


def delete(
    name: NameArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Succeed even if it does not exist.")] = False,
) -> None:
    """Delete a connector. Its offsets stay: a new connector of the same name continues from them."""

    async def work(client: HerderClient) -> None:
        request = config_messages.DeleteConnectorRequest(request_id=new_request_id(), name=name)
        try:
            await client.call(lambda stub: stub.DeleteConnector, request)
        except CommandError as error:
            if not (allow_missing and error.reason == "CONNECTOR_NOT_FOUND"):
                raise
            _say(output, {"result": "missing", "name": name}, f"connector [bold]{escape(name)}[/] does not exist")
            return
        _say(
            output, {"result": "deleted", "name": name}, f"connector [bold]{escape(name)}[/] deleted; its offsets stay"
        )

    if not yes:
        if not typer.get_text_stream("stdin").isatty():
            typer.echo("delete asks for confirmation: give --yes where nobody can answer", err=True)
            raise typer.Exit(EXIT_USAGE)
        typer.confirm(f"Delete connector {name}?", abort=True)
    with_herder(output, herder, work)


def _change(
    pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]],
    request: Any,
    verb: str,
    name: str,
    herder: str | None,
    output: Format,
) -> None:
    async def work(client: HerderClient) -> None:
        reply = await client.call(pick, request)
        _say(output, {"result": verb, **views.connector(reply.connector)}, f"connector [bold]{escape(name)}[/] {verb}")

    with_herder(output, herder, work)


def _say(output: Format, document: views.Json, text: str) -> None:
    if output.is_document:
        print_document(output, document)
    else:
        out.print(text)
