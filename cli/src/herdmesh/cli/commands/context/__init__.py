"""`herd context`: the user's named meshes, and the one that commands use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.cli.display.output import Format, out, print_document, table
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.contexts import (
    KAFKA_ENV,
    SERVICES,
    Context,
    Contexts,
    MeshTarget,
    find_kafka_target,
    find_target,
)
from herdmesh.cli.runner import OutputOption, run

context_app = typer.Typer(
    no_args_is_help=True, help="Named meshes: add one, choose the one that commands use in every folder."
)


def names(incomplete: str) -> list[str]:
    """Completion of a context's name."""
    try:
        return [name for name in sorted(Contexts.read().named) if name.startswith(incomplete)]
    except CommandError:
        return []


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=names)]


@context_app.command("show")
def show(output: OutputOption = Format.TABLE) -> None:
    """Show which mesh and which Kafka commands use here, and why."""

    async def work() -> None:
        target, kafka = find_target(None), _kafka()
        if output.is_document:
            document = {
                "name": target.name or None,
                "herder": target.address,
                "source": target.source,
                "bootstrap_servers": kafka.address if kafka is not None else None,
                "bootstrap_servers_source": kafka.source if kafka is not None else None,
            }
            print_document(output, document, kind="context")
            return
        out.print(f"{escape(target.text())}: {_why(target)}", soft_wrap=True)
        if kafka is None:
            out.print("Kafka: none is known; --bootstrap-servers names one")
        else:
            out.print(f"Kafka {escape(kafka.text())}: {_why(kafka, KAFKA_ENV)}", soft_wrap=True)

    run(output, work)


@context_app.command("list")
def list_contexts(output: OutputOption = Format.TABLE) -> None:
    """List the contexts; the current one has a star."""

    async def work() -> None:
        contexts = Contexts.read()
        found = [
            {
                "name": name,
                "current": name == contexts.current,
                "herder": one.herder or None,
                "config_store": one.config_store or None,
                "status_store": one.status_store or None,
                "data": one.data or None,
                "bootstrap_servers": one.bootstrap_servers or None,
                "command_config": one.command_config or None,
            }
            for name, one in sorted(contexts.named.items())
        ]
        rows = [
            [
                "*" if one["current"] else "",
                escape(str(one["name"])),
                escape(str(one["data"] or one["herder"])),
                escape(str(one["bootstrap_servers"] or ("of the stack" if one["data"] else "-"))),
            ]
            for one in found
        ]
        if output.is_document:
            print_document(output, found, kind="context")
        elif found:
            out.print(table(None, ("CURRENT", "NAME", "MESH", "KAFKA"), rows))
        else:
            out.print("no contexts yet; `herd context set NAME --herder HOST:PORT` adds one")

    run(output, work)


@context_app.command("set")
def set_context(
    name: NameArgument,
    herder: Annotated[
        str, typer.Option("--herder", metavar="HOST:PORT,...", help="Any herder of the mesh, or several.")
    ] = "",
    config_store: Annotated[
        str, typer.Option("--config-store", metavar="HOST:PORT,...", help="Its config stores, for history and doctor.")
    ] = "",
    status_store: Annotated[
        str, typer.Option("--status-store", metavar="HOST:PORT,...", help="Its status stores, for doctor.")
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Instead of addresses: the data folder of a stack of `herd up`."),
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers", metavar="HOST:PORT,...", help="Its Kafka, for topics, produce, consume and doctor."
        ),
    ] = "",
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Java client properties for that Kafka: security.protocol, sasl.*, ssl.*. The file is read when it is "
            "used.",
        ),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current context too.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Add a context, or replace one."""

    async def work() -> None:
        if bool(herder) == (data is not None):
            raise CommandError("USAGE", "a context needs --herder or --data, and not both", exit_code=EXIT_USAGE)
        contexts = Contexts.read()
        folder = str(data.resolve()) if data is not None else ""
        properties = str(command_config.resolve()) if command_config is not None else ""
        contexts.named[name] = Context(herder, config_store, status_store, folder, bootstrap_servers, properties)
        if use:
            contexts.current = name
        contexts.write()
        _report(output, "set", name, f"context [bold]{escape(name)}[/] is {escape(contexts.named[name].text())}")

    run(output, work)


@context_app.command("use")
def use_context(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the context.", autocompletion=names)] = "",
    none: Annotated[bool, typer.Option("--none", help="Use no context: the stack in ./.herd is used again.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a context the current one: commands in every folder use its mesh."""

    async def work() -> None:
        if bool(name) == none:
            raise CommandError("USAGE", "name a context, or give --none", exit_code=EXIT_USAGE)
        contexts = Contexts.read()
        if name:
            contexts.get(name)
        contexts.current = name
        contexts.write()
        text = f"commands use {escape(find_target(None).text())}" if name else "no context is used"
        _report(output, "used" if name else "none", name, text)

    run(output, work)


@context_app.command("delete")
def delete(name: NameArgument, output: OutputOption = Format.TABLE) -> None:
    """Forget a context. The mesh is not touched."""

    async def work() -> None:
        contexts = Contexts.read()
        contexts.get(name)
        del contexts.named[name]
        if contexts.current == name:
            contexts.current = ""
        contexts.write()
        _report(output, "deleted", name, f"context [bold]{escape(name)}[/] deleted; its mesh was not touched")

    run(output, work)


def _report(output: Format, result: str, name: str, text: str) -> None:
    if output.is_document:
        print_document(output, {"result": result, "name": name}, kind="context")
    else:
        out.print(text, soft_wrap=True)


def _kafka() -> MeshTarget | None:
    try:
        return find_kafka_target(None)
    except CommandError:
        return None


def _why(target: MeshTarget, variable: str = SERVICES["herder"][0]) -> str:
    return {
        "environment": f"{variable} names it",
        "context": "the context",
        "folder": "the stack of this folder",
        "default": "the usual address on this machine; changes must name it",
    }[target.source]
