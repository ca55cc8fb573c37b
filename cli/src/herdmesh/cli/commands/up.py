"""`herd up`, `herd down` and `herd paths`: the whole mesh on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.cli.display.board import render_services
from herdmesh.cli.display.output import Format, out, print_document
from herdmesh.cli.display.stack_view import StackView, StartProgress, view_of, where_lines
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh import contexts, stack_context
from herdmesh.cli.mesh.stack_context import StackContext
from herdmesh.cli.runner import DATA_DIR, DataOption, OutputOption, run, tell_wait
from herdmesh.cli.stop_signals import end_or_signal, stop_on_signals
from herdmesh.devstack.errors import DataFolderGone
from herdmesh.devstack.jars import cache_dir
from herdmesh.devstack.layout import StackLayout, StackState
from herdmesh.devstack.left_behind import kill_stack
from herdmesh.devstack.stack import GROUP_DEFAULT, Stack
from herdmesh.devstack.supervisor import DetachedSettings, start_detached, stop_detached
from herdmesh.rpc.process import EXIT_FORCED

_REFRESH_S = 0.25
_STILL_STOPPING = "stopping in order; Ctrl-C again ends all at once"
_INTERRUPTED = "the start was interrupted, and everything that it had started is stopped"
_FORCED = "stopped by force; uncommitted work is repeated at the next start"


def up(
    workers: Annotated[int, typer.Option("--workers", min=1, metavar="N", help="Number of workers.")] = 1,
    herders: Annotated[int, typer.Option("--herders", min=1, metavar="N", help="Number of herders; one leads.")] = 1,
    store_replicas: Annotated[
        int,
        typer.Option(
            "--store-replicas", min=1, metavar="N", help="Number of replicas of each store; one of each writes."
        ),
    ] = 1,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers", metavar="HOST:PORT,...", help="Use this Kafka cluster; no broker is started then."
        ),
    ] = "",
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Properties file with security.protocol, ssl.* and sasl.* for --bootstrap-servers, as Kafka's own "
            "tools take it.",
        ),
    ] = None,
    group_id: Annotated[
        str,
        typer.Option(
            "--group-id",
            metavar="NAME",
            help="Name of the mesh in the Kafka cluster. Its topics are NAME-configs, NAME-status and NAME-offsets; "
            "those of connect-cluster are connect-configs, connect-status and connect-offsets.",
        ),
    ] = GROUP_DEFAULT,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when all services serve.")] = False,
    data: DataOption = DATA_DIR,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start broker, stores, herder and workers; Ctrl-C stops them in order. The data folder keeps everything.

    While it runs, a context named after the folder (or --context NAME) reaches the mesh from every folder.
    """
    settings = DetachedSettings(data, workers, herders, store_replicas, bootstrap_servers, command_config, group_id)

    async def work() -> None:
        if command_config is not None and not bootstrap_servers:
            message = "--command-config is for the Kafka cluster of --bootstrap-servers, which is missing"
            raise CommandError("USAGE", message, "Add --bootstrap-servers HOST:PORT.", EXIT_USAGE)
        stack_context.check(data, contexts.selected())
        await (_detached(settings, output) if detach else _foreground(settings, output))

    run(output, work)


def down(data: DataOption = DATA_DIR, output: OutputOption = Format.TABLE) -> None:
    """Stop in order the processes that `herd up --detach` started, and delete the context of the mesh."""

    async def work() -> None:
        folder = stack_context.data_folder(data)
        stopped = await _stop(StackLayout(folder))
        removed = _forget(folder)
        if output.is_document:
            result = "stopped" if stopped else "not_running"
            print_document(output, {"result": result, "data": str(folder), "context": removed or None})
        elif stopped:
            out.print(f"stopped{f'; context {escape(removed)} is deleted' if removed else ''}", soft_wrap=True)
        else:
            out.print(f"nothing runs in {escape(str(folder.resolve()))}; {escape(_elsewhere())}", soft_wrap=True)

    run(output, work)


def paths(data: DataOption = DATA_DIR, output: OutputOption = Format.TABLE) -> None:
    """List where `herd up` keeps data, logs, state and downloads."""

    async def work() -> None:
        folder = stack_context.data_folder(data)
        found = [*StackLayout(folder).places(), *_of_all_folders()]
        if output.is_document:
            print_document(
                output, [{"path": str(path), "content": content, "exists": path.exists()} for path, content in found]
            )
            return
        width = max(len(str(path)) for path, _ in found)
        for path, content in found:  # never folded: a path is copied
            missing = "" if path.exists() else " [dim](not there yet)[/]"
            out.print(f"{escape(str(path).ljust(width))}  {escape(content)}{missing}", soft_wrap=True)

    run(output, work)


def _of_all_folders() -> list[tuple[Path, str]]:
    return [
        (cache_dir(), "jars of the broker and reserved ports, for all folders"),
        (contexts.contexts_file(), "contexts: the names of meshes, for all folders"),
    ]


def _elsewhere() -> str:
    """The stacks that run in other folders, for somebody who looks for one."""
    try:
        others = stack_context.running()
    except CommandError:  # a damaged contexts file
        others = []
    if not others:
        return "--data DIR names the folder of another `herd up`"
    return "; ".join(f"in {data} a stack runs: `herd down --context {name}` stops it" for name, data in others)


def _name(data: Path) -> StackContext | None:
    """Add the context of a stack that runs. Without a context it runs all the same."""
    try:
        return stack_context.add(data, contexts.selected())
    except CommandError as error:
        tell_wait(f"the stack has no context: {error.message}. {error.next_step}")
        return None


def _forget(data: Path) -> str:
    """Delete the context of a stack that was stopped; returns its name, "" = it had none."""
    try:
        return stack_context.remove(data)
    except CommandError as error:
        tell_wait(f"the context of the stack is not deleted: {error.message}. {error.next_step}")
        return ""


async def _stop(layout: StackLayout) -> bool:
    """Stop what runs in a folder; False when nothing does. The first Ctrl-C changes nothing, for a stop that is left
    halfway leaves processes behind; a second one ends all at once.
    """
    forced = asyncio.Event()
    interrupted = stop_on_signals(forced.set)
    stopping = asyncio.create_task(stop_detached(layout.data_dir))
    if not await end_or_signal(stopping, interrupted):
        tell_wait(_STILL_STOPPING)
        if not await end_or_signal(stopping, forced):
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            await kill_stack(layout)
            raise CommandError("INTERRUPTED", _FORCED, exit_code=EXIT_FORCED)
    return stopping.result()


async def _start_detached(
    settings: DetachedSettings, on_state: Callable[[StackState], None] = lambda _: None
) -> StackState:
    """Start a stack in the background. The first Ctrl-C stops in order what was started, a second one at once."""
    forced = asyncio.Event()
    interrupted = stop_on_signals(forced.set)
    starting = asyncio.create_task(start_detached(settings, on_state))
    if await end_or_signal(starting, interrupted):
        return starting.result()
    tell_wait(_STILL_STOPPING)
    starting.cancel()
    how = _INTERRUPTED
    if not await end_or_signal(starting, forced):
        starting.cancel()
        how = _FORCED
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    raise CommandError("INTERRUPTED", how, exit_code=EXIT_FORCED)


async def _detached(settings: DetachedSettings, output: Format) -> None:
    if output.is_document:
        state = await _start_detached(settings)
        named = _name(settings.data_dir)
        print_document(output, {**asdict(state), "context": named.name if named else None})
        return
    with StartProgress() as progress:
        state = await _start_detached(settings, progress.show)
    named = _name(settings.data_dir)
    out.print(render_services(state))
    out.print()
    for line in where_lines(state, StackLayout(settings.data_dir).data_dir, named.lines() if named else ()):
        out.print(line, soft_wrap=True)
    out.print("`herd down` stops all.")


async def _foreground(settings: DetachedSettings, output: Format) -> None:
    forced = asyncio.Event()
    stop = stop_on_signals(forced.set)
    stack = Stack(settings.of_stack())
    starting = asyncio.create_task(stack.start())
    gone = asyncio.create_task(_stop_without_folder(stack, stop))
    try:
        with view_of(stack, output) as view:
            await _show(stack, view, starting, stop, forced)
    except (OSError, SystemExit) as error:  # the terminal or the pipe (SystemExit, from rich) is closed
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await stack.stop()
        _forget(settings.data_dir)
        message = "all was stopped, because the output of `herd up` was closed"
        raise CommandError("OUTPUT", message, "`herd up --detach` runs without a terminal.") from error
    finally:
        gone.cancel()
    if stack.folder_gone.is_set():
        raise DataFolderGone(stack.layout.data_dir)


async def _stop_without_folder(stack: Stack, stop: asyncio.Event) -> None:
    await stack.folder_gone.wait()
    stop.set()


async def _show(
    stack: Stack, view: StackView, starting: asyncio.Task[None], stop: asyncio.Event, forced: asyncio.Event
) -> None:
    """Show the stack from its start to its end."""
    view.refresh()
    await _first_of(view, starting, stop)
    if not starting.done():
        view.enter("stopping")
        starting.cancel()  # it stops the processes that it started
        await _end(stack, view, starting, forced)
        return
    if starting.exception() is not None:
        view.enter("failed")
        starting.result()
    named = _name(stack.settings.data_dir)
    if named is not None:
        view.name(named)
    view.enter("running")
    await _first_of(view, None, stop)
    view.enter("stopping")
    await _end(stack, view, asyncio.create_task(stack.stop()), forced)
    _forget(stack.settings.data_dir)


async def _end(stack: Stack, view: StackView, ending: asyncio.Task[None], forced: asyncio.Event) -> None:
    """Wait for the end in order. A second Ctrl-C ends all processes and this one at once."""
    await _first_of(view, ending, forced)
    if not ending.done():
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending
        await stack.kill()
        _forget(stack.settings.data_dir)
        view.enter(_FORCED)
        view.__exit__()
        os._exit(EXIT_FORCED)  # a thread may still download jars
    with contextlib.suppress(asyncio.CancelledError):
        ending.result()
    view.enter("stopped")


async def _first_of(view: StackView, task: asyncio.Task[None] | None, event: asyncio.Event) -> None:
    """Refresh the view until the task is done or the event is set."""
    on_event = asyncio.create_task(event.wait())
    waited: set[asyncio.Task[Any]] = {on_event} if task is None else {on_event, task}
    try:
        while not (await asyncio.wait(waited, timeout=_REFRESH_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            view.refresh()
    finally:
        on_event.cancel()
