"""`herd describe`: one object in full; for a connector also the reason for the place and state of each part, and its
next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli import completion
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import listing, traces, views
from herdmesh.cli.display.diagnosis import Diagnosis, Level, diagnose
from herdmesh.cli.display.hidden_secrets import ShowSecretsOption, hide_in_connectors
from herdmesh.cli.display.output import (
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
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import fetch_connector, fetch_tasks, fetch_worker
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, VerboseOption, WorkerArgument, with_herder

_VALIDATION_S = 3.0
"""A connector may query its database during validation: describe does not wait longer for that."""

_TROUBLES = ("explanation", "auto_restart", "conditions", "error")
_NUMBERS_MAX = 8
_LEVEL_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}
describe_app = typer.Typer(no_args_is_help=True, help="Show one object in full.")


@describe_app.command("connector")
def describe_connector(
    name: NameArgument,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
    show_secrets: ShowSecretsOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show a connector: first what is wrong and what will happen, in one sentence; then worker, generation, restarts,
    errors with the frames of your code, lag, config, and settings that do not have their effect.
    """

    async def work(client: HerderClient) -> None:
        found = await fetch_connector(client, name, show_secrets=True)
        found["warnings"] = await _warnings(client, found["config"])
        if not show_secrets:
            await hide_in_connectors(client, [found])
        diagnosis = diagnose(found)
        if output.is_document:
            print_document(output, {"diagnosis": diagnosis.to_json(), **found}, rows=listing.unit_table(found))
        else:
            print_connector(found, diagnosis, verbose=verbose)

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
    verbose: VerboseOption = False,
) -> None:
    """Show one task: worker, generation, restarts, last error with its trace, offsets, next step, config."""
    if not task.rpartition("/")[2].isdecimal() or "/" not in task:
        raise typer.BadParameter(f"{task} is not CONNECTOR/TASK, such as {task.rstrip('/')}/0", param_hint="TASK")

    async def work(client: HerderClient) -> None:
        (found,) = await fetch_tasks(client, task)
        if output.is_document:
            print_document(output, found, kind="task", rows=listing.task_table([found], wide=True))
        else:
            _print_task(found, verbose=verbose)

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
            print_document(output, found, rows=listing.worker_table([found]))
            return
        reason = f": {escape(found['reason'])}" if found["reason"] else ""
        out.print_sentence(f"[bold]{escape(found['worker_id'])}[/] {colored(found['state'])}{reason}")
        for one in found["conditions"]:
            out.print_sentence(f"[bold red]{one['type']}[/] {escape(one['message'])}")
        out.print_sentence(f"address {escape(found['address'])}, {found['slots']} slots")
        for held in ("connectors", "tasks"):
            out.print_sentence(f"{len(found[held])} {held}: {escape(', '.join(found[held]) or 'none')}")

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
        columns = ("KEY", "TYPE", "DEFAULT", "IMPORTANCE", "MEANING")
        if output.is_document:
            print_document(output, found, rows=(columns, rows))
            return
        out.print(f"[bold]{escape(found['class'])}[/] ({found['type']}) {found['version'] or ''}")
        out.print(table("\nconfig", columns, rows))

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


def story(unit: views.Json, told: Collection[str] = ()) -> Iterator[str]:
    """The lines about a connector or task for an operator, as markup: its state, the reason for it, and the
    next step. `told` are the messages that were printed before; they are left out.
    """
    held = f"on {escape(unit['worker_id'])}, generation {unit['generation']}" if unit["worker_id"] else "on no worker"
    since = f", for {age(unit['since'])}" if "since" in unit else ""
    yield f"{colored(unit['state'])} {held}{since}"
    if unit.get("error") and unit["error"] not in told:
        yield f"[red]{escape(unit['error'])}[/] ({unit['error_class'].lower() or 'unknown'})"
    conditions = unit.get("conditions", [])
    explanation = unit.get("explanation", "")
    if explanation and explanation not in (*told, *(one["message"] for one in conditions)):
        yield escape(explanation)
    yield from _restart_lines(unit, told)
    for one in conditions:
        since = one.get("wait", {}).get("since")
        if one["message"] not in told and not (one["type"] == "RESTARTING" and "auto_restart" in unit):
            yield f"{one['type']} {f'for {age(since)}, ' if since else ''}{escape(one['message'])}"
    if "placed_because" in unit:
        placed = f" since {unit['placed_time']}" if "placed_time" in unit else ""
        yield f"on {escape(unit['worker_id'])}{placed}, because {escape(unit['placed_because'])}"


def _restart_lines(unit: views.Json, told: Collection[str]) -> Iterator[str]:
    """The line about automatic restarts; where the explanation has it already, only the error before this one."""
    restart = unit.get("auto_restart")
    if restart is None:
        return
    last = restart.get("last_error")
    if "restart" in unit.get("explanation", ""):
        if last and last not in (*told, unit.get("error", "")):
            yield f"the error before: {escape(last)}"
    elif _tells_more(unit, restart):
        yield _restart_line(restart, unit.get("error", ""))


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


def print_connector(found: views.Json, diagnosis: Diagnosis, *, verbose: bool = False) -> None:
    """Print a connector in full, its diagnosis first."""
    out.print_sentence(escape(diagnosis.sentence), style=_LEVEL_STYLES[diagnosis.level])
    out.print()
    stories = _Stories(diagnosis.quotes, verbose=verbose)
    lag = f", behind {connector_lag(found)}, uncommitted {connector_uncommitted(found)}"
    out.print_sentence(
        f"[bold]{escape(found['name'])}[/] ({found['type']}), wanted {colored(found['target_state'] or 'STARTED')}"
        f"{'' if found['type'] == 'source' else lag}"
    )
    stories.print("connector", found["connector"])
    if found["tasks"]:
        rows = [
            [*row, str(task["generation"] or "-"), age(task.get("since"))]
            for row, task in zip(task_rows(found), found["tasks"], strict=True)
        ]
        out.print(table("\ntasks", (*TASK_COLUMNS, "GENERATION", "AGE"), rows))
    for tasks in _grouped(found["tasks"]):
        out.print()
        if len(tasks) == 1 or _trouble_of(tasks[0]):
            stories.print(_title(tasks), tasks[0])
        else:
            out.print_sentence(_group_line(tasks))
    _print_offsets(found["tasks"])
    _print_config(found["config"])
    if found["warnings"] is None:
        out.print("\nno worker answered in time which settings have no effect: run `herd validate`")
    elif found["warnings"]:
        rows = [[escape(one["message"]), escape(one["fix"])] for one in found["warnings"]]
        out.print(table("\nsettings that do not have their effect", ("WHAT", "NEXT STEP"), rows))


def _grouped(tasks: Sequence[views.Json]) -> list[list[views.Json]]:
    """The tasks that have a story: those with a problem first, by problem, then the others by worker and by the reason
    why it has them. The groups of a connector of 500 tasks are few.
    """
    groups: dict[tuple[str, ...], list[views.Json]] = {}
    for task in tasks:
        if trouble := _trouble_of(task):
            groups.setdefault((task["state"], *trouble), []).append(task)
    for task in tasks:
        if "placed_because" in task and not _trouble_of(task):
            groups.setdefault((task["state"], task["worker_id"], task["placed_because"]), []).append(task)
    return [*groups.values()]


def _trouble_of(task: views.Json) -> tuple[str, ...]:
    """Equal for tasks with the same problem; empty for a task without one. A wait's text has its tries, which differ;
    its target and reason do not.
    """
    if not any(key in task for key in _TROUBLES):
        return ()
    waits = [
        (one["wait"]["waits_for"], one["wait"]["message"] or "") for one in task.get("conditions", ()) if "wait" in one
    ]
    if waits:
        return ("waits", *waits[0])
    return ("error", task["error"]) if task.get("error") else ("", task["worker_id"] or "", task.get("explanation", ""))


def _title(tasks: Sequence[views.Json]) -> str:
    """`task 3`, `tasks 0, 1, 2`; the story is that of the first one."""
    more = f" and {len(tasks) - _NUMBERS_MAX} others" if len(tasks) > _NUMBERS_MAX else ""
    numbers = ", ".join(str(task["id"]) for task in tasks[:_NUMBERS_MAX])
    return f"task {numbers}" if len(tasks) == 1 else f"tasks {numbers}{more}"


def _group_line(tasks: Sequence[views.Json]) -> str:
    """The line about tasks that run as wanted; the table above has the age of each."""
    one = tasks[0]
    where = f"{colored(one['state'])} on {escape(one['worker_id'])}"
    return f"[bold]{_title(tasks)}[/] {where}, because {escape(one['placed_because'])}"


def _print_task(found: views.Json, *, verbose: bool) -> None:
    _Stories((), verbose=verbose).print(escape(found["name"]), found)
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
                drop=("UNCOMMITTED", "POSITION", "END", "COMMITTED"),
            )
        )


def _print_config(config: views.Json) -> None:
    if not config:
        return
    rows = [[escape(key), escape("null" if value is None else str(value))] for key, value in config.items()]
    out.print(table("\nconfig", ("KEY", "VALUE"), rows))


class _Stories:
    """The printed stories of a connector's units: no message and no trace is printed twice."""

    def __init__(self, told: Collection[str], *, verbose: bool) -> None:
        self._told = set(told) - {""}
        self._traced: dict[str, str] = {}
        self._verbose = verbose

    def print(self, title: str, unit: views.Json) -> None:
        """Print the story of one unit, and its trace."""
        first, *rest = story(unit, self._told)
        out.print_sentence(f"[bold]{title}[/] {first}")
        for line in rest:
            out.print_sentence(f"  {line}", hang=4)
        self._told |= {unit.get("error", ""), *(one["message"] for one in unit.get("conditions", ()))} - {""}
        trace = unit.get("trace", "")
        if trace in ("", unit.get("error")):
            return
        if trace in self._traced:
            out.print(f"  trace: as of {self._traced[trace]}")
            return
        self._traced[trace] = title
        shown, hidden = (trace, 0) if self._verbose else traces.shortened(trace)
        out.print(escape(shown), style="red", soft_wrap=True)
        if hidden:
            out.print_sentence(f"  [dim]{hidden} frames of libraries are left out; -v shows them[/]", hang=4)
