"""`herd up` and `herd down`: the whole mesh on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from herdmesh.cli.board import Board, render_services
from herdmesh.cli.output import Format, err, out, print_json, print_json_line
from herdmesh.cli.runner import DATA_DIR, DataOption, OutputOption, run
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.devstack.supervisor import start_detached, stop_detached

_REFRESH_S = 0.25


def up(
    workers: Annotated[int, typer.Option("--workers", min=1, metavar="N", help="Number of workers.")] = 1,
    herders: Annotated[int, typer.Option("--herders", min=1, metavar="N", help="Number of herders; one leads.")] = 1,
    store_replicas: Annotated[
        int,
        typer.Option(
            "--store-replicas", min=1, metavar="N", help="Number of replicas of each store; one of each writes."
        ),
    ] = 1,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when all services serve.")] = False,
    data: DataOption = DATA_DIR,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start broker, stores, herder and workers; Ctrl-C stops them in order. The data folder keeps everything."""
    settings = StackSettings(data, workers, herders, store_replicas)
    run(output, lambda: _detached(settings, output) if detach else _foreground(settings, output))


def down(data: DataOption = DATA_DIR, output: OutputOption = Format.TABLE) -> None:
    """Stop in order the processes that `herd up --detach` started."""

    async def work() -> None:
        stopped = await stop_detached(data)
        if output is Format.JSON:
            print_json({"result": "stopped" if stopped else "not_running", "data": str(data)})
        else:
            out.print("stopped" if stopped else f"nothing runs in {data}")

    run(output, work)


async def _detached(settings: StackSettings, output: Format) -> None:
    with contextlib.nullcontext() if output is Format.JSON else err.status("starting broker, stores, herder, workers"):
        state = await start_detached(settings)
    if output is Format.JSON:
        print_json(asdict(state))
        return
    out.print(render_services(state))
    out.print(f"\nKafka serves at {state.bootstrap_servers}, the herder at {state.herder}. `herd down` stops all.")


async def _foreground(settings: StackSettings, output: Format) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    stack = Stack(settings)
    board = Board()
    following: asyncio.Task[None] | None = None
    phase = "starting"

    def picture() -> Group:
        parts = [render_services(stack.state), Text()]
        if stack.state.ready:
            parts += [board.render(), Text()]
        hint = "Ctrl-C stops all in order" if phase == "running" else f"{phase} ..."
        return Group(*parts, Text(hint, style="dim"))

    starting = asyncio.create_task(stack.start())
    live = Live(picture(), console=out, auto_refresh=False) if output is Format.TABLE else None
    with live if live is not None else contextlib.nullcontext():
        while not stopping.is_set():
            if starting.done() and phase == "starting":
                starting.result()
                phase = "running"
                following = asyncio.create_task(board.follow(stack.state.herder))
                if live is None:
                    print_json_line(asdict(stack.state))
            if live is not None:
                live.update(picture(), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _REFRESH_S)
        phase = "stopping"
        if following is not None:
            following.cancel()
        await _finish(stack, starting, live, picture)


async def _finish(stack: Stack, starting: asyncio.Task[None], live: Live | None, picture: Callable[[], Group]) -> None:
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting  # it stops the processes that it had started
        return
    ending = asyncio.create_task(stack.stop())
    while not ending.done():
        await asyncio.wait({ending}, timeout=_REFRESH_S)
        if live is not None:
            live.update(picture(), refresh=True)
    ending.result()
