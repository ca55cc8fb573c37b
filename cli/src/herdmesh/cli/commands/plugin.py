"""`herd plugin new`: a working connector package as a starting point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.cli.display.output import Format, out, print_document
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.plugin.skeleton import Skeleton, SkeletonRefused, write
from herdmesh.cli.runner import OutputOption, run

plugin_app = typer.Typer(no_args_is_help=True, help="Write your own connectors.")


@plugin_app.callback()
def _plugin() -> None:
    """Write your own connectors."""


@plugin_app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the package: lower-case letters, digits, hyphens.")
    ],
    source: Annotated[
        bool, typer.Option("--source/--sink", help="Whether it brings records into Kafka, or out of it.")
    ] = True,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where to create the package's folder.")
    ] = Path(),
    output: OutputOption = Format.TABLE,
) -> None:
    """Write a connector package that works: connector, config, README, and tests with the standard suite."""
    skeleton = Skeleton(name, "source" if source else "sink")

    async def work() -> None:
        try:
            made = write(skeleton, folder)
        except SkeletonRefused as refused:
            raise CommandError("USAGE", str(refused), refused.fix, EXIT_USAGE) from None
        except OSError as error:
            text = f"{folder / name} cannot be written: {error.strerror}"
            raise CommandError("USAGE", text, "Name another --dir.", EXIT_USAGE) from None
        files = list(skeleton.files())
        if output.is_document:
            print_document(
                output, {"result": "written", "class": skeleton.class_name, "folder": str(made), "files": files}
            )
            return
        for file in files:
            out.print(escape(str(made / file)), soft_wrap=True)
        out.print(f"\nnext: cd {escape(str(made))} && pip install -e '.\\[test]' && pytest", soft_wrap=True)

    run(output, work)
