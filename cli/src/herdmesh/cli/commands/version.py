"""`herd version`: the release of this command, and of herders.

Owns the query and the output. The release is the version of the installed distribution `herdmesh-cli`; all
distributions of one release have the same. Each herder reports its own, whether it leads or follows, so that a rolling
upgrade can be watched herder by herder.
"""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version as version_of
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as herder_grpc
from herdmesh.cli.display.output import Format, out, print_document, table
from herdmesh.cli.errors import EXIT_UNAVAILABLE
from herdmesh.cli.runner import OutputOption, run
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

_TIMEOUT_S: Final = 5.0


def version(
    herder: Annotated[
        str | None,
        typer.Option(
            "--herder",
            metavar="HOST:PORT,...",
            help="Also print the versions of these herders; each is queried itself.",
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Print the version of herd, and with --herder those of the herders; exit code 6 when one does not answer."""

    async def work() -> None:
        addresses = [one.strip() for one in (herder or "").split(",") if one.strip()]
        herders = await asyncio.gather(*map(_herder, addresses))
        client = _client()
        if output.is_document:
            print_document(output, {"client": client, "herders": herders})
        else:
            out.print(client_text())
            if herders:
                out.print(table(None, ("HERDER", "VERSION", "ROLE"), [_row(one) for one in herders]))
        if any(one["error"] for one in herders):
            raise typer.Exit(EXIT_UNAVAILABLE)

    run(output, work)


def client_text() -> str:
    """The line about this command itself."""
    client = _client()
    return f"herd {client['version']} (Python {client['python']})"


def _client() -> dict[str, str]:
    return {"version": version_of("herdmesh-cli"), "python": platform.python_version()}


async def _herder(address: str) -> dict[str, Any]:
    """The release of one herder; `version` is None when it does not answer, with the cause in `error`."""
    async with connect(address) as channel:
        stub = herder_grpc.ConnectorServiceStub(channel)
        try:
            reply = await stub.GetCluster(admin.GetClusterRequest(), timeout=_TIMEOUT_S)
        except HerdmeshError as error:
            return {"address": address, "version": None, "leads": None, "error": error.message}
    # Only a leader's response has an epoch.
    return {"address": address, "version": reply.version or None, "leads": bool(reply.epoch), "error": None}


def _row(herder: dict[str, Any]) -> list[str]:
    role = {True: "leads", False: "follows", None: f"no answer: {herder['error']}"}[herder["leads"]]
    return [escape(herder["address"]), herder["version"] or "-", escape(role)]
