"""Screens: what a command prints for a mesh, at any width.

Owns the recording of one run of a command, and its repetition on consoles of other widths. The command, its views and
its output are the real ones; only the calls of services are answered by a `ShownMesh`. Invariant: one run gives all
widths, the pipe and the screen without colours.
"""

from __future__ import annotations

import copy
import io
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest
from rich.color import ColorSystem
from rich.console import Group
from typer.testing import CliRunner

from cli.tests.cli import shown_mesh
from cli.tests.cli.shown_mesh import NOW, ShownClient, ShownMesh
from herdmesh.cli.app import app
from herdmesh.cli.display import output
from herdmesh.cli.display.output import OutputConsole
from herdmesh.cli.display.tables import PIPE_WIDTH, ScreenTable
from herdmesh.rpc.errors import Unreachable

WIDTHS = (40, 80, 120, 200)
Printed = list[tuple[tuple[Any, ...], dict[str, Any]]]


class _FixedTime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(NOW.timestamp(), tz)


class _Answers:
    """The calls of stores and workers by address."""

    def __init__(self, mesh: ShownMesh) -> None:
        self._mesh = mesh

    @asynccontextmanager
    async def connect(self, address: str, *_: Any) -> AsyncGenerator[str]:
        yield address

    async def store_status(self, address: str, store: str, timeout_s: float) -> Any:
        found = self._mesh.stores[address]
        if found is None:
            raise Unreachable("failed to connect to all addresses: Connection refused")
        return found

    async def worker_status(self, address: str) -> Any:
        if address not in self._mesh.usage:
            raise Unreachable("failed to connect to all addresses: No route to host")
        reply = copy.deepcopy(self._mesh.usage[address])
        is_last = address == [*self._mesh.usage][-1]
        reply.report_time.FromNanoseconds(int(1e9 * (time.time() + is_last * self._mesh.clock_skew_s)))
        return reply


def use(mesh: ShownMesh, patch: pytest.MonkeyPatch) -> None:
    """Have the commands read this mesh."""
    answers = _Answers(mesh)

    class WorkerStub:
        def __init__(self, address: str) -> None:
            self._address = address

        async def GetWorkerStatus(self, request: Any, timeout: float) -> Any:
            return await answers.worker_status(self._address)

    class Calls:
        def __init__(self) -> None:
            self.silent: dict[str, str] = {}
            self._samples = 0

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *exception: object) -> None:
            pass

        async def call_all(self, workers: Sequence[Any], method: str, request: Any) -> Any:
            self._samples += 1
            found: list[Any] = []
            for worker in workers:
                if worker["worker_id"] not in mesh.usage:
                    self.silent[worker["worker_id"]] = "failed to connect to all addresses: No route to host"
                    continue
                reply = copy.deepcopy(mesh.usage[worker["worker_id"]])
                reply.report_time.FromSeconds(int(NOW.timestamp()) + self._samples)
                for one in (reply.own, *(run.usage for run in reply.runs)):
                    one.cpu_ms *= self._samples
                found.append((worker, reply))
            return found

    async def no_wait(_: float) -> None:
        pass

    def answer(value: Callable[[], Any]) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            return value()

        return call

    commands = "herdmesh.cli.commands"
    for place in ("herdmesh.cli.runner", "herdmesh.cli.doctor.examination"):
        patch.setattr(f"{place}.HerderClient", answer(lambda: ShownClient(mesh)))
    patch.setattr("herdmesh.cli.runner.guard", answer(lambda: None))
    for name in ("connect", "store_status"):
        patch.setattr(f"herdmesh.cli.doctor.examination.{name}", getattr(answers, name))
    patch.setattr("herdmesh.cli.doctor.examination.worker_grpc.WorkerServiceStub", WorkerStub)
    patch.setattr("herdmesh.cli.doctor.examination._stack_of", answer(lambda: mesh.stack))
    patch.setattr("herdmesh.cli.doctor.examination.version", answer(lambda: shown_mesh.RELEASE))
    patch.setattr("herdmesh.cli.doctor.machine.cluster_health", answer(lambda: mesh.kafka))
    patch.setattr(f"{commands}.observe.top.WorkerCalls", Calls)
    patch.setattr(f"{commands}.observe.top.asyncio.sleep", no_wait)
    for place in ("history", "observe.events"):
        patch.setattr(f"{commands}.{place}.history_entries", answer(lambda: shown_mesh.history_of(mesh)))
    patch.setattr("herdmesh.cli.kafka.topics.list_all", answer(lambda: mesh.topics))
    patch.setattr("herdmesh.cli.kafka.topics.describe", answer(lambda: shown_mesh.described_topic(mesh)))
    patch.setattr("herdmesh.cli.kafka.access.find_kafka", answer(lambda: None))
    patch.setattr("herdmesh.cli.kafka.admin.KafkaAdmin", answer(lambda: None))
    for place in ("herdmesh.cli.display.output", f"{commands}.dlq", "herdmesh.cli.doctor.units"):
        patch.setattr(f"{place}.datetime", _FixedTime)


@contextmanager
def _recorded(printed: Printed) -> Generator[None]:
    def record(*objects: Any, **options: Any) -> None:
        printed.append((objects, options))

    with pytest.MonkeyPatch.context() as patch:
        for console in (output.out, output.err):
            patch.setattr(console, "print", record)
        yield


def run(*arguments: str) -> Printed:
    """Run a command once; returns what it printed, standard error included, in its order."""
    printed: Printed = []
    with _recorded(printed):
        done = CliRunner().invoke(app, [*arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert printed, done.output
    return printed


def screen(printed: Printed, width: int | None, *, colours: bool = False) -> str:
    """The text at a width; None = in a pipe."""
    console = OutputConsole(io.StringIO())
    console._force_terminal, console.file = width is not None, io.StringIO()  # pyright: ignore[reportPrivateUsage]
    console.width = width or PIPE_WIDTH
    console._color_system = ColorSystem.STANDARD if colours else None  # pyright: ignore[reportPrivateUsage]
    for objects, options in printed:
        console.print(*(_fresh(one) for one in objects), **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _fresh(printed: Any) -> Any:
    """A table without the layout that it had at another width."""
    if isinstance(printed, ScreenTable):
        return ScreenTable(printed.title, printed.columns, printed.rows)
    if isinstance(printed, Group):
        return Group(*map(_fresh, printed.renderables))
    return printed


def config_file(folder: Path) -> str:
    """A file that changes orders-to-warehouse."""
    path = folder / "orders.json"
    path.write_text(
        '{"name": "orders-to-warehouse", "config": {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", '
        '"connection.url": "jdbc:postgresql://db2.prod.internal:5432/shop?sslmode=verify-full&ApplicationName=x", '
        '"connection.password": "${file:/etc/herdmesh/secrets.properties:password2}", "tasks.max": "3", '
        '"topics": "orders.eu-central-1.v3", "errors.deadletterqueue.topic.name": "orders.dead-letters"}}'
    )
    return str(path)
