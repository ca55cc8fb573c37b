"""`herd transform`: a chain of converters and transformations, tried on records from a file or standard input.

Owns the command: its options and exit codes. Reading and running are in `herdmesh.cli.transform`.

Invariant: imports no part of a chain until the command runs, and no client of a mesh unless --as-connector names a
connector.
"""

from __future__ import annotations

from typing import Annotated

import typer

from herdmesh.cli.command_end import command_end
from herdmesh.cli.completion import connectors as connector_names
from herdmesh.cli.display.output import Format, out
from herdmesh.cli.display.record_option import OptionalRecordOutputOption
from herdmesh.cli.errors import EXIT_INTERNAL, EXIT_USAGE, CommandError
from herdmesh.cli.grammar import prepare
from herdmesh.cli.transform.options import Direction, RecordForm
from herdmesh.connect.config import redacted

_AsConnectorOption = Annotated[
    str,
    typer.Option(
        "--as-connector",
        metavar="NAME",
        help="Instead of a file: the config of this connector of the mesh.",
        autocompletion=connector_names,
    ),
]
_DirectionOption = Annotated[
    Direction | None,
    typer.Option(
        "--direction",
        help="sink: bytes in, values out; source: values in, bytes out; values: no converters. "
        "Default: sink when converters are configured, else values.",
    ),
]
_FormOption = Annotated[
    RecordForm,
    typer.Option(
        "--input",
        help="lines: each a value; records: JSON objects with key, value, topic, ...; "
        "typed: with schemas. Default: detected from the first line.",
    ),
]


def transform(
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="A connector's config, JSON or properties.")
    ] = "",
    as_connector: _AsConnectorOption = "",
    herder: Annotated[
        str | None,
        typer.Option("--herder", metavar="HOST:PORT,...", help="Any herder of the mesh with that connector."),
    ] = None,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE|-]...", help="Records; none = stdin.")] = None,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker-config", metavar="FILE", help="Worker properties, for converters that the config does not name."
        ),
    ] = None,
    direction: _DirectionOption = None,
    form: _FormOption = RecordForm.AUTO,
    output: OptionalRecordOutputOption = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Topic of records without one. Default: from `topics`."),
    ] = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="none|all", help="all: failed records do not lead to exit code 1.")
    ] = "none",
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="End at the first record that fails.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the compiled chain for the first 1,000 records instead of running.")
    ] = False,
    bench: Annotated[
        float | None,
        typer.Option("--bench", metavar="SECONDS", min=0.1, help="Repeat the first 100,000 records; print the speed."),
    ] = None,
) -> None:
    """Try a chain: converters and transformations of a connector's config, on records from files or stdin."""
    with command_end(output or Format.TABLE):
        if bool(config) == bool(as_connector):
            raise CommandError("USAGE", "give --config FILE or --as-connector NAME", exit_code=EXIT_USAGE)
        if tolerance not in ("none", "all"):
            raise CommandError("USAGE", f"--tolerance {tolerance}: it is none or all", exit_code=EXIT_USAGE)
        if fail_fast and tolerance == "all":
            raise CommandError("USAGE", "--fail-fast contradicts --tolerance all", "Leave one out.", EXIT_USAGE)
        # these imports would take a third of each start of `herd`
        from herdmesh.cli.display.records import RecordPrinter
        from herdmesh.cli.transform.chain_file import read_config
        from herdmesh.cli.transform.session import open_session

        settings = read_config(config) if config else _config_of(as_connector, herder)
        source = config or f"connector {as_connector}"
        session = open_session(source, settings, worker, direction, topic, form, fail_fast=fail_fast)
        if explain or bench:
            for line in session.looked(files, bench):
                typer.echo(redacted(line))
            return
        session.run(files, RecordPrinter(output or Format.JSON, headers=out.headers))
        typer.echo(session.summary(), err=True)
        if session.failed and tolerance == "none":
            raise typer.Exit(EXIT_INTERNAL)


def _config_of(connector: str, herder: str | None) -> dict[str, str | None]:
    import asyncio

    from herdmesh.cli.mesh.client import HerderClient, find_herder
    from herdmesh.cli.queries import fetch_connector

    async def fetch() -> dict[str, str | None]:
        async with HerderClient(find_herder(herder)) as client:
            found: dict[str, str | None] = (await fetch_connector(client, connector, show_secrets=True))["config"]
            return found

    return asyncio.run(fetch())


#: The command as an application of its own, for `herd transform`.
alone = typer.Typer(
    name="herd",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
alone.command("transform")(transform)
alone.callback()(lambda: None)
prepare(alone)
