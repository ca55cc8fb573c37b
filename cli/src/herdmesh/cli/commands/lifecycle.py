"""`herd pause|resume|stop|restart|delete`: the life cycle of connectors, of one or of many.

Owns the five commands. Several connectors are changed in bounded parallel work, deleted in one call; an error of one
does not keep the others from their change, and the command then ends with that error. Does not own the selection
(`selection.py`), nor the wait (`waiting.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as config_messages
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as messages
from herdmesh.cli.batch.confirming import confirm
from herdmesh.cli.batch.results import end_with
from herdmesh.cli.batch.selection import (
    AllOption,
    ConnectorSelection,
    FilesOption,
    MatchOption,
    NamesArgument,
    StateOption,
)
from herdmesh.cli.batch.sending import BatchOutcomes, ChangeBatch, send
from herdmesh.cli.batch.waiting import Floors, StateWait, TimeoutOption, WaitOption, WaitState, wait_of
from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, err, out
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh import bounded
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

_Made: TypeAlias = tuple[views.Json, str, Floors]
"""A change that was made: its document, its line for people, and the generations that it raises."""
_NAMED_MAX = 10
"""Connectors that a question or an error names."""


def pause(
    names: NamesArgument = None,
    match: MatchOption = "",
    state: StateOption = None,
    everything: AllOption = False,
    files: FilesOption = None,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Keep the tasks of connectors on their workers and move no records."""
    selection = ConnectorSelection(names or (), match, state or (), everything, files or ())
    change = _target_change("paused", lambda stub: stub.PauseConnector, messages.PauseConnectorRequest)
    _change_all(selection, change, wait, timeout, herder, output)


def resume(
    names: NamesArgument = None,
    match: MatchOption = "",
    state: StateOption = None,
    everything: AllOption = False,
    files: FilesOption = None,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Let paused or stopped connectors run again."""
    selection = ConnectorSelection(names or (), match, state or (), everything, files or ())
    change = _target_change("resumed", lambda stub: stub.ResumeConnector, messages.ResumeConnectorRequest)
    _change_all(selection, change, wait, timeout, herder, output)


def stop(
    names: NamesArgument = None,
    match: MatchOption = "",
    state: StateOption = None,
    everything: AllOption = False,
    files: FilesOption = None,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Stop the tasks of connectors and keep their configs and offsets."""
    selection = ConnectorSelection(names or (), match, state or (), everything, files or ())
    change = _target_change("stopped", lambda stub: stub.StopConnector, messages.StopConnectorRequest)
    _change_all(selection, change, wait, timeout, herder, output)


def restart(
    names: NamesArgument = None,
    match: MatchOption = "",
    state: StateOption = None,
    everything: AllOption = False,
    files: FilesOption = None,
    task: Annotated[int | None, typer.Option("--task", metavar="N", help="Only this task of one connector.")] = None,
    include_tasks: Annotated[bool, typer.Option("--include-tasks", help="The tasks too.")] = False,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Only connectors and tasks that are FAILED.")
    ] = False,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Restart connectors, their tasks, or one task."""
    selection = ConnectorSelection(names or (), match, state or (), everything, files or ())
    if task is not None and (include_tasks or only_failed):
        raise typer.BadParameter("--task cannot be combined with these options: it restarts that task in any state")
    if task is not None and not selection.is_one_name:
        raise typer.BadParameter("--task is for one connector: name it")

    async def restart_one(client: HerderClient, name: str, waiting: StateWait) -> _Made:
        before = waiting.floors_of(name)
        if task is not None:
            one = messages.RestartTaskRequest(request_id=new_request_id(), name=name, task=task)
            await client.call(lambda stub: stub.RestartTask, one)
            document: views.Json = {"result": "restarted", "name": name, "task": task}
            floors = Floors(tasks=before.tasks, only_tasks=frozenset({task}))
            return document, f"task [bold]{escape(name)}-{task}[/] restarted", floors
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
        restarted = [item["task"] for item in items if item["restarted"]]
        named = ", ".join("connector" if number is None else f"task {number}" for number in restarted)
        tasks = frozenset(number for number in restarted if number is not None)
        floors = Floors(before.connector if None in restarted else -1, before.tasks, tasks)
        document = {"result": "restarted", "name": name, "items": items}
        return document, f"[bold]{escape(name)}[/]: {named or 'nothing'} restarted", floors

    change = _Change("restarted", restart_one, WaitState.READY, remembers=True)
    _change_all(selection, change, wait, timeout, herder, output)


def delete(
    names: NamesArgument = None,
    match: MatchOption = "",
    state: StateOption = None,
    everything: AllOption = False,
    files: FilesOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Succeed even if it does not exist.")] = False,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete connectors. Their offsets stay: a new connector of the same name continues from them."""
    selection = ConnectorSelection(names or (), match, state or (), everything, files or ())

    def deleted(name: str) -> _Made:
        return (
            {"result": "deleted", "name": name},
            f"connector [bold]{escape(name)}[/] deleted; its offsets stay",
            Floors(),
        )

    def missing(name: str, error: CommandError) -> _Made | None:
        if not (allow_missing and error.reason == "CONNECTOR_NOT_FOUND"):
            return None
        return {"result": "missing", "name": name}, f"connector [bold]{escape(name)}[/] does not exist", Floors()

    async def delete_one(client: HerderClient, name: str, _: StateWait) -> _Made:
        try:
            await client.call(lambda stub: stub.DeleteConnector, _deletion(name))
        except CommandError as error:
            if (found := missing(name, error)) is not None:
                return found
            raise
        return deleted(name)

    async def delete_many(client: HerderClient, names: list[str]) -> BatchOutcomes[str, _Made]:
        return await send(
            client,
            ChangeBatch(
                names,
                change_of=_deletion,
                result_of=lambda name, _: deleted(name),
                verb="deleted",
                show=lambda made: out.print(made[1]) if not output.is_document else None,
                forgiven=missing,
                shows_progress=not output.is_document,
            ),
        )

    change = _Change(
        "deleted",
        delete_one,
        WaitState.DELETED,
        asks=not yes,
        allows_missing=allow_missing,
        make_many=delete_many,
    )
    _change_all(selection, change, wait, timeout, herder, output)


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one connector: its document, its line for people, and the generations that it raises."""

    verb: str
    make: Callable[[HerderClient, str, StateWait], Awaitable[_Made]]
    ready: WaitState
    """The state that `--wait` alone waits for."""
    remembers: bool = False
    """The change raises generations: a wait compares them with those of before."""
    asks: bool = False
    allows_missing: bool = False
    make_many: Callable[[HerderClient, list[str]], Awaitable[BatchOutcomes[str, _Made]]] | None = None
    """The change of several in one call, and the lines for people; None = a call for each."""


def _deletion(name: str) -> config_messages.DeleteConnectorRequest:
    return config_messages.DeleteConnectorRequest(request_id=new_request_id(), name=name)


def _target_change(
    verb: str, pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]], request: Callable[..., Any]
) -> _Change:
    async def make(client: HerderClient, name: str, _: StateWait) -> _Made:
        reply = await client.call(pick, request(request_id=new_request_id(), name=name))
        document = {"result": verb, **views.connector(reply.connector)}
        return document, f"connector [bold]{escape(name)}[/] {verb}", Floors()

    return _Change(verb, make, WaitState.READY)


def _change_all(
    selection: ConnectorSelection,
    change: _Change,
    wait: WaitState | None,
    timeout: str,
    herder: str | None,
    output: Format,
) -> None:
    state = change.ready if wait is WaitState.READY else wait

    async def work(client: HerderClient) -> None:
        waiting = wait_of(state, timeout)
        names = await selection.resolve(client, allow_missing=change.allows_missing, check_one=change.asks)
        if not names and not output.is_document:
            err.print("no connector is selected; nothing was changed")
        if change.asks and names:
            confirm("delete", f"Delete {_named(names)}?")
        if change.remembers:
            await waiting.remember(client, names)

        if change.make_many is not None and len(names) > 1:
            sent = await change.make_many(client, names)
        else:
            sent = BatchOutcomes(
                await bounded.run_all(
                    names,
                    lambda name: change.make(client, name, waiting),
                    show=lambda made: out.print(made[1]) if not output.is_document else None,
                )
            )
        made = {outcome.item: outcome.result for outcome in sent.outcomes if outcome.result is not None}
        errors = sent.failed
        if sent.interrupted is None:
            errors += (await waiting.until(client, {name: floors for name, (_, _, floors) in made.items()})).items()
        results = [document for document, _, _ in made.values()]
        error = sent.interrupted or _one_error(errors, change.verb, len(names))
        end_with(output, results, error, as_list=not selection.is_one_name)

    with_herder(output, herder, work)


def _named(names: list[str]) -> str:
    if len(names) == 1:
        return f"connector {names[0]}"
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{len(names)} connectors ({', '.join(names[:_NAMED_MAX])}{more})"


def _one_error(errors: list[tuple[str, CommandError]], verb: str, count: int) -> CommandError | None:
    """The error of a command with several connectors; None when all went well."""
    if not errors:
        return None
    first = errors[0][1]
    if count == 1:
        return first
    fields = tuple((name, error.message) for name, error in errors)
    text = f"{len(errors)} of {count} connectors were not {verb} as wanted; the others were"
    return CommandError(first.reason, text, first.next_step, first.exit_code, fields)
