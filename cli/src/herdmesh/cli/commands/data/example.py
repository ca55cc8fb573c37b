"""`herd example list|run`: small guided examples on the user's cluster, each command printed with its output."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.command_end import command_end
from herdmesh.cli.commands.data.options import BootstrapOption
from herdmesh.cli.display.output import Format, OutputConsole, err, out, print_document, table
from herdmesh.cli.errors import EXIT_INTERNAL, CommandError
from herdmesh.cli.mesh.client import HerderClient, find_herder
from herdmesh.cli.mesh.contexts import DEFAULT_DATA_DIR, find_target, refuse_guess
from herdmesh.cli.queries import fetch_connectors
from herdmesh.cli.runner import HerderOption, OutputOption

example_app = typer.Typer(
    no_args_is_help=True, help="Small guided examples on your cluster: each command is printed with its output."
)


@example_app.command("list")
def list_examples(output: OutputOption = Format.TABLE) -> None:
    """List the examples, and the servers that they start beside the cluster."""
    from herdmesh.cli.example.page import examples

    out.whole = output.is_wide
    found = examples()
    if output.is_document:
        print_document(
            output,
            [{"name": one.name, "title": one.title, "summary": one.summary, "needs": one.needs} for one in found],
            kind="example",
        )
        return
    rows = [(f"[bold]{escape(one.name)}[/]", escape(one.summary)) for one in found]
    out.print(table(None, ("NAME", "SHOWS"), rows))


@example_app.command("run")
def run_example(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As `herd example list` shows it.", autocompletion=completion.examples)
    ],
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Folder for its files. Default: .herd/examples/NAME.")
    ] = None,
    herder: HerderOption = None,
    bootstrap_servers: BootstrapOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Run an example on a running cluster: print each command and its output, then delete what it created.

    The files stay in the folder. A PostgreSQL server or an HTTP receiver that it needs is started for it and stopped
    afterwards.
    """
    screen = err if output.is_document else out
    steps: list[dict[str, str]] = []

    def show(kind: str, text: str) -> None:
        _show(screen, kind, text)
        if kind == "command":
            steps.append({"command": text, "output": ""})
        elif kind == "output":
            steps[-1]["output"] = text

    with command_end(output):
        from herdmesh.cli.example import session
        from herdmesh.cli.example.page import find
        from herdmesh.cli.example.surroundings import surroundings
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.devstack.errors import DevstackError

        example = find(name)
        refuse_guess(find_target(herder))
        kafka, herders = find_kafka(bootstrap_servers, None, is_change=True), find_herder(herder)
        asyncio.run(_must_answer(herders))
        where = (folder or DEFAULT_DATA_DIR / "examples" / name).absolute()
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise CommandError("USAGE", f"{folder} is not empty", "Name a new folder.", 2)
        addresses = {"HERDMESH_HERDER": herders, "HERDMESH_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        screen.print(f"[bold]{escape(example.title)}[/]\n\n{escape(example.summary)}", soft_wrap=True)
        try:
            with surroundings(example, where, addresses) as environment:
                session.run_example(example, where, environment, show)
        except DevstackError as error:
            raise CommandError("STACK", str(error), exit_code=EXIT_INTERNAL) from None
        if output.is_document:
            print_document(
                output, {"name": name, "result": "done", "folder": str(where), "steps": steps}, kind="example"
            )
            return
        out.print(f"\n[green]done[/]; its files are in {escape(str(where))}", soft_wrap=True)


async def _must_answer(herders: str) -> None:
    """Raises CommandError when no cluster answers: an example starts no servers then."""
    async with HerderClient(herders, patience_s=2.0) as client:
        await fetch_connectors(client, full=False)


def _show(screen: OutputConsole, kind: str, text: str) -> None:
    if kind == "text":
        screen.print(f"\n{escape(text)}", style="dim", soft_wrap=True)
    elif kind == "command":
        screen.print("\n$ " + text.replace("\n", "\n> "), style="bold", markup=False, soft_wrap=True)
    elif text:
        screen.print(text, markup=False, soft_wrap=True)
