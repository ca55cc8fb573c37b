"""`herd`: all commands for a user at a terminal, as one application. Owns the list of commands."""

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
from herdmesh.cli.commands.data import consume, example, produce, topics
from herdmesh.rpc import tracing

app = typer.Typer(
    name="herd",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Move data between Kafka and everything else.",
)


@app.callback()
def _options(
    trace: Annotated[
        bool,
        typer.Option(
            "--trace",
            help="Begin a trace and print its id: whatever the services do because of this command is a part of it, "
            "down to the first batches of its tasks, where they export spans (OTEL_EXPORTER_OTLP_ENDPOINT). A trace "
            "that "
            "TRACEPARENT names is gone on with.",
        ),
    ] = False,
) -> None:
    """Move data between Kafka and everything else."""
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
app.command()(demo.demo)
app.add_typer(example.example_app, name="example")
app.command()(version.version)
app.add_typer(plugin.plugin_app, name="plugin")
