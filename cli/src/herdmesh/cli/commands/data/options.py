"""Options that the commands for topics and records share.

Owns the options' texts. Calls of Kafka's client block, so these commands have no event loop.

Invariant: imports no Kafka client and no converter, so that `herd` starts without them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from herdmesh.cli import completion
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.kafka.options import ConverterOptions
from herdmesh.cli.mesh.client import HerderClient, find_herder
from herdmesh.cli.queries import fetch_connector
from herdmesh.cli.transform.options import Direction

if TYPE_CHECKING:
    from herdmesh.cli.transform.running import Runner

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="The Kafka cluster. Default: HERDMESH_BOOTSTRAP_SERVERS, bootstrap.servers in --command-config, the "
        "current context, the stack in ./.herd.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Java client properties, as for Kafka's own tools: security.protocol, sasl.*, ssl.*. Default: the file "
        "of the context.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsConnectorOption = Annotated[
    str | None,
    typer.Option(
        "--as-connector",
        metavar="NAME",
        help="Use the converters of this connector.",
        autocompletion=completion.connectors,
    ),
]
KeyConverterOption = Annotated[
    str | None, typer.Option("--key-converter", metavar="CLASS", help="Converter of keys, such as StringConverter.")
]
ValueConverterOption = Annotated[
    str | None,
    typer.Option("--value-converter", metavar="CLASS", help="Converter of values, such as JsonConverter."),
]
HeaderConverterOption = Annotated[
    str | None, typer.Option("--header-converter", metavar="CLASS", help="Converter of headers.")
]
ConverterConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--converter-config",
        metavar="KEY=VALUE",
        help="A converter's setting, such as value.converter.schemas.enable=false. Repeatable.",
    ),
]
WorkerOption = Annotated[
    str | None,
    typer.Option(
        "--worker-config", metavar="FILE", help="Worker properties, for converters that the connector does not name."
    ),
]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change that cannot be undone. Raises CommandError where nobody can answer."""
    if yes:
        return
    if not typer.get_text_stream("stdin").isatty():
        raise CommandError("USAGE", f"{question} Nobody can answer here.", "Give --yes.", EXIT_USAGE)
    typer.confirm(question, abort=True)


def converters(options: ConverterOptions, herder: str | None, direction: Direction) -> Runner | None:
    """The converters that the options name; None = records stay bytes. Reads a connector's config from the herder.
    Raises CommandError.
    """
    options.check()
    if not options.any_named:
        return None
    from herdmesh.cli.kafka.conversion import open_converters

    async def fetch(name: str) -> dict[str, str]:
        async with HerderClient(find_herder(herder)) as client:
            return (await fetch_connector(client, name))["config"]

    config = asyncio.run(fetch(options.connector)) if options.connector is not None else None
    return open_converters(options, config, direction)


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,234 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
