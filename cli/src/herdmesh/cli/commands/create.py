"""`herd create` and `herd patch`: a connector that must be new, and changed keys of one that must exist."""

from __future__ import annotations

import json
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_messages
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.commands.apply import read_document, read_documents, tell_warnings, to_properties, unusable
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.output import Format, out, print_document
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

#: Connect's REST API calls RUNNING what its config topic calls STARTED; both are accepted.
_STATES = {"RUNNING": "STARTED", "STARTED": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


def create(
    file: Annotated[
        str, typer.Option("-f", "--file", metavar="FILE|-", help='{"name","config"} or a flat config; - is stdin.')
    ],
    initial_state: Annotated[
        str,
        typer.Option("--initial-state", metavar="STATE", help="running, paused or stopped; default: as in the file."),
    ] = "",
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets",
            metavar="FILE",
            help='Offsets to begin at: {"offsets": [{"partition": {...}, "offset": {...}}]}.',
        ),
    ] = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create one connector, if none has its name; its state and its offsets are in force from the beginning."""

    async def work(client: HerderClient) -> None:
        (document, *more) = read_documents(file)
        if more:
            raise unusable(file, f"{1 + len(more)} connectors; `herd create` takes one, `herd apply` takes all")
        request = messages.CreateConnectorRequest(
            request_id=new_request_id(),
            name=document.name,
            config=to_properties(document.config),
            initial_state=_state(initial_state or document.initial_state),
            initial_offsets=read_offsets(offsets) if offsets else [],
        )
        reply = await client.call(lambda stub: stub.CreateConnector, request)
        tell_warnings(document.name, reply.warnings)
        if output.is_document:
            print_document(
                output,
                {"result": "created", **views.connector(reply.connector), "warnings": views.warnings(reply.warnings)},
            )
        else:
            out.print(f"connector [bold]{escape(document.name)}[/] created")

    with_herder(output, herder, work)


def patch(
    name: NameArgument,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE|KEY-]...", help="Set a key, or remove it.")
    ] = None,
    file: Annotated[
        str, typer.Option("-f", "--file", metavar="FILE|-", help="A JSON object of keys; null removes one.")
    ] = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change some keys of a connector's config and keep the others."""

    async def work(client: HerderClient) -> None:
        wanted: dict[str, Any] = _object(file) if file else {}
        wanted |= dict(_change(text) for text in changes or ())
        if not wanted:
            raise CommandError("USAGE", "nothing to change: give KEY=VALUE, KEY- or --file", exit_code=EXIT_USAGE)
        request = messages.PatchConnectorRequest(request_id=new_request_id(), name=name, patch=to_properties(wanted))
        reply = await client.call(lambda stub: stub.PatchConnector, request)
        tell_warnings(name, reply.warnings)
        if output.is_document:
            print_document(
                output,
                {"result": "patched", **views.connector(reply.connector), "warnings": views.warnings(reply.warnings)},
            )
        else:
            out.print(f"connector [bold]{escape(name)}[/] patched")

    with_herder(output, herder, work)


def _state(wanted: str) -> common.TargetState.ValueType:
    """The initial state; "" = the herder's default. Raises CommandError that lists the valid states."""
    if not wanted:
        return common.TARGET_STATE_UNSPECIFIED
    known = _STATES.get(wanted.upper())
    if known is None:
        text = f"no initial state {wanted}; there are: running, paused, stopped"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    return common.TargetState.Value(f"TARGET_STATE_{known}")


def read_offsets(source: str) -> list[offset_messages.OffsetEntry]:
    """Offsets in the form of KIP-875, from a file or (-) standard input. Raises CommandError with the file's name."""
    listed = _object(source).get("offsets")
    if not isinstance(listed, list):
        raise unusable(source, 'expected {"offsets": [{"partition": {...}, "offset": {...}}, ...]}')
    entries: list[offset_messages.OffsetEntry] = []
    for number, item in enumerate(cast("list[Any]", listed)):
        if not isinstance(item, dict) or set(cast("dict[str, Any]", item)) != {"partition", "offset"}:
            raise unusable(source, f'offsets[{number}]: expected {{"partition": {{...}}, "offset": {{...}}}}')
        one = cast("dict[str, Any]", item)
        entry = offset_messages.OffsetEntry(partition_json=json.dumps(one["partition"]))
        if one["offset"] is not None:
            entry.offset_json = json.dumps(one["offset"])
        entries.append(entry)
    return entries


def _object(source: str) -> dict[str, Any]:
    document = read_document(source)
    if not isinstance(document, dict):
        raise unusable(source, "expected a JSON object")
    return cast("dict[str, Any]", document)


def _change(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals and key:
        return key, value
    if not equals and text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise CommandError("USAGE", f"{text}: write KEY=VALUE to set a key, KEY- to remove it", exit_code=EXIT_USAGE)
