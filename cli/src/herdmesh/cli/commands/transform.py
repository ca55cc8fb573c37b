"""`herd transform`: a chain of converters and transformations, tried on records from a file or standard input.

Owns the command: its options and exit codes. Reading, running and printing are in `herdmesh.cli.transform`.

Invariant: imports no client of a mesh, and no part of a chain until the command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from herdmesh.cli.display.output import Format, print_error
from herdmesh.cli.errors import EXIT_INTERNAL, EXIT_USAGE, CommandError
from herdmesh.cli.grammar import prepare
from herdmesh.cli.transform.options import Direction, Output, RecordForm
from herdmesh.connect.config import redacted

#: The exit code of a shell for a process that ended by SIGPIPE: nobody reads its output any more.
_EXIT_PIPE: Final = 141


def transform(
    config: Annotated[
        str, typer.Option("-c", "--config", metavar="FILE", help="A connector's config, JSON or properties.")
    ],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE|-]...", help="Records; none = stdin.")] = None,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker", metavar="FILE", help="Worker properties, for converters that the config does not name."
        ),
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option(
            "--direction",
            help="sink: bytes in, values out; source: values in, bytes out; values: no converters. "
            "Default: sink when converters are configured, else values.",
        ),
    ] = None,
    form: Annotated[
        RecordForm,
        typer.Option(
            "--input",
            help="lines: each a value; records: JSON objects with key, value, topic, ...; "
            "typed: with schemas. Default: detected from the first line.",
        ),
    ] = RecordForm.AUTO,
    output: Annotated[Output, typer.Option("-o", "--output", help="A record as JSON, or only its value.")] = (
        Output.JSON
    ),
    typed: Annotated[bool, typer.Option("--typed", help="JSON with schemas and exact types.")] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="Topic of records without one. Default: from `topics`."),
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
    with _ended():
        if tolerance not in ("none", "all"):
            raise CommandError("USAGE", f"--tolerance {tolerance}: it is none or all", exit_code=EXIT_USAGE)
        if fail_fast and tolerance == "all":
            raise CommandError("USAGE", "--fail-fast contradicts --tolerance all", "Leave one out.", EXIT_USAGE)
        from herdmesh.cli.transform.session import (
            open_session,
        )  # these imports would take a third of each start of `herd`

        session = open_session(config, worker, direction, topic, form, fail_fast=fail_fast)
        if explain or bench:
            for line in session.looked(files, bench):
                typer.echo(redacted(line))
            return
        session.run(files, output, typed=typed)
        typer.echo(session.summary(), err=True)
        if session.failed and tolerance == "none":
            raise typer.Exit(EXIT_INTERNAL)


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


@contextmanager
def _ended() -> Generator[None]:
    """Turn an error, Ctrl-C or a closed output into the end of the command. Does not use `runner.run`, which imports
    the herder's client.
    """
    try:
        yield
    except CommandError as error:
        print_error(error, Format.TABLE)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python prints an error about it at its end
        raise typer.Exit(_EXIT_PIPE) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
