"""`herd`: everything a user does from a terminal."""

from __future__ import annotations

import typer

from herdmesh.cli.commands import apply, demo, doctor, get, lifecycle, run, up, watch

app = typer.Typer(
    name="herd",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Move data between Kafka and everything else.",
)
app.command()(up.up)
app.command()(up.down)
app.command("run")(run.run_standalone)
app.command()(apply.apply)
app.add_typer(get.get_app, name="get")
app.add_typer(get.describe_app, name="describe")
app.command()(lifecycle.pause)
app.command()(lifecycle.resume)
app.command()(lifecycle.stop)
app.command()(lifecycle.restart)
app.command()(lifecycle.delete)
app.command()(watch.watch)
app.command()(doctor.doctor)
app.command()(demo.demo)


def main() -> None:
    """Entry point of the `herd` script."""
    app()


if __name__ == "__main__":
    main()
