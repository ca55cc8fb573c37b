"""The demo itself, step by step.

Owns the steps: start, load, apply, kill a working worker, wait until all records are read, count. Uses the same stack,
client and config format as any user. Invariant: it succeeds only if every loaded id is in the Parquet exactly once.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.demo import flights, folder
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board
from herdmesh.cli.display.output import Format, OutputConsole, count, err, out, print_document, table
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.stop_signals import end_or_signal, stop_on_signals
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.left_behind import stop_left_behind
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.rpc.process import EXIT_FORCED
from herdmesh.rpc.request_ids import new_request_id

_REFRESH_S = 0.1
_TIMEOUT_S = 170.0


@dataclass(slots=True)
class Outcome:
    """The measurements of the demo."""

    loaded: int = 0
    rows: int = 0
    distinct_ids: int = 0
    take_over_s: float = 0.0
    sink_s: float = 0.0

    @property
    def exact(self) -> bool:
        return self.loaded > 0 and self.rows == self.loaded == self.distinct_ids

    @property
    def records_per_second(self) -> int:
        """From the apply to lag 0, the kill included."""
        return round(self.loaded / self.sink_s) if self.sink_s else 0

    def document(self) -> dict[str, Any]:
        """The measurements for programs."""
        return {
            "result": "exact" if self.exact else "different",
            "loaded": self.loaded,
            "rows": self.rows,
            "distinct_ids": self.distinct_ids,
            "take_over_s": round(self.take_over_s, 3),
            "records_per_second": self.records_per_second,
        }


class Demo:
    """One run of the demo in `data_dir`, which is emptied first."""

    def __init__(self, data_dir: Path, screen: OutputConsole = out) -> None:
        """`screen` is where the steps are shown: standard output has only the document in formats for programs."""
        self.screen = screen
        self.data_dir = data_dir.resolve()
        self.folder = self.data_dir / folder.PARQUET
        self.stack = Stack(StackSettings(self.data_dir / folder.STACK, workers=2))
        self.has_begun = False
        """True once the files in `data_dir` are this demo's."""
        self.board = Board()
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """Run all steps and stop the stack in any case. Raises `DevstackError` or `CommandError` when a step fails,
        `StackAlreadyRunning` when another demo runs in this folder.
        """
        await stop_left_behind(self.stack.layout, os.getpid())  # of a demo that was killed
        await asyncio.to_thread(folder.empty, self.data_dir)
        self.has_begun = True
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._start()
                await self._load_first()
                await self._sink_under_fire()
                await self._read_back()
        except TimeoutError:
            raise DevstackError(
                f"the demo did not finish within {_TIMEOUT_S:g} s; logs: {self.stack.layout.logs_dir}"
            ) from None
        finally:
            with self.screen.status("stopping all in order"):
                await self.stack.stop()
        return self.outcome

    async def _start(self) -> None:
        started_s = time.monotonic()
        with self.screen.status("starting Kafka, config store, status store, herder and two workers with Spark"):
            await self.stack.start()
        self.screen.print(f"[green]1[/] everything serves after {time.monotonic() - started_s:.1f} s")

    async def _load_first(self) -> None:
        bootstrap = self.stack.state.bootstrap_servers
        await asyncio.to_thread(flights.create_topic, bootstrap)
        columns = (TextColumn("  loading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.screen, transient=True) as bar:
            task = bar.add_task("flights", total=flights.ROWS)
            await self._load(partial(bar.advance, task))
        self.screen.print(f"[green]2[/] {count(self.outcome.loaded)} flights in topic {flights.TOPIC}")

    async def _load(self, progress: Callable[[int], None]) -> None:
        bootstrap = self.stack.state.bootstrap_servers
        self.outcome.loaded += await asyncio.to_thread(flights.load, bootstrap, self.outcome.loaded, progress)

    async def _sink_under_fire(self) -> None:
        connector = json.loads((importlib.resources.files("herdmesh.cli.demo") / "flights-parquet.json").read_text())
        name: str = connector["name"]
        config: dict[str, Any] = {**connector["config"], "directory": str(self.folder)}
        following = asyncio.create_task(self.board.follow(self.stack.state.herder))
        loading: asyncio.Task[None] | None = None
        headline = Text(f"applying {name}: a Parquet sink with 2 tasks and 3 transformations")
        self.screen.print("[green]3[/] herd apply -f flights-parquet.json")
        self.screen.print(json.dumps(connector, indent=2), markup=False, soft_wrap=True)
        victim: views.Json | None = None
        killed_s = 0.0
        try:
            async with HerderClient(self.stack.state.herder) as client:
                request = messages.UpdateConnectorRequest(
                    request_id=new_request_id(), name=name, config=to_properties(config), allow_missing=True
                )
                await client.call(lambda stub: stub.UpdateConnector, request)
            applied_s = time.monotonic()
            lag = asyncio.create_task(self._watch_lag(f"connect-{name}"))
            with Live(self._picture(headline), console=self.screen, auto_refresh=False, transient=True) as live:
                while True:
                    shown = self.board.connectors.get(name)
                    if victim is None and shown is not None and (working := _working_task(shown)) is not None:
                        victim, killed_s = working, time.monotonic()
                        self._kill_worker(victim["worker_id"])
                        headline = Text(
                            f"SIGKILL to {victim['worker_id']} while it runs task {victim['id']}", style="bold red"
                        )
                    elif victim is None and self._lag == 0 and (loading is None or loading.done()):
                        # The sink was faster than this watch: load more flights with new ids, so that the kill
                        # interrupts work.
                        loading = asyncio.create_task(self._load(_unseen))
                    if (
                        victim is not None
                        and not self.outcome.take_over_s
                        and shown is not None
                        and _taken_over(shown, victim)
                    ):
                        self.outcome.take_over_s = time.monotonic() - killed_s
                        headline = Text(
                            f"taken over {self.outcome.take_over_s:.2f} s after the kill", style="bold green"
                        )
                    loaded = loading is None or loading.done()
                    if self.outcome.take_over_s and loaded and self._lag == 0:
                        break
                    live.update(self._picture(headline), refresh=True)
                    await asyncio.sleep(_REFRESH_S)
            self.outcome.sink_s = time.monotonic() - applied_s
            lag.cancel()
        finally:
            following.cancel()
        assert victim is not None
        self.screen.print(
            f"[green]4[/] worker {victim['worker_id']} was killed (SIGKILL) while it ran task {victim['id']}; "
            f"the task ran elsewhere {self.outcome.take_over_s:.2f} s later",
            soft_wrap=True,
        )

    _lag: int = -1

    async def _watch_lag(self, group: str) -> None:
        lag = flights.Lag(self.stack.state.bootstrap_servers, group)
        try:
            while True:
                self._lag = await asyncio.to_thread(lag.records)
                await asyncio.sleep(_REFRESH_S)
        finally:
            lag.close()

    def _kill_worker(self, worker_id: str) -> None:
        for service in self.stack.state.services:
            if service.address == worker_id and service.mark is not None:
                os.kill(service.mark.pid, signal.SIGKILL)
                return
        raise DevstackError(f"no worker of this stack is {worker_id}")

    def _picture(self, headline: Text) -> RenderableType:
        lag = Text(f"lag {count(self._lag)} records" if self._lag >= 0 else "lag unknown")
        return Group(headline, lag, Text(), self.board.render())

    async def _read_back(self) -> None:
        temporary = self.data_dir / "tmp"
        temporary.mkdir()
        with self.screen.status("reading the Parquet back with Spark"):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "herdmesh.cli.demo.read_back", str(self.folder)),
                env={**os.environ, "TMPDIR": str(temporary)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            stdout, stderr = await process.communicate()
        shutil.rmtree(temporary, ignore_errors=True)
        if process.returncode != 0:
            raise DevstackError(f"Spark could not read {self.folder}:\n{stderr.decode(errors='replace')[-2000:]}")
        found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
        self.outcome.rows, self.outcome.distinct_ids = found["rows"], found["distinct_ids"]
        self.screen.print(
            f"[green]5[/] Spark reads {count(self.outcome.rows)} rows, {count(self.outcome.distinct_ids)} distinct ids:"
        )
        sample: list[dict[str, Any]] = found["sample"]
        rows = [["null" if cell is None else str(cell) for cell in row.values()] for row in sample]
        self.screen.print(table(None, tuple(sample[0]) if sample else (), rows))


def _unseen(_written: int) -> None:
    """Progress callback of a load that is not displayed."""


def _working_task(connector: views.Json) -> views.Json | None:
    """A task whose run moves records now and has more to read, once all tasks run."""
    tasks: list[views.Json] = connector["tasks"]
    if not tasks or any(task["state"] != "RUNNING" for task in tasks):
        return None
    for task in tasks:
        moved: views.Json = task.get("progress", {})
        if (
            moved.get("activity") == "RUNNING"
            and moved.get("records_in", 0) > 0
            and (moved.get("behind_records") or 0) > 0
        ):
            return task
    return None


def _taken_over(connector: views.Json, victim: views.Json) -> bool:
    """True when the victim's task runs under a newer generation."""
    return any(
        task["id"] == victim["id"] and task["state"] == "RUNNING" and task["generation"] > victim["generation"]
        for task in connector["tasks"]
    )


async def _end(demo: Demo, running: asyncio.Task[Outcome], forced: asyncio.Event) -> None:
    """End the demo in order; a second signal ends all its processes at once."""
    running.cancel()
    if not await end_or_signal(running, forced):
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await demo.stack.kill()
    await asyncio.gather(running, return_exceptions=True)


async def show(data_dir: Path, output: Format, *, keep: bool) -> int:
    """Run the demo and print its verdict. Returns the exit code: 0 when every id is there exactly once.

    The demo's files are removed unless `keep`; when it fails they stay, for its logs.
    """
    forced = asyncio.Event()
    interrupted = stop_on_signals(forced.set)
    screen = err if output.is_document else out
    demo = Demo(data_dir, screen)
    failed = True
    running = asyncio.create_task(demo.run())
    try:
        if not await end_or_signal(running, interrupted):
            failed = False
            screen.print("stopping in order; Ctrl-C again ends all at once", style="dim")
            await _end(demo, running, forced)
            return EXIT_FORCED
        outcome = running.result()
        failed = not outcome.exact
        if output.is_document:
            print_document(output, {**outcome.document(), "folder": str(demo.data_dir) if keep or failed else None})
        else:
            _print_verdict(outcome)
        return int(failed)
    finally:
        if demo.has_begun:
            lines = folder.kept(demo.data_dir) if keep or failed else [folder.remove(demo.data_dir)]
            for line in lines:
                screen.print(line, markup=False, style="dim", soft_wrap=True)


def _print_verdict(outcome: Outcome) -> None:
    out.print(
        table(
            None,
            ("", ""),
            [
                ["loaded", count(outcome.loaded)],
                ["rows", count(outcome.rows)],
                ["distinct ids", count(outcome.distinct_ids)],
                ["take-over", f"{outcome.take_over_s:.2f} s"],
                ["rate", f"{count(outcome.records_per_second)} records/s from apply to lag 0, the kill included"],
            ],
        )
    )
    if outcome.exact:
        out.print("[bold green]nothing lost, nothing doubled[/]")
    else:
        out.print("[bold red]rows and ids differ from what was loaded[/]")
