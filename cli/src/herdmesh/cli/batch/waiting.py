"""Waiting for a state: `--wait[=STATE] --timeout` of every command that changes connectors.

Owns the meaning of each state, the two options, and the errors of a wait. Reads the herder's watch, so that a wait ends
with the event and polls nothing.

A state that was true before the change does not count: a restart raises the generation of what it restarts, so that a
wait after an update or a restart compares generations (`Floors`). A unit that is FAILED and is not restarted
automatically ends the wait at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import typer

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.display import views
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.times import seconds

TIMEOUT_S = 60.0
_NO_TASKS_S = 5.0
"""A connector that runs without tasks for this time makes none; until then its first task set may be under way."""
_RECONNECT_S = 0.2
_LOOK_S = 0.5
"""Longest time between two looks at connectors that run without tasks."""


class WaitState(StrEnum):
    """States to wait for. READY is the state that the connector is wanted in, with all its tasks."""

    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETED = "deleted"


WaitOption = Annotated[
    WaitState | None,
    typer.Option(
        "--wait",
        metavar="[=STATE]",
        help="Wait until the connector and its tasks are in this state: ready (the default: as wanted), running, "
        "paused, stopped, failed or deleted. Exit code 7 after --timeout, 11 when a unit failed for good.",
    ),
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Longest wait, as 30s, 5m or 1h; default 60s.")
]


@dataclass(frozen=True, slots=True)
class Floors:
    """Generations that units have before a change: a unit that restarts gets a higher one. -1 = it need not restart."""

    connector: int = -1
    tasks: int = -1
    only_tasks: frozenset[int] | None = None
    """The tasks that restart; None = all do."""


@dataclass(slots=True)
class _Waited:
    floors: Floors
    connector: views.Json | None = None
    error: CommandError | None = None
    is_done: bool = False
    runs_without_tasks_since_s: float | None = None


@dataclass(slots=True)
class StateWait:
    """The wait that the options ask for. `state` None = none."""

    state: WaitState | None
    timeout_s: float = TIMEOUT_S
    before: dict[str, views.Json] = field(default_factory=dict[str, views.Json])
    """The connectors as they were before the change; of those that restart."""

    async def remember(self, client: HerderClient, names: Iterable[str]) -> None:
        """Read the generations that the change is to raise; nothing without a wait."""
        wanted = set(names) if self.state is not None else set[str]()
        if wanted:
            async with aclosing(_events(client, sorted(wanted))) as events:
                async for name, connector in events:
                    if not name:
                        return
                    if connector is not None:
                        self.before[name] = connector

    def floors_of(self, name: str) -> Floors:
        """The generations of a connector whose units all restart."""
        known = self.before.get(name)
        if known is None:
            return Floors()
        tasks = max((task["generation"] for task in known["tasks"]), default=-1)
        return Floors(known["connector"]["generation"], tasks)

    async def until(self, client: HerderClient, floors: Mapping[str, Floors]) -> dict[str, CommandError]:
        """Wait for all of these connectors; returns the error of each that did not get there."""
        if self.state is None or not floors:
            return {}
        waited = {name: _Waited(one) for name, one in floors.items()}
        try:
            async with asyncio.timeout(self.timeout_s):
                while not all(one.is_done for one in waited.values()):
                    await self._follow(client, waited)
        except TimeoutError:
            for name, one in waited.items():
                if not one.is_done:
                    one.error = _too_late(name, self.state, self.timeout_s, one.connector)
        return {name: one.error for name, one in waited.items() if one.error is not None}

    async def _follow(self, client: HerderClient, waited: Mapping[str, _Waited]) -> None:
        """Judge the events of one watch until all are done or the watch ends."""
        names = [name for name, one in waited.items() if not one.is_done]
        events = _events(client, names)
        following: asyncio.Future[tuple[str, views.Json | None] | None] | None = None
        seen: set[str] = set()
        try:
            while not all(one.is_done for one in waited.values()):
                following = following or asyncio.ensure_future(anext(events, None))
                await asyncio.wait({following}, timeout=_LOOK_S)
                if following.done():
                    event, following = following.result(), None
                    if event is None:
                        break
                    self._on_event(event, waited, seen)
                for name in names:
                    if waited[name].runs_without_tasks_since_s is not None:
                        self._judge(name, waited[name], waited[name].connector)
            else:
                return
            await asyncio.sleep(_RECONNECT_S)  # another herder may lead by now
        except CommandError:
            await asyncio.sleep(_RECONNECT_S)
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await events.aclose()

    def _on_event(self, event: tuple[str, views.Json | None], waited: Mapping[str, _Waited], seen: set[str]) -> None:
        name, connector = event
        if name:
            seen.add(name)
            self._judge(name, waited[name], connector)
            return
        for missing in waited.keys() - seen:  # the snapshot is complete
            self._judge(missing, waited[missing], None)

    def _judge(self, name: str, one: _Waited, connector: views.Json | None) -> None:
        if one.is_done:
            return
        one.connector = connector
        if connector is None:
            one.is_done = True
            if self.state is not WaitState.DELETED:
                one.error = CommandError(
                    "CONNECTOR_NOT_FOUND",
                    f"connector {name} was deleted during the wait",
                    "`herd history NAME` shows by whom.",
                    EXIT_CODES["CONNECTOR_NOT_FOUND"],
                )
            return
        assert self.state is not None
        failed = _failed_for_good(connector, one.floors)
        if failed and self.state not in (WaitState.FAILED, WaitState.DELETED):
            one.is_done = True
            one.error = CommandError(
                "FAILED",
                f"connector {name} failed: {failed}",
                f"Fix the cause, then `herd restart {name}`; `herd describe connector {name}` has the trace.",
                EXIT_CODES["CONNECTOR_NOT_STOPPED"],
            )
            return
        if not is_in(self.state, connector, one.floors):
            one.runs_without_tasks_since_s = None
        elif connector["tasks"] or _wanted(self.state, connector) == "STOPPED" or self.state is WaitState.FAILED:
            one.is_done = True
        else:
            now_s = asyncio.get_running_loop().time()
            one.runs_without_tasks_since_s = one.runs_without_tasks_since_s or now_s
            one.is_done = now_s - one.runs_without_tasks_since_s >= _NO_TASKS_S


def wait_of(state: WaitState | None, timeout: str) -> StateWait:
    """The wait that the options ask for. Raises CommandError for a time that is none, or one without a wait."""
    if timeout and state is None:
        raise CommandError("USAGE", "--timeout bounds a wait: give --wait too", exit_code=EXIT_USAGE)
    return StateWait(state, seconds(timeout) if timeout else TIMEOUT_S)


def is_in(state: WaitState, connector: views.Json, floors: Floors) -> bool:
    """True when the connector and all its tasks are in a state, those that restart under a new generation."""
    units = [connector["connector"], *connector["tasks"]]
    if state is WaitState.DELETED:
        return False
    if state is WaitState.FAILED:
        return any(unit["state"] == "FAILED" for unit in units)
    wanted = _wanted(state, connector)
    if connector["target_state"] != {"RUNNING": "STARTED"}.get(wanted, wanted):
        return False
    if connector["connector"]["state"] != wanted or connector["connector"]["generation"] <= floors.connector:
        return False
    if wanted == "STOPPED":
        return all(task["state"] not in ("RUNNING", "PAUSED") for task in connector["tasks"])
    return all(
        task["state"] == wanted and (wanted == "PAUSED" or not _must_restart(task, floors))
        for task in connector["tasks"]
    )


def _must_restart(task: views.Json, floors: Floors) -> bool:
    """True for a task that is still the one of before the change."""
    concerned = floors.only_tasks is None or task["id"] in floors.only_tasks
    return concerned and task["generation"] <= floors.tasks


def _wanted(state: WaitState, connector: views.Json) -> str:
    if state is not WaitState.READY:
        return state.value.upper()
    target: str = connector["target_state"] or "STARTED"
    return "RUNNING" if target == "STARTED" else target


def _failed_for_good(connector: views.Json, floors: Floors) -> str:
    """The error of a unit that failed after the change and is not restarted automatically; "" = there is none."""
    for unit in (connector["connector"], *connector["tasks"]):
        is_task = "id" in unit
        is_old = _must_restart(unit, floors) if is_task else unit["generation"] <= floors.connector
        restart: views.Json = unit.get("auto_restart") or {}
        if unit["state"] == "FAILED" and not is_old and not restart.get("next_time"):
            where = f"task {unit['id']}: " if is_task else ""
            return where + str(unit.get("error", "no reason is known")).partition("\n")[0]
    return ""


def _too_late(name: str, state: WaitState, timeout_s: float, connector: views.Json | None) -> CommandError:
    shown = f"{timeout_s:g} s"
    if connector is None:
        text = f"connector {name} is not {state} after {shown}: no herder answered in that time"
    else:
        units = [("the connector", connector["connector"])]
        units += [(f"task {task['id']}", task) for task in connector["tasks"]]
        wanted = _wanted(state, connector) if state is not WaitState.DELETED else ""
        left = [
            f"{title} is {unit['state']}" + (f" ({unit['explanation']})" if unit.get("explanation") else "")
            for title, unit in units
            if unit["state"] != wanted
        ]
        more = f", and {len(left) - 3} more" if len(left) > 3 else ""
        why = f": {', '.join(left[:3])}{more}" if left else ""
        text = f"connector {name} is not {state} after {shown}{why}"
    next_step = f"The change is made: `herd describe connector {name}` shows what it waits for."
    return CommandError("TIMEOUT", text, next_step, EXIT_CODES["TIMEOUT"])


async def _events(client: HerderClient, names: Sequence[str]) -> AsyncGenerator[tuple[str, views.Json | None], None]:
    """(name, connector or None) of each event; ("", None) when the snapshot is complete."""
    request = messages.WatchConnectorsRequest(names=names)
    async for event in client.stream(lambda stub: stub.WatchConnectors, request):
        match event.WhichOneof("event"):
            case "snapshot_part":
                for connector in event.snapshot_part.connectors:
                    yield connector.name, views.connector(connector)
            case "connector":
                yield event.connector.name, views.connector(event.connector)
            case "deleted":
                yield event.deleted, None
            case "snapshot_complete":
                yield "", None
            case _:
                pass
