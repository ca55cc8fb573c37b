"""`herd events`: what happened to connectors, oldest first: changes by callers, steps of the herder, states, failures.

Owns the conversion of the history and of the herder's view into events. Earlier events come from the history of the
config store, which has changes, and from the current view, which has for every unit when it got its state and worker,
and why; with -f the herder's watch adds every change of a state. Invariant: an event names its time, its subject and
its cause; a state that lasts is one event, however often the watch repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.commands.doctor import ConfigStoresOption
from herdmesh.cli.display import changes, views
from herdmesh.cli.display.board import Board
from herdmesh.cli.display.diagnosis import one_line
from herdmesh.cli.display.output import Format, colored, err, out, print_document, print_line
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient, find_herder
from herdmesh.cli.queries import fetch_connector, fetch_connectors, history_entries
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder
from herdmesh.cli.times import moment

_SHOWN: Final = 50
#: Connectors whose histories are read at a time, and how many changes of each.
_AT_ONCE: Final = 8
_CHANGES_MAX: Final = 20


def events(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this connector.", autocompletion=completion.connectors)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only events not older than: 90s, 15m, 2h, 7d, or a time."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number of earlier events; 0 = all.")
    ] = _SHOWN,
    herder: HerderOption = None,
    config_store: ConfigStoresOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what happened: changes by people and programs, steps of the herder, states, failures and restarts."""

    async def work(client: HerderClient) -> None:
        earliest = moment(since, datetime.now(UTC)) if since else None
        connectors = [await fetch_connector(client, name)] if name else await fetch_connectors(client, full=True)
        found = [one for connector in connectors for one in current_events(connector)]
        found += await _history([one["name"] for one in connectors], config_store)
        found = [one for one in sorted(found, key=_time_of) if earliest is None or _is_since(one, earliest)]
        shown = found[-limit:] if limit else found
        if output.is_document and not follow:
            print_document(output, shown)
            return
        if not shown and not follow:
            err.print("[dim]no events[/]")
        for one in shown:
            _print(one, output)
        if follow:
            await _follow(find_herder(herder), name, {one["name"]: one for one in connectors}, output)

    with_herder(output, herder, work)


async def _history(names: list[str], config_store: str | None) -> list[views.Json]:
    """The latest changes of connectors. Without a config store the events are those of the herder's view alone."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def of_one(name: str) -> list[views.Json]:
        found: list[views.Json] = []
        async with gate:
            async for entry in history_entries(name, config_store, page_size=_CHANGES_MAX):
                found.append(change_event(name, changes.view(entry)))
                if len(found) == _CHANGES_MAX:
                    break
        return found

    try:
        return [one for found in await asyncio.gather(*map(of_one, names)) for one in found]
    except CommandError as error:
        err.print_sentence(f"[yellow]changes are missing:[/] {escape(error.message)}")
        return []


def change_event(name: str, change: views.Json) -> views.Json:
    """The event of a change in the history."""
    what = f"{change['operation']}: {changes.summary_of(change)}"
    by = change["caller"] or change["by"]
    return _event(change["time"], "herder" if change["by"] == "herder" else "change", name, None, what, by)


def current_events(connector: views.Json) -> Iterator[views.Json]:
    """The latest events of a connector's units: placed, state entered, failed, waiting."""
    for unit in (connector["connector"], *connector["tasks"]):
        yield from _unit_events(connector["name"], unit)


def _unit_events(name: str, unit: views.Json) -> Iterator[views.Json]:
    task = unit.get("id")
    if unit.get("placed_time"):
        what = f"placed on {unit['worker_id']}, because {unit['placed_because']}"
        yield _event(unit["placed_time"], "placed", name, task, what)
    if unit.get("since"):
        yield _event(unit["since"], "state", name, task, _state_text(unit), state=unit["state"])
    for one in unit.get("conditions", ()):
        if one.get("wait", {}).get("since"):
            yield _event(one["wait"]["since"], "waiting", name, task, one["message"])


def _state_text(unit: views.Json) -> str:
    held = f" on {unit['worker_id']}" if unit["worker_id"] else ""
    why = one_line(unit.get("error", "") or unit.get("explanation", ""))
    return f"{unit['state']}{held}{f': {why}' if why else ''}"


def new_events(before: views.Json | None, after: views.Json, now: datetime) -> Iterator[views.Json]:
    """The events between two views of one connector."""
    old = {} if before is None else {unit.get("id"): unit for unit in (before["connector"], *before["tasks"])}
    units = [after["connector"], *after["tasks"]]
    moment_text = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before["target_state"] != after["target_state"]:
        yield _event(moment_text, "change", after["name"], None, f"wanted {after['target_state']}")
    for unit in units:
        earlier = old.pop(unit.get("id"), None)
        for one in _unit_events(after["name"], unit):
            if earlier is None or not any(_same(one, known) for known in _unit_events(after["name"], earlier)):
                yield one
        if "since" not in unit and earlier is not None and earlier["state"] != unit["state"]:
            yield _event(moment_text, "state", after["name"], unit.get("id"), _state_text(unit), state=unit["state"])
    for number in old:
        yield _event(moment_text, "state", after["name"], number, "the task is gone")


def _same(one: views.Json, other: views.Json) -> bool:
    """True for an event that is known: a wait's text changes with each try."""
    keys = ("kind", "time", "state") if one["kind"] != "state" else ("kind", "time", "state", "what")
    return all(one.get(key) == other.get(key) for key in keys)


async def _follow(addresses: str, name: str | None, known: dict[str, views.Json], output: Format) -> None:
    board = Board([name] if name else ())

    def changed(which: str, connector: views.Json | None) -> None:
        now = datetime.now(UTC)
        before = known.pop(which, None)
        if connector is None:
            _print(_event(now.strftime("%Y-%m-%dT%H:%M:%SZ"), "change", which, None, "deleted"), output)
            return
        known[which] = connector
        for one in new_events(before, connector, now):
            _print(one, output)

    await board.follow(addresses, changed)


def _event(
    time: str, kind: str, connector: str, task: int | None, what: str, by: str | None = None, state: str | None = None
) -> views.Json:
    return {"time": time, "kind": kind, "connector": connector, "task": task, "what": what, "by": by, "state": state}


def _time_of(event: views.Json) -> str:
    return str(event["time"]).replace("Z", "")


def _is_since(event: views.Json, earliest: datetime) -> bool:
    return datetime.fromisoformat(event["time"]).astimezone(UTC) >= earliest.astimezone(UTC)


def _print(event: views.Json, output: Format) -> None:
    if output.is_document:
        print_line(output, event)
        return
    task = "" if event["task"] is None else f"/{event['task']}"
    by = f" [dim](by {escape(event['by'])})[/]" if event["by"] else ""
    what = escape(event["what"])
    if event["state"]:
        what = colored(event["state"]) + what.removeprefix(event["state"])
    what = what.removeprefix("placed ") if event["kind"] == "placed" else what
    out.print_sentence(
        f"[dim]{event['time']}[/] {event['kind']:<7} [bold]{escape(event['connector'])}{task}[/] {what}{by}"
    )
