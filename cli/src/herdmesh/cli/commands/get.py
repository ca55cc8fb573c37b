"""`herd get` and `herd describe`: what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.errors import CommandError, from_reason
from herdmesh.cli.output import (
    CONNECTOR_COLUMNS,
    TASK_COLUMNS,
    Format,
    colored,
    connector_rows,
    out,
    print_json,
    table,
    task_rows,
)
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder

get_app = typer.Typer(no_args_is_help=True, help="List connectors, workers or plugins.")
describe_app = typer.Typer(no_args_is_help=True, help="Show one thing in full.")
OneName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")]


@get_app.command("connectors")
def connectors(name: OneName = None, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List connectors with their states, lag and rates."""

    async def work(client: HerderClient) -> None:
        found = [await fetch_connector(client, name)] if name else await fetch_connectors(client)
        if output is Format.JSON:
            print_json(found[0] if name else found)
        elif not found:
            out.print("no connectors yet; `herd apply -f FILE` makes one")
        else:
            out.print(table(None, CONNECTOR_COLUMNS, connector_rows(found)))

    with_herder(output, herder, work)


@get_app.command("workers")
def workers(name: OneName = None, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List workers and what they hold."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
        found = _only(name, [views.worker(one) for one in reply.workers], "worker_id", "WORKER_NOT_FOUND")
        if output is Format.JSON:
            print_json(found[0] if name else found)
            return
        rows = [
            [
                escape(one["worker_id"]),
                colored(one["state"]),
                str(one["slots"]),
                escape(", ".join(one["connectors"]) or "-"),
                escape(", ".join(one["tasks"]) or "-"),
            ]
            for one in found
        ]
        out.print(table(None, ("WORKER", "STATE", "SLOTS", "CONNECTORS", "TASKS"), rows))

    with_herder(output, herder, work)


@get_app.command("plugins")
def plugins(name: OneName = None, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the classes the live workers can load."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.ListPlugins, admin.ListPluginsRequest())
        listed = [views.plugin(one) for one in reply.plugins]
        found = [one for one in listed if name is None or name == one["class"] or name in one["aliases"]]
        if name is not None and not found:
            known = ", ".join(alias for one in listed for alias in one["aliases"][:1])
            raise from_reason("PLUGIN_NOT_FOUND", f"no worker has a plugin {name}; there are: {known or 'none'}")
        if output is Format.JSON:
            print_json(found[0] if name else found)
            return
        rows = [
            [escape(one["class"]), one["type"], one["version"] or "-", escape(", ".join(one["aliases"]))]
            for one in found
        ]
        out.print(table(None, ("CLASS", "TYPE", "VERSION", "ALIASES"), rows))

    with_herder(output, herder, work)


@describe_app.command("connector")
def describe_connector(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show a connector: state, tasks, offsets, traces and config."""

    async def work(client: HerderClient) -> None:
        found = await fetch_connector(client, name)
        if output is Format.JSON:
            print_json(found)
        else:
            _print_connector(found)

    with_herder(output, herder, work)


async def fetch_connector(client: HerderClient, name: str) -> views.Json:
    """One connector. "Not found" says what exists."""
    try:
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
    except CommandError as error:
        if error.reason == "CONNECTOR_NOT_FOUND":
            existing = ", ".join(one["name"] for one in await fetch_connectors(client)) or "none yet"
            raise from_reason(error.reason, f"no connector {name}; there are: {existing}") from None
        raise
    return views.connector(reply.connector)


async def fetch_connectors(client: HerderClient) -> list[views.Json]:
    """All connectors, over all pages."""
    found: list[views.Json] = []
    token = ""
    while True:
        reply: Any = await client.call(
            lambda stub: stub.ListConnectors,
            messages.ListConnectorsRequest(page_token=token),
        )
        found += [views.connector(one) for one in reply.connectors]
        token = reply.next_page_token
        if not token:
            return found


def _only(name: str | None, items: list[views.Json], key: str, reason: str) -> list[views.Json]:
    if name is None:
        return items
    found = [one for one in items if one[key] == name]
    if not found:
        existing = ", ".join(one[key] for one in items) or "none"
        raise from_reason(reason, f"no {key.removesuffix('_id')} {name}; there are: {existing}")
    return found


def _print_connector(found: views.Json) -> None:
    own: views.Json = found["connector"]
    out.print(f"[bold]{escape(found['name'])}[/] ({found['type']}), wanted {colored(found['target_state'])}")
    out.print(f"connector {colored(own['state'])} on {escape(own['worker_id'] or '-')}")
    if "trace" in own:
        out.print(escape(own["trace"]), style="red")
    if found["tasks"]:
        out.print(table("\ntasks", TASK_COLUMNS, task_rows(found)))
    for task in found["tasks"]:
        for one in task.get("conditions", []):
            out.print(f"task {task['id']}: {one['type']} {escape(one['message'])}")
        if "trace" in task:
            out.print(f"\n[bold red]task {task['id']}[/] {escape(task['trace'])}")
    partitions = [
        (task["id"], one) for task in found["tasks"] for one in task.get("progress", {}).get("partitions", [])
    ]
    if partitions:
        rows = [
            [
                str(number),
                escape(one["topic"]),
                str(one["partition"]),
                str(one["committed_offset"]),
                str(one["end_offset"]),
            ]
            for number, one in partitions
        ]
        out.print(table("\noffsets", ("TASK", "TOPIC", "PARTITION", "COMMITTED", "END"), rows))
    rows = [[escape(key), escape("null" if value is None else str(value))] for key, value in found["config"].items()]
    out.print(table("\nconfig", ("KEY", "VALUE"), rows))
