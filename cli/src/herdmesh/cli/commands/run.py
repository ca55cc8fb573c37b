"""`herd run`: Connect's standalone mode, with Connect's own files.

Owns the command: reading the files, reporting their errors, creating the connectors in the given order, and lines of
progress. The process itself is `herdmesh.standalone`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import to_properties
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board
from herdmesh.cli.display.connector_lines import ConnectorLines
from herdmesh.cli.display.output import Format, err, error_document, out, print_line
from herdmesh.cli.errors import EXIT_INTERNAL, EXIT_UNAVAILABLE, EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import PATIENCE_S, HerderClient
from herdmesh.cli.mesh.contexts import SERVICES
from herdmesh.cli.runner import OutputOption, run
from herdmesh.cli.stop_signals import stop_on_signals
from herdmesh.devstack.errors import AccessUnusable
from herdmesh.devstack.ports import refusal_to_listen
from herdmesh.devstack.readiness import broker_count
from herdmesh.rpc import gc_at_import
from herdmesh.rpc.monitoring.resource import name_process
from herdmesh.rpc.process import EXIT_FORCED, configure_logging, log_identity
from herdmesh.rpc.request_ids import new_request_id
from herdmesh.standalone.errors import BadFiles, PartEnded, Problem
from herdmesh.standalone.files import ConnectorFile, not_latin, read_connectors, read_properties

if TYPE_CHECKING:
    from herdmesh.standalone.process import Addresses
    from herdmesh.standalone.worker_properties import WorkerPlan

_EXIT_CONFIG: Final = 5
_LOG_LEVEL = "HERDMESH_LOG_LEVEL"


def run_standalone(
    worker: Annotated[str, typer.Argument(metavar="WORKER.properties", help="Connect's worker file.")],
    connectors: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONNECTOR.properties|CONNECTOR.json]...", help="Connector files, one connector each."),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where the gRPC API listens; port 0 = any free one.")
    ] = SERVICES["herder"][1],
    log_level: Annotated[
        str, typer.Option("--log-level", envvar=_LOG_LEVEL, help="debug, info, warning or error; logs go to stderr.")
    ] = "warning",
    output: OutputOption = Format.TABLE,
) -> None:
    """Run connectors in this one process, as connect-standalone.sh does; Ctrl-C stops in order and keeps offsets."""
    if not listen.rpartition(":")[2].isdecimal():
        raise typer.BadParameter(f"{listen} is not HOST:PORT", param_hint="--listen")

    async def work() -> None:
        plan, files = _read(worker, connectors or (), output)
        standalone = _services()
        problems = standalone.invalid_connectors(plan, files)
        if problems:
            raise _refused("CONFIG_INVALID", problems, _EXIT_CONFIG)
        os.environ[_LOG_LEVEL] = log_level  # for the processes of the runs
        name_process("herdmesh.standalone")
        configure_logging(log_level)
        log_identity()
        _refuse_a_taken_port(listen)
        stop = stop_on_signals(_end_at_once)
        plan = dataclasses.replace(plan, brokers=await until_kafka_serves(plan, stop))
        show = _Progress(output)
        show.note(standalone.dead_letter_note(plan))
        ready: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(standalone.serve(plan, listen, stop, ready.set_result))
        starting = asyncio.create_task(_create_all(ready, files, show))
        try:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and starting.exception() is not None:
                stop.set()
            await serving
            if starting.done():
                starting.result()
        except PartEnded as ended:
            raise CommandError("STANDALONE", str(ended), exit_code=EXIT_INTERNAL) from None
        finally:
            starting.cancel()
            show.close()
            await asyncio.gather(starting, return_exceptions=True)
        show.say("stopped", {"event": "stopped"})

    async def work_told() -> None:
        try:
            await work()
        except CommandError as error:
            if not output.has_errors:
                raise
            print_line(output, error_document(error))  # it ends a stream, so it is one line of the stream
            raise typer.Exit(error.exit_code) from None

    run(output, work_told)


def _services() -> ModuleType:
    """`herdmesh.standalone.process`, which needs services that are not installed with every `herd`."""
    try:
        import herdmesh.standalone.process as process
    except ImportError as error:
        message = f"`herd run` needs all services in this environment, and {error.name} is missing"
        raise CommandError("USAGE", message, "Install herdmesh-cli[standalone].", EXIT_USAGE) from None
    gc_at_import.over()
    return process


async def until_kafka_serves(plan: WorkerPlan, stop: asyncio.Event) -> int:
    """Wait for a broker: Connect does not start without one either. Returns the number of brokers in the cluster, 0
    after `stop`. Raises CommandError after `PATIENCE_S`, with the client's last message.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + PATIENCE_S
    said: deque[str] = deque(maxlen=1)
    servers = plan.bootstrap_servers
    while not stop.is_set():
        if brokers := await _brokers(plan, said):
            return brokers
        if loop.time() > deadline_s:
            why = f": {said[0]}" if said else ""
            raise CommandError(
                "UNREACHABLE",
                f"no broker answers at {servers} (bootstrap.servers){why}",
                "Start Kafka, or correct the address, security.protocol, ssl.* and sasl.* of the worker file.",
                EXIT_UNAVAILABLE,
            )
    return 0


async def _brokers(plan: WorkerPlan, said: deque[str]) -> int:
    try:
        return await asyncio.to_thread(broker_count, plan.bootstrap_servers, plan.access, said.append)
    except AccessUnusable as error:
        message = f"the worker file's settings of TLS and login cannot be used: {error}"
        raise CommandError("USAGE", message, "Correct its security.protocol, ssl.* and sasl.*.", EXIT_USAGE) from None


class _Progress:
    """The progress for a user while connectors start and run: one line for each change of a connector's state."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._lines = ConnectorLines()
        self._following: asyncio.Task[None] | None = None

    def say(self, text: str, document: views.Json) -> None:
        if self._output.is_document:
            print_line(self._output, document)
        else:
            out.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a deviation from Connect's defaults; nothing for an empty text."""
        if text and self._output.is_document:
            print_line(self._output, {"event": "note", "message": text})
        elif text:
            err.print(f"[yellow]note[/] {escape(text)}", soft_wrap=True)

    def warn(self, warning: Problem) -> None:
        """Print a setting that is accepted but does not have its effect."""
        _warn(warning, self._output)

    def follow(self, address: str) -> None:
        """Print every connector's changes from now on."""
        self._following = asyncio.create_task(Board().follow(address, self._changed))

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()

    def _changed(self, name: str, connector: views.Json | None) -> None:
        change = self._lines.change(name, connector)
        if change is not None:
            self.say(*change)


def _read(worker: str, connectors: Sequence[str], output: Format) -> tuple[WorkerPlan, list[ConnectorFile]]:
    """The content of all files; prints the warnings. Raises CommandError with all errors."""
    # The module knows converters and all their options: its import takes half the start time of any command.
    from herdmesh.standalone.worker_properties import plan_worker

    try:
        plan = plan_worker(worker, read_properties(worker))
        files = read_connectors(connectors)
    except BadFiles as bad:
        raise _refused("USAGE", bad.problems, EXIT_USAGE) from None
    paths = [worker, *(one.path for one in files if one.lines)]
    for warning in (*plan.warnings, *filter(None, map(not_latin, paths))):
        _warn(warning, output)
    return plan, files


def _warn(warning: Problem, output: Format) -> None:
    if not output.is_document:
        err.print(f"[yellow]warning[/] {escape(warning.place)}: {escape(warning.message)}", soft_wrap=True)
    else:
        print_line(output, {"event": "warning", "place": warning.place, "message": warning.message})


def _refused(reason: str, problems: Sequence[Problem], exit_code: int) -> CommandError:
    paths = list(dict.fromkeys(one.path for one in problems))
    fields = tuple((one.place, one.message) for one in problems)
    message = f"nothing was started: {', '.join(paths)} cannot be run"
    return CommandError(reason, message, "Correct the errors named above and run again.", exit_code, fields)


def listening_text(served: Addresses) -> str:
    """The first lines that `herd run` prints: the addresses of the API and of the stores."""
    return (
        f"the gRPC API listens on {served.api}; Ctrl-C stops\n"
        f"history and restore take --config-store {served.config_store}, doctor also "
        f"--status-store {served.status_store}"
    )


async def _create_all(ready: asyncio.Future[Addresses], files: Sequence[ConnectorFile], show: _Progress) -> None:
    served = await ready
    stores: views.Json = {"config_store": served.config_store, "status_store": served.status_store}
    show.say(listening_text(served), {"event": "listening", "address": served.api, **stores, "pid": os.getpid()})
    show.follow(served.api)
    async with HerderClient(served.api) as client:
        for one in files:
            request = messages.CreateConnectorRequest(
                request_id=new_request_id(),
                name=one.name,
                config=to_properties(dict(one.config)),
                initial_state=common.TargetState.Value(f"TARGET_STATE_{one.initial_state}"),
            )
            try:
                reply = await client.call(lambda stub: stub.CreateConnector, request)
            except CommandError as error:
                fields = tuple((one.problem(key, "").place, text) for key, text in error.fields)
                raise CommandError(
                    error.reason, f"{one.path}: {error.message}", error.next_step, error.exit_code, fields
                ) from None
            for warning in reply.warnings:
                show.warn(one.problem(warning.name, warning.message))


def _refuse_a_taken_port(listen: str) -> None:
    """Raises CommandError before Spark starts, which takes seconds. Another process can still take the port meanwhile:
    the herder then reports it.
    """
    host, _, port = listen.rpartition(":")
    refusal = refusal_to_listen(host, int(port))
    if refusal:
        raise CommandError(
            "STANDALONE",
            f"the gRPC API cannot listen on {listen}: {refusal}",
            "End that process, or choose another port with --listen HOST:PORT; port 0 is any free one.",
            EXIT_INTERNAL,
        )


def _end_at_once() -> None:
    err.print("stopped by force; uncommitted work is repeated at the next start", style="yellow")
    os._exit(EXIT_FORCED)
