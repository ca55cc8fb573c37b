"""`herd`: all commands for a user at a terminal, as one application.

Owns the list of commands and the options of the whole program. The words of a command line pass through
`herdmesh.cli.grammar` first.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from herdmesh.cli.commands import (
    apply,
    create,
    demo,
    describe,
    dlq,
    doctor,
    drain,
    get,
    history,
    lifecycle,
    offsets,
    plan,
    plugin,
    run,
    set_logger,
    transform,
    up,
    version,
    watch,
)
from herdmesh.cli.commands import context as context_command
from herdmesh.cli.commands.changes import diff, edit
from herdmesh.cli.commands.data import consume, example, produce, topics
from herdmesh.cli.commands.observe import events, logs, top
from herdmesh.cli.display.output import out
from herdmesh.cli.grammar import HerdRoot, prepare
from herdmesh.cli.mesh import contexts
from herdmesh.cli.mesh.client import choose_patience_s
from herdmesh.cli.times import duration
from herdmesh.rpc.monitoring import tracing

app = typer.Typer(
    name="herd",
    cls=HerdRoot,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Move data between Kafka and everything else.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(version.client_text())
        raise typer.Exit


@app.callback()
def _options(
    no_headers: Annotated[
        bool, typer.Option("--no-headers", help="Leave out the line of column names of tables and of -o csv.")
    ] = False,
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Use the mesh of this context. `herd context list` shows them.",
            autocompletion=context_command.names,
        ),
    ] = "",
    show_version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version of herd."),
    ] = False,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Begin a trace and print its id: whatever the services do because of this command is a part of it, "
            "down to the first batches of its tasks, where they export spans (OTEL_EXPORTER_OTLP_ENDPOINT). If "
            "TRACEPARENT names a trace, the command continues that one.",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=duration,
            help="Longest wait for a leading herder, as 30s or 2m. Default: HERDMESH_TIMEOUT, else 10s.",
        ),
    ] = None,
) -> None:
    """Move data between Kafka and everything else.

    These options may stand anywhere on the line. --herder and -o may stand before the command too.
    """
    out.headers = not no_headers
    contexts.select(context)
    choose_patience_s(timeout)
    if trace:
        traceparent = os.environ.get(tracing.TRACEPARENT_ENV, "")
        if not tracing.is_traceparent(traceparent):
            traceparent = os.environ[tracing.TRACEPARENT_ENV] = tracing.new_traceparent()
        typer.echo(f"trace {traceparent.split('-')[1]}", err=True)


app.command()(up.up)
app.command()(up.down)
app.command()(up.paths)
app.command("run")(run.run_standalone)
app.command()(apply.apply)
app.command()(create.create)
app.command()(create.patch)
app.add_typer(get.get_app, name="get")
app.add_typer(describe.describe_app, name="describe")
app.command()(apply.validate)
app.command()(plan.plan)
app.command()(diff.diff)
app.command()(edit.edit)
app.command()(transform.transform)
app.command()(history.history)
app.command()(history.restore)
app.command()(lifecycle.pause)
app.command()(lifecycle.resume)
app.command()(lifecycle.stop)
app.command()(lifecycle.restart)
app.command()(lifecycle.delete)
app.add_typer(drain.drain_app, name="drain")
app.add_typer(drain.undrain_app, name="undrain")
app.command()(set_logger.set_logger)
app.add_typer(topics.topics_app, name="topics")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(dlq.dlq_app, name="dlq")
app.add_typer(offsets.offsets_app, name="offsets")
app.command()(watch.watch)
app.command()(doctor.doctor)
app.command()(top.top)
app.command()(events.events)
app.add_typer(logs.logs_app, name="logs")
app.command()(demo.demo)
app.add_typer(example.example_app, name="example")
app.command()(version.version)
app.add_typer(plugin.plugin_app, name="plugin")
app.add_typer(context_command.context_app, name="context")


@app.command("help")
def show_help(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The words of a command.")] = None,
) -> None:
    """Show the help of a command; the same as its -h."""
    context.find_root().command.main([*(command or ()), "--help"], prog_name="herd")


prepare(app)
