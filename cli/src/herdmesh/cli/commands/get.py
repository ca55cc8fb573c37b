"""`herd get`: lists of objects, one line each."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli import listing, views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.errors import CommandError, from_reason
from herdmesh.cli.output import Format, colored, err, out, paged, print_json, table
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder

#: Maximum number of connectors that an error names; of a longer name only the beginning is compared.
_NAMES_MAX = 10
_NAME_LENGTH_MAX = 200

get_app = typer.Typer(no_args_is_help=True, help="List connectors, workers, plugins, topics or loggers.")
OneName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")]


@get_app.command("connectors")
def connectors(
    name: OneName = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    match: Annotated[str, typer.Option("--match", metavar="GLOB", help="Only names like this: 'orders-*'.")] = "",
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only with the connector or a task in this state; repeatable.")
    ] = None,
    kind: Annotated[str, typer.Option("--type", help="Only source or sink connectors.")] = "",
    worker: Annotated[
        str, typer.Option("--worker", metavar="ID", help="Only connectors that run on this worker, wholly or in part.")
    ] = "",
    columns: Annotated[
        str, typer.Option("--columns", "-c", metavar="A,B", help=f"Columns to list, of: {', '.join(listing.COLUMNS)}.")
    ] = "",
    sort: Annotated[str, typer.Option("--sort", "-s", metavar="COLUMN", help="Sort by this column.")] = "NAME",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Largest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Maximum number to list; 0 = all.")] = 0,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Number of connectors to skip, for the next page.")] = 0,
) -> None:
    """List connectors with their states and lag. Long lists go through the pager of the terminal."""
    asked = listing.Filter(match, frozenset(one.upper() for one in state or ()), kind.lower(), worker)

    async def work(client: HerderClient) -> None:
        wanted = listing.checked(asked)
        by = listing.chosen_key(sort)
        chosen = listing.chosen_columns(columns) if columns else []
        if name:
            await _one_connector(client, name, chosen or listing.DEFAULT_COLUMNS, output)
            return
        full = output is Format.JSON or any(listing.COLUMNS[one].full for one in (*chosen, by))
        found = await fetch_connectors(client, full=full)
        if not chosen:
            few = len(found) <= listing.WIDE_MAX
            chosen = list(listing.DEFAULT_COLUMNS if few or full else listing.NARROW_COLUMNS)
            if few and not full:
                found = await fetch_connectors(client)
        kept = listing.ordered(filter(wanted.keeps, found), by, reverse=reverse)
        shown = kept[skip : skip + limit] if limit else kept[skip:]
        if output is Format.JSON:
            print_json(shown)
        elif not found:
            out.print("no connectors yet; `herd apply -f FILE` creates one")
        else:
            paged(table(None, chosen, listing.rows(shown, chosen)), len(shown))
            left = len(kept) - skip - len(shown)
            if len(kept) < len(found) or left > 0:
                more = f"; --skip {skip + len(shown)} shows the next" if left > 0 else ""
                err.print(f"[dim]{len(shown)} of {len(kept)} that match, {len(found)} in all{more}[/]")

    with_herder(output, herder, work)


async def _one_connector(client: HerderClient, name: str, columns: Sequence[str], output: Format) -> None:
    found = await fetch_connector(client, name)
    if output is Format.JSON:
        print_json(found)
    else:
        out.print(table(None, columns, listing.rows([found], columns)))


@get_app.command("workers")
def workers(name: OneName = None, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List workers with their connectors and tasks."""

    async def work(client: HerderClient) -> None:
        found = [await fetch_worker(client, name)] if name else await _fetch_workers(client)
        if output is Format.JSON:
            print_json(found[0] if name else found)
            return
        rows = [
            [
                escape(one["worker_id"]),
                colored(one["state"]),
                str(one["slots"]),
                str(len(one["connectors"])),
                str(len(one["tasks"])),
                escape(one["reason"] or ""),
            ]
            for one in found
        ]
        out.print(table(None, ("WORKER", "STATE", "SLOTS", "CONNECTORS", "TASKS", "WHY"), rows))

    with_herder(output, herder, work)


@get_app.command("plugins")
def plugins(name: OneName = None, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the classes that live workers can load, and the plugins that they found but cannot load."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.ListPlugins, admin.ListPluginsRequest())
        listed, refused = [views.plugin(one) for one in reply.plugins], [*map(views.refused_plugin, reply.refused)]
        found = [one for one in listed if name is None or name == one["class"] or name in one["aliases"]]
        if name is not None and not found:
            known = ", ".join(alias for one in listed for alias in one["aliases"][:1])
            text = f"no worker has a plugin {name}; there are: {known or 'none'}"
            if refused:
                text += f"; {len(refused)} cannot be used: `herd get plugins` shows why"
            raise from_reason("PLUGIN_NOT_FOUND", text)
        if output is Format.JSON:
            print_json(found[0] if name else [*found, *refused])
            return
        rows = [
            [escape(one["class"]), one["type"], one["version"] or "-", escape(", ".join(one["aliases"]))]
            for one in found
        ]
        out.print(table(None, ("CLASS", "TYPE", "VERSION", "ALIASES"), rows))
        if name is None:
            print_refused_plugins(refused)

    with_herder(output, herder, work)


def print_refused_plugins(refused: Sequence[views.Json]) -> None:
    """Print the plugins that were found but cannot be loaded, each with its reason and fix."""
    for one in refused:
        where = f"{one['folder']} ({one['plugin']})" if one["plugin"] else one["folder"]
        workers = escape(", ".join(one["workers"]))
        out.print(f"\n[bold red]NOT USED[/] {escape(where)} on {workers}: {escape(one['why'])}", soft_wrap=True)
        if one["fix"]:
            out.print(f"[dim]next:[/] {escape(one['fix'])}", soft_wrap=True)


@get_app.command("topics")
def topics(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """List the topics that a connector was seen to use (KIP-558)."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.ListTopics, admin.ListTopicsRequest(name=name))
        if output is Format.JSON:
            print_json({"name": name, "topics": list(reply.topics)})
        else:
            out.print("\n".join(escape(one) for one in reply.topics) or f"{escape(name)} has used no topic yet")

    with_herder(output, herder, work)


@get_app.command("loggers")
def loggers(
    logger: Annotated[str, typer.Argument(metavar="[LOGGER]", help="Only this logger and those below it.")] = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the levels of loggers, worker by worker. `herd set-logger` changes one."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.GetLoggers, admin.GetLoggersRequest(logger=logger))
        found = [views.logger(one) for one in reply.loggers]
        if output is Format.JSON:
            print_json(found)
            return
        rows = [
            [escape(one["logger"]), one["level"], escape(one["worker_id"]), one["last_modified"] or "-"]
            for one in found
        ]
        paged(table(None, ("LOGGER", "LEVEL", "WORKER", "CHANGED"), rows), len(rows))

    with_herder(output, herder, work)


async def fetch_connector(client: HerderClient, name: str) -> views.Json:
    """One connector. The error "not found" lists the existing ones."""
    try:
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
    except CommandError as error:
        if error.reason == "CONNECTOR_NOT_FOUND":
            existing = _some([one["name"] for one in await fetch_connectors(client, full=False)], name)
            raise from_reason(error.reason, f"no connector {name}; there are: {existing}") from None
        raise
    return views.connector(reply.connector)


def _some(names: list[str], like: str) -> str:
    """Existing names; of many those that are nearest to the requested one."""
    if len(names) > _NAMES_MAX:
        near = difflib.get_close_matches(like[:_NAME_LENGTH_MAX], names, _NAMES_MAX, 0.3)
        return f"{len(names)}, such as {', '.join(near or names[:_NAMES_MAX])}"
    return ", ".join(names) or "none yet"


async def fetch_connectors(client: HerderClient, *, full: bool = True) -> list[views.Json]:
    """All connectors, over all pages; not `full` = without configs, traces and progress."""
    view = messages.CONNECTOR_VIEW_FULL if full else messages.CONNECTOR_VIEW_STATUS
    found: list[views.Json] = []
    token = ""
    while True:
        reply: Any = await client.call(
            lambda stub: stub.ListConnectors,
            messages.ListConnectorsRequest(page_token=token, view=view),
        )
        found += [views.connector(one) for one in reply.connectors]
        token = reply.next_page_token
        if not token:
            return found


async def fetch_worker(client: HerderClient, worker_id: str) -> views.Json:
    """One worker. The error "not found" lists the existing ones."""
    known = await _fetch_workers(client)
    for one in known:
        if one["worker_id"] == worker_id:
            return one
    existing = ", ".join(one["worker_id"] for one in known) or "none"
    raise from_reason("WORKER_NOT_FOUND", f"no worker {worker_id}; there are: {existing}")


async def _fetch_workers(client: HerderClient) -> list[views.Json]:
    reply = await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    return [views.worker(one) for one in reply.workers]
