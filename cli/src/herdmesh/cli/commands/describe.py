"""`herd describe`: one object in full; for a connector also the reason for the place and state of each part, and its
next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli import completion, views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.commands.get import fetch_connector, fetch_tasks, fetch_worker
from herdmesh.cli.connector_files import to_properties
from herdmesh.cli.errors import CommandError
from herdmesh.cli.hidden_secrets import ShowSecretsOption, hide_in_connectors
from herdmesh.cli.output import (
    TASK_COLUMNS,
    Format,
    age,
    colored,
    connector_lag,
    connector_uncommitted,
    count,
    out,
    print_document,
    table,
    task_row,
    task_rows,
)
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, WorkerArgument, with_herder

_VALIDATION_S = 3.0
"""A connector may query its database during validation: describe does not wait longer for that."""

describe_app = typer.Typer(no_args_is_help=True, help="Show one object in full.")


@describe_app.command("connector")
def describe_connector(
    name: NameArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    show_secrets: ShowSecretsOption = False,
) -> None:
    """Show a connector: worker, generation, restarts, last error with its trace, lag, next step, config, and settings
    that do not have their effect.
    """

    async def work(client: HerderClient) -> None:
        found = await fetch_connector(client, name, show_secrets=True)
        found["warnings"] = await _warnings(client, found["config"])
        if not show_secrets:
            await hide_in_connectors(client, [found])
        if output.is_document:
            print_document(output, found)
        else:
            _print_connector(found)

    with_herder(output, herder, work)


@describe_app.command("task")
def describe_task(
    task: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTOR/TASK", help="As `herd get tasks` shows it: orders/0.", autocompletion=completion.tasks
        ),
    ],
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one task: worker, generation, restarts, last error with its trace, offsets, next step, config."""
    if not task.rpartition("/")[2].isdecimal() or "/" not in task:
        raise typer.BadParameter(f"{task} is not CONNECTOR/TASK, such as {task.rstrip('/')}/0", param_hint="TASK")

    async def work(client: HerderClient) -> None:
        (found,) = await fetch_tasks(client, task)
        if output.is_document:
            print_document(output, found, kind="task")
        else:
            _print_task(found)

    with_herder(output, herder, work)


@describe_app.command("worker")
def describe_worker(
    worker_id: WorkerArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a worker and all its connectors and tasks."""

    async def work(client: HerderClient) -> None:
        found = await fetch_worker(client, worker_id)
        if output.is_document:
            print_document(output, found)
            return
        out.print(f"[bold]{escape(found['worker_id'])}[/] {colored(found['state'])} {escape(found['reason'] or '')}")
        out.print(f"address {escape(found['address'])}, {found['slots']} slots")
        out.print(f"connectors: {escape(', '.join(found['connectors']) or 'none')}")
        out.print(f"tasks: {escape(', '.join(found['tasks']) or 'none')}")

    with_herder(output, herder, work)


@describe_app.command("plugin")
def describe_plugin(
    class_name: Annotated[
        str,
        typer.Argument(
            metavar="CLASS", help="Class or alias, as `herd get plugins` has it.", autocompletion=completion.plugins
        ),
    ],
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the configuration of a plugin: keys, types, defaults, meaning."""

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.GetPlugin, admin.GetPluginRequest(class_name=class_name))
        found: views.Json = {
            **views.plugin(reply.plugin),
            "config": [views.config_field(one) for one in reply.fields],
        }
        if output.is_document:
            print_document(output, found)
            return
        out.print(f"[bold]{escape(found['class'])}[/] ({found['type']}) {found['version'] or ''}")
        rows = [
            [
                escape(one["name"]),
                one["type"].lower(),
                "[bold]required[/]" if one["required"] else escape(one["default_value"] or ""),
                one["importance"].lower(),
                escape(one["documentation"]),
            ]
            for one in found["config"]
        ]
        out.print(table("\nconfig", ("KEY", "TYPE", "DEFAULT", "IMPORTANCE", "MEANING"), rows))

    with_herder(output, herder, work)


async def _warnings(client: HerderClient, config: views.Json) -> list[views.Json] | None:
    """A worker's warnings about the settings; None = no worker answered, or none in time."""
    request = messages.ValidateConfigRequest(config=to_properties(config))
    try:
        async with asyncio.timeout(_VALIDATION_S):
            reply = await client.call(lambda stub: stub.ValidateConfig, request, timeout_s=_VALIDATION_S)
    except (CommandError, TimeoutError):
        return None
    return views.warnings(reply.validation.warnings)


def story(unit: views.Json) -> Iterator[str]:
    """The lines about a connector or task for an operator, as markup: its state, the reason for it, and the
    next step.
    """
    held = f"on {escape(unit['worker_id'])}, generation {unit['generation']}" if unit["worker_id"] else "on no worker"
    since = f", for {age(unit['since'])}" if "since" in unit else ""
    yield f"{colored(unit['state'])} {held}{since}"
    if "placed_because" in unit:
        placed = f" since {unit['placed_time']}" if "placed_time" in unit else ""
        yield f"on {escape(unit['worker_id'])}{placed}, because {escape(unit['placed_because'])}"
    if "explanation" in unit and unit["explanation"] not in (one["message"] for one in unit.get("conditions", ())):
        yield escape(unit["explanation"])
    restart = unit.get("auto_restart")
    if restart is not None and _tells_more(unit, restart):
        yield _restart_line(restart, unit.get("error", ""))
    for one in unit.get("conditions", []):
        since = one.get("wait", {}).get("since")
        yield f"{one['type']} {f'for {age(since)}, ' if since else ''}{escape(one['message'])}"
    if "error" in unit:
        yield f"[red]{escape(unit['error'])}[/] ({unit['error_class'].lower() or 'unknown'})"


def _tells_more(unit: views.Json, restart: views.Json) -> bool:
    """False for a unit that failed for good without a restart: the explanation already says that none comes."""
    return unit["state"] != "FAILED" or bool(restart["next_time"]) or restart["attempt"] > restart["attempts_max"]


def _restart_line(restart: views.Json, shown: str) -> str:
    of = f"{min(restart['attempt'], restart['attempts_max'])} of {restart['attempts_max']}"
    if restart["attempt"] > restart["attempts_max"]:
        line = f"restarted {of} times; no further automatic restart: fix the cause, then `herd restart`"
    elif restart["next_time"]:
        line = f"restart {of} at {restart['next_time']}"
    else:
        line = f"restart {of}"
    last = restart.get("last_error")
    return line + (f", last error: {escape(last)}" if last and last != shown else "")


def _print_connector(found: views.Json) -> None:
    out.print(
        f"[bold]{escape(found['name'])}[/] ({found['type']}), wanted {colored(found['target_state'] or 'STARTED')}, "
        f"behind {connector_lag(found)}, uncommitted {connector_uncommitted(found)}"
    )
    _print_story("connector", found["connector"])
    if found["tasks"]:
        rows = [
            [*row, str(task["generation"] or "-"), age(task.get("since"))]
            for row, task in zip(task_rows(found), found["tasks"], strict=True)
        ]
        out.print(table("\ntasks", (*TASK_COLUMNS, "GENERATION", "AGE"), rows))
    for task in found["tasks"]:
        if any(key in task for key in ("placed_because", "explanation", "auto_restart", "conditions", "error")):
            out.print()
            _print_story(f"task {task['id']}", task)
    _print_offsets(found["tasks"])
    _print_config(found["config"])
    if found["warnings"] is None:
        out.print("\nno worker answered in time which settings have no effect: run `herd validate`")
    elif found["warnings"]:
        rows = [[escape(one["message"]), escape(one["fix"])] for one in found["warnings"]]
        out.print(table("\nsettings that do not have their effect", ("WHAT", "NEXT STEP"), rows))


def _print_task(found: views.Json) -> None:
    _print_story(escape(found["name"]), found)
    rows = [[*task_row(found), str(found["generation"] or "-"), age(found.get("since"))]]
    out.print(table(None, (*TASK_COLUMNS, "GENERATION", "AGE"), rows))
    _print_offsets([found])
    _print_config(found["config"])


def _print_offsets(tasks: Sequence[views.Json]) -> None:
    partitions = [(task["id"], one) for task in tasks for one in task.get("progress", {}).get("partitions", [])]
    if partitions:
        rows = [
            [
                str(number),
                escape(one["topic"]),
                str(one["partition"]),
                *(str(one[key]) if one[key] >= 0 else "-" for key in ("committed_offset", "position", "end_offset")),
                count(one["behind_records"]),
                count(one["uncommitted_records"]),
            ]
            for number, one in partitions
        ]
        out.print(
            table(
                "\noffsets, as last reported by the runs",
                ("TASK", "TOPIC", "PARTITION", "COMMITTED", "POSITION", "END", "BEHIND", "UNCOMMITTED"),
                rows,
            )
        )


def _print_config(config: views.Json) -> None:
    rows = [[escape(key), escape("null" if value is None else str(value))] for key, value in config.items()]
    out.print(table("\nconfig", ("KEY", "VALUE"), rows))


def _print_story(title: str, unit: views.Json) -> None:
    first, *rest = story(unit)
    out.print(f"[bold]{title}[/] {first}", soft_wrap=True)
    for line in rest:
        out.print(f"  {line}", soft_wrap=True)
    if "trace" in unit and unit["trace"] != unit.get("error"):
        out.print(escape(unit["trace"]), style="red", soft_wrap=True)
