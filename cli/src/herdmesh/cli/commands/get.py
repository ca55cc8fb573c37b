"""`herd get`: lists of objects, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli import completion
from herdmesh.cli.display import following, listing, views
from herdmesh.cli.display.hidden_secrets import ShowSecretsOption, hide_in_connectors
from herdmesh.cli.display.output import Format, err, out, paged, print_document, table
from herdmesh.cli.display.urgency import summary, summary_line
from herdmesh.cli.errors import from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import (
    fetch_connector,
    fetch_connectors,
    fetch_loggers,
    fetch_plugins,
    fetch_tasks,
    fetch_worker,
    fetch_workers,
)
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder

get_app = typer.Typer(no_args_is_help=True, help="List connectors, tasks, workers, plugins, topics or loggers, or all.")
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Then print a line for each change, until Ctrl-C; -o json: each as JSON.")
]
WorkerOption = Annotated[
    str,
    typer.Option(
        "--worker",
        metavar="ID",
        help="Only what runs on this worker, wholly or in part.",
        autocompletion=completion.workers,
    ),
]
StateOption = Annotated[
    list[str] | None, typer.Option("--state", help="Only with the connector or a task in this state; repeatable.")
]


@get_app.command("connectors")
def connectors(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this one.", autocompletion=completion.connectors)
    ] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    match: Annotated[str, typer.Option("--match", metavar="GLOB", help="Only names like this: 'orders-*'.")] = "",
    state: StateOption = None,
    kind: Annotated[str, typer.Option("--type", help="Only source or sink connectors.")] = "",
    worker: WorkerOption = "",
    columns: Annotated[
        str, typer.Option("--columns", "-c", metavar="A,B", help=f"Columns to list, of: {', '.join(listing.COLUMNS)}.")
    ] = "",
    sort: Annotated[str, typer.Option("--sort", "-s", metavar="COLUMN", help="Sort by this column.")] = "NAME",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Largest first.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number to list; 0 = all.")
    ] = 0,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Number of connectors to skip, for the next page.")] = 0,
    watch: WatchOption = False,
    show_secrets: ShowSecretsOption = False,
) -> None:
    """List connectors with their states and lag. Long lists go through the pager of the terminal.

    On a narrow terminal the less important columns are left out; -o wide has every column, -c those that you name.
    """
    asked = listing.Filter(match, frozenset(one.upper() for one in state or ()), kind.lower(), worker)

    async def work(client: HerderClient) -> None:
        wanted = listing.checked(asked)
        by = listing.chosen_key(sort)
        chosen = listing.chosen_columns(columns) if columns else list(listing.COLUMNS) if output.is_wide else []
        full = output.is_document or watch or any(listing.COLUMNS[one].full for one in (*chosen, by))
        if name:
            found = [await fetch_connector(client, name, show_secrets=show_secrets)]
        else:
            found = await fetch_connectors(client, full=full, show_secrets=show_secrets)
        if not chosen:
            few = len(found) <= listing.WIDE_MAX
            chosen = list(listing.DEFAULT_COLUMNS if few or full else listing.NARROW_COLUMNS)
            if few and not full and not name:
                found = await fetch_connectors(client)
        kept = listing.ordered(filter(wanted.keeps, found), by, reverse=reverse)
        shown = kept[skip : skip + limit] if limit else kept[skip:]
        made = table(None, chosen, listing.rows(shown, chosen), every_column=bool(columns))
        if output.is_document and not (watch or show_secrets):
            await hide_in_connectors(client, shown)
        if watch:
            first = {one["name"]: one for one in shown}
            names = [name] if name else []
            await following.follow_connectors(client, names, first, wanted, following.RowPrinter(output, chosen, made))
        elif output.is_document:
            document = shown[0] if name and shown else shown
            print_document(output, document, rows=(chosen, made.rows))
        elif not found:
            out.print("no connectors yet; `herd apply -f FILE` creates one")
        else:
            paged(made, len(shown), summary_line(summary(shown)))
            left = len(kept) - skip - len(shown)
            if len(kept) < len(found) or left > 0:
                more = f"; --skip {skip + len(shown)} shows the next" if left > 0 else ""
                err.print(f"[dim]{len(shown)} of {len(kept)} that match, {len(found)} in all{more}[/]")

    with_herder(output, herder, work)


@get_app.command("tasks")
def tasks(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONNECTOR[/TASK]]",
            help="Only those of this connector, or only this one.",
            autocompletion=completion.connectors,
        ),
    ] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only in this state; repeatable.")] = None,
    worker: WorkerOption = "",
    watch: WatchOption = False,
) -> None:
    """List tasks with their states, workers and lag."""
    asked = listing.Filter(states=frozenset(one.upper() for one in state or ()))

    async def work(client: HerderClient) -> None:
        wanted = listing.checked(asked)
        found = listing.tasks_of(await fetch_connectors(client)) if name is None else await fetch_tasks(client, name)

        def keeps(one: views.Json) -> bool:
            is_in = not wanted.states or one["state"] in wanted.states
            return is_in and worker in ("", one["worker_id"]) and (not single or one["name"] == name)

        single = name is not None and name.rpartition("/")[2].isdecimal() and "/" in name
        kept = [one for one in found if keeps(one)]
        columns, rows = listing.task_table(kept, wide=output.is_wide)
        if watch:
            names = [] if name is None else [name.rpartition("/")[0] if single else name]

            def of_connector(one: views.Json) -> following.Listed:
                found = [task for task in listing.tasks_of([one]) if keeps(task)]
                return _listed(found, listing.task_table(found, wide=output.is_wide)[1], "name")

            printer = following.RowPrinter(output, columns, table(None, columns, rows), kind="task")
            await following.follow_parts(client, names, _listed(kept, rows, "name"), printer, of_connector)
        elif output.is_document:
            print_document(output, kept[0] if single and kept else kept, kind="task", rows=(columns, rows))
        else:
            paged(table(None, columns, rows), len(rows))

    with_herder(output, herder, work)


@get_app.command("all")
def everything(herder: HerderOption = None, output: OutputOption = Format.TABLE, watch: WatchOption = False) -> None:
    """List all connectors, their tasks, and all workers. With --watch they are in one table."""

    async def work(client: HerderClient) -> None:
        found, workers_found = await fetch_connectors(client), await fetch_workers(client)
        if watch:
            await _watch_all(client, found, workers_found, output)
        elif output == Format.NAME:
            for one in (found, workers_found):
                print_document(output, one)
            print_document(output, listing.tasks_of(found), kind="task")
        elif output.is_document:
            document = {"connectors": found, "workers": workers_found}
            print_document(output, document, rows=listing.states_of_all(found, workers_found))
        else:
            chosen = list(listing.COLUMNS if output.is_wide else listing.DEFAULT_COLUMNS)
            out.print(table("connectors", chosen, listing.rows(listing.ordered(found, "NAME"), chosen)))
            out.print(table("\ntasks", *listing.task_table(listing.tasks_of(found), wide=output.is_wide)))
            out.print(table("\nworkers", *listing.worker_table(workers_found), numbers=("TASKS",)))

    with_herder(output, herder, work)


async def _watch_all(
    client: HerderClient, connectors: Sequence[views.Json], workers: Sequence[views.Json], output: Format
) -> None:
    def listed(connectors: Sequence[views.Json], workers: Sequence[views.Json]) -> following.Listed:
        rows = listing.states_of_all(connectors, workers)[1]
        keys = ("kind", "name", "state", "attention")
        return {f"{row[0]}/{row[1]}": (row, dict(zip(keys, row, strict=True))) for row in rows}

    columns, rows = listing.states_of_all(connectors, workers)
    printer = following.RowPrinter(output, columns, table(None, columns, rows))
    first = listed(connectors, workers)
    await following.follow_parts(
        client, (), first, printer, lambda one: listed([one], []), lambda one: listed([], [one])
    )


@get_app.command("workers")
def workers(
    name: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="Only this one.", autocompletion=completion.workers)
    ] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """List workers with their connectors and tasks."""

    async def work(client: HerderClient) -> None:
        found = [await fetch_worker(client, name)] if name else await fetch_workers(client)
        columns, rows = listing.worker_table(found)
        made = table(None, columns, rows, numbers=("TASKS",))
        if watch:
            first = {one["worker_id"]: one for one in found}
            await following.follow_workers(client, name, first, following.RowPrinter(output, columns, made))
        elif output.is_document:
            print_document(output, found[0] if name else found, rows=(columns, rows))
        else:
            out.print(made)

    with_herder(output, herder, work)


@get_app.command("plugins")
def plugins(
    name: Annotated[
        str | None, typer.Argument(metavar="[PLUGIN]", help="Only this one.", autocompletion=completion.plugins)
    ] = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """List the classes that live workers can load, and the plugins that they found but cannot load."""

    async def work(client: HerderClient) -> None:
        listed, refused = await fetch_plugins(client)
        found = [one for one in listed if name is None or name == one["class"] or name in one["aliases"]]
        if name is not None and not found:
            known = ", ".join(alias for one in listed for alias in one["aliases"][:1])
            text = f"no worker has a plugin {name}; there are: {known or 'none'}"
            if refused:
                text += f"; {len(refused)} cannot be used: `herd get plugins` shows why"
            raise from_reason("PLUGIN_NOT_FOUND", text)
        columns = ("CLASS", "TYPE", "VERSION", "ALIASES")
        if watch:
            classes = {one["class"] for one in found} if name else None

            async def read() -> following.Listed:
                now = [one for one in (await fetch_plugins(client))[0] if classes is None or one["class"] in classes]
                return _listed(now, _plugin_rows(now), "class")

            made = table(None, columns, _plugin_rows(found))
            await following.follow_reads(read, following.RowPrinter(output, columns, made))
        if output.is_document:
            print_document(output, found[0] if name else [*found, *refused])
            return
        out.print(table(None, columns, _plugin_rows(found)))
        if name is None:
            print_refused_plugins(refused)

    with_herder(output, herder, work)


def _plugin_rows(found: Sequence[views.Json]) -> list[list[str]]:
    return [
        [escape(one["class"]), one["type"], one["version"] or "-", escape(", ".join(one["aliases"]))] for one in found
    ]


def print_refused_plugins(refused: Sequence[views.Json]) -> None:
    """Print the plugins that were found but cannot be loaded, each with its reason and fix."""
    for one in refused:
        where = f"{one['folder']} ({one['plugin']})" if one["plugin"] else one["folder"]
        workers = escape(", ".join(one["workers"]))
        out.print_sentence(f"\n[bold red]NOT USED[/] {escape(where)} on {workers}: {escape(one['why'])}")
        if one["fix"]:
            out.print_sentence(f"[dim]next:[/] {escape(one['fix'])}")


@get_app.command("topics")
def topics(
    name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE, watch: WatchOption = False
) -> None:
    """List the topics that a connector was seen to use (KIP-558)."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.ListTopics, admin.ListTopicsRequest(name=name))
        if not reply.topics:
            await fetch_connector(client, name)  # a connector that does not exist has used no topic either
        if watch:

            async def read() -> following.Listed:
                reply = await client.call(lambda stub: stub.ListTopics, admin.ListTopicsRequest(name=name))
                return {one: ([escape(one)], {"name": one, "connector": name}) for one in reply.topics}

            made = table(None, ("TOPIC",), [[escape(one)] for one in reply.topics])
            await following.follow_reads(read, following.RowPrinter(output, ("TOPIC",), made, kind="topic"))
        if output.is_document:
            document: views.Json = {"name": name, "topics": list(reply.topics)}
            rows = (("TOPIC",), [[escape(one)] for one in reply.topics])
            print_document(output, document["topics"] if output == Format.NAME else document, kind="topic", rows=rows)
        else:
            out.print("\n".join(escape(one) for one in reply.topics) or f"{escape(name)} has used no topic yet")

    with_herder(output, herder, work)


@get_app.command("loggers")
def loggers(
    logger: Annotated[
        str,
        typer.Argument(
            metavar="[LOGGER]", help="Only this logger and those below it.", autocompletion=completion.loggers
        ),
    ] = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    watch: WatchOption = False,
) -> None:
    """List the levels of loggers, worker by worker. `herd set-logger` changes one."""

    async def work(client: HerderClient) -> None:
        found = await fetch_loggers(client, logger)
        columns = ("LOGGER", "LEVEL", "WORKER", "CHANGED")
        made = table(None, columns, _logger_rows(found))
        if watch:

            async def read() -> following.Listed:
                now = await fetch_loggers(client, logger)
                rows = zip(now, _logger_rows(now), strict=True)
                return {f"{one['logger']} on {one['worker_id']}": (row, one) for one, row in rows}

            await following.follow_reads(read, following.RowPrinter(output, columns, made))
        elif output.is_document:
            print_document(output, found)
        else:
            paged(made, len(found))

    with_herder(output, herder, work)


def _logger_rows(found: Sequence[views.Json]) -> list[list[str]]:
    return [
        [escape(one["logger"]), one["level"], escape(one["worker_id"]), one["last_modified"] or "-"] for one in found
    ]


def _listed(found: Sequence[views.Json], rows: Sequence[list[str]], key: str) -> following.Listed:
    """Documents with their rows, by name."""
    return {str(one[key]): (row, one) for one, row in zip(found, rows, strict=True)}
