"""`herd create` and `herd patch`: connectors that must be new, and changed keys of one that must exist."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_messages
from herdmesh.cli.batch.connector_files import GivenConnector, read_all, read_json, to_properties, unusable
from herdmesh.cli.batch.results import end_with
from herdmesh.cli.batch.sending import BatchOutcomes, ChangeBatch, send
from herdmesh.cli.batch.waiting import Floors, TimeoutOption, WaitOption, wait_of
from herdmesh.cli.commands.apply import (
    FilesOption,
    RecursiveOption,
    not_all,
    print_warnings,
    refused,
    tell_warnings,
    tell_warnings_of_refused,
    valid_configs,
    warn_of_refused,
)
from herdmesh.cli.display import views
from herdmesh.cli.display.hidden_secrets import refuse_hidden
from herdmesh.cli.display.output import Format, out
from herdmesh.cli.errors import EXIT_USAGE, CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.mesh.outcomes import ItemOutcome
from herdmesh.cli.queries import fetch_connectors
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

#: Connect's REST API calls RUNNING what its config topic calls STARTED; both are accepted.
_STATES = {"RUNNING": "STARTED", "STARTED": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


def create(
    files: FilesOption,
    initial_state: Annotated[
        str,
        typer.Option("--initial-state", metavar="STATE", help="running, paused or stopped; default: as in the file."),
    ] = "",
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets",
            metavar="FILE",
            help='Offsets of one connector to begin at: {"offsets": [{"partition": {...}, "offset": {...}}]}.',
        ),
    ] = "",
    recursive: RecursiveOption = False,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create connectors whose names are free; their states and offsets are in force from the beginning."""

    async def work(client: HerderClient) -> None:
        waiting = wait_of(wait, timeout)
        given, bad = read_all(files, recursive=recursive, with_state=True)
        states = {one.name: _state(initial_state or one.initial_state) for one in given}
        if offsets and len(given) != 1:
            raise unusable(offsets, f"offsets are for one connector, and the files have {len(given)}")
        begin_at = read_offsets(offsets) if offsets else []
        if len(given) > 1:  # a single connector is checked by its own create
            bad += await _existing(client, given)
        if bad:
            if len(given) > 1:
                await valid_configs(client, given, bad)
            raise not_all(bad, "nothing was created")

        def request_of(one: GivenConnector) -> messages.CreateConnectorRequest:
            return messages.CreateConnectorRequest(
                request_id=new_request_id(),
                name=one.name,
                config=to_properties(one.config),
                initial_state=states[one.name],
                initial_offsets=begin_at,
            )

        sent = await _create_all(client, given, request_of, output)
        results = sent.results
        if sent.interrupted is not None:
            end_with(output, results, sent.interrupted)
        late = await waiting.until(client, {str(one["name"]): Floors() for one in results})
        source_of = {one.stored_name: one.source for one in given}
        bad = [*refused(sent.failed), *((source_of[name], error) for name, error in late.items())]
        what = f"{len(results)} created" if results else "nothing was created"
        end_with(output, results, not_all(bad, what) if bad else None)

    with_herder(output, herder, work)


async def _create_all(
    client: HerderClient,
    given: Sequence[GivenConnector],
    request_of: Callable[[GivenConnector], messages.CreateConnectorRequest],
    output: Format,
) -> BatchOutcomes[GivenConnector, views.Json]:
    """Create the connectors, one by its own call and several as a batch."""

    def show(result: views.Json) -> None:
        print_warnings(result["name"], result["warnings"])
        if not output.is_document:
            out.print(f"connector [bold]{escape(result['name'])}[/] created")

    if len(given) == 1:
        result = await _create(client, given[0], request_of(given[0]))
        show(result)
        return BatchOutcomes([ItemOutcome(given[0], result)])
    batch = ChangeBatch(
        given,
        change_of=request_of,
        result_of=lambda _, reply: _result(reply),
        verb="created",
        show=show,
        warned=warn_of_refused,
        shows_progress=not output.is_document,
    )
    return await send(client, batch)


async def _create(client: HerderClient, one: GivenConnector, request: messages.CreateConnectorRequest) -> views.Json:
    try:
        reply = await client.call(lambda stub: stub.CreateConnector, request)
    except CommandError as error:
        await tell_warnings_of_refused(client, one, error)
        raise replace(error, message=f"connector {one.name}: {error.message}") from None
    return _result(reply)


def _result(reply: messages.CreateConnectorResponse) -> views.Json:
    return {"result": "created", **views.connector(reply.connector), "warnings": views.warnings(reply.warnings)}


async def _existing(client: HerderClient, given: Sequence[GivenConnector]) -> list[tuple[str, CommandError]]:
    """The error of each connector that exists already."""
    known = {one["name"] for one in await fetch_connectors(client, full=False)}
    return [
        (one.source, from_reason("CONNECTOR_EXISTS", f"connector {one.stored_name} exists"))
        for one in given
        if one.stored_name in known
    ]


def patch(
    name: NameArgument,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE|KEY-]...", help="Set a key, or remove it.")
    ] = None,
    file: Annotated[
        str, typer.Option("-f", "--file", metavar="FILE|-", help="A JSON object of keys; null removes one.")
    ] = "",
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change some keys of a connector's config and keep the others."""

    async def work(client: HerderClient) -> None:
        waiting = wait_of(wait, timeout)
        wanted: dict[str, Any] = _object(file) if file else {}
        wanted |= dict(_change(text) for text in changes or ())
        if not wanted:
            raise CommandError("USAGE", "nothing to change: give KEY=VALUE, KEY- or --file", exit_code=EXIT_USAGE)
        refuse_hidden(wanted)
        request = messages.PatchConnectorRequest(request_id=new_request_id(), name=name, patch=to_properties(wanted))
        await waiting.remember(client, [name])
        reply = await client.call(lambda stub: stub.PatchConnector, request)
        tell_warnings(name, reply.warnings)
        result = "unchanged" if reply.unchanged else "patched"
        if not output.is_document:
            out.print(f"connector [bold]{escape(name)}[/] {result}")
        found = views.connector(reply.connector)
        late = await waiting.until(client, {name: Floors() if reply.unchanged else waiting.floors_of(name)})
        results = [{"result": result, **found, "warnings": views.warnings(reply.warnings)}]
        end_with(output, results, late.get(name))

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
    document = read_json(source)
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
