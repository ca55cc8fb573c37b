"""`herd apply` and `herd validate`: connectors from Connect's own files, stored or only checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.output import Format, err, out, print_document
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

_TRIMMED = "".join(map(chr, range(0x21)))
"""Characters that are removed from both ends of a new connector's name, as Java's `String.trim` does."""
FilesOption = Annotated[
    list[str],
    typer.Option("-f", "--file", metavar="FILE|-", help='{"name","config"} or a flat config; - is stdin.'),
]


def apply(
    files: FilesOption,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Apply the valid connectors even if others are invalid; by default none is applied."
        ),
    ] = False,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create connectors, or replace the configs of those that exist. All are checked before the first is applied."""

    async def work(client: HerderClient) -> None:
        given, bad = read_all(files)
        if len(given) > 1:  # a single connector is checked by its own apply
            for one in list(given):
                try:
                    refuse_invalid(one.name, await _validation(client, one))
                except CommandError as error:
                    if error.reason != "CONFIG_INVALID":
                        raise
                    bad.append((one.source, error))
                    given.remove(one)
        if bad and not keep_going:
            raise not_all(bad, "nothing was applied")
        results: list[views.Json] = []
        for one in given:
            try:
                results.append(await _apply(client, one.name, one.config))
            except CommandError as error:
                if not keep_going:
                    raise _after(error, results) from None
                bad.append((one.source, error))
        if output.is_document and results:
            print_document(output, results if len(results) != 1 else results[0])
        if bad:
            raise not_all(bad, f"{len(results)} applied")

    async def _apply(client: HerderClient, name: str, config: dict[str, Any]) -> views.Json:
        request = messages.UpdateConnectorRequest(
            request_id=new_request_id(), name=name, config=to_properties(config), allow_missing=True
        )
        try:
            reply = await client.call(lambda stub: stub.UpdateConnector, request)
        except CommandError as error:
            raise replace(error, message=f"connector {name}: {error.message}") from None
        tell_warnings(name, reply.warnings)
        verb = "created" if reply.created else "updated"
        if not output.is_document:
            out.print(f"connector [bold]{escape(name)}[/] {verb}")
        return {"result": verb, **views.connector(reply.connector), "warnings": views.warnings(reply.warnings)}

    with_herder(output, herder, work)


def validate(files: FilesOption, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Report the errors of configs, found on a worker that has the plugin; -o json has Connect's validation result."""

    async def work(client: HerderClient) -> None:
        given, bad = read_all(files)
        found: list[worker_service.ConfigValidation] = []
        for one in given:
            found.append(await _validation(client, one))
            if output.is_document:
                continue
            try:
                refuse_invalid(one.name, found[-1])
            except CommandError as error:
                bad.append((one.source, error))
                continue
            tell_warnings(one.name, found[-1].warnings)
            out.print(f"connector [bold]{escape(one.name)}[/] is valid; nothing was changed")
        if bad:
            raise not_all(bad, "nothing was changed")
        if output.is_document:
            shown = [views.validation(one) for one in found]
            print_document(output, shown if len(shown) != 1 else shown[0])
            if any(one.error_count for one in found):
                raise typer.Exit(EXIT_CODES["CONFIG_INVALID"])

    with_herder(output, herder, work)


async def _validation(client: HerderClient, one: GivenConnector) -> worker_service.ConfigValidation:
    request = messages.ValidateConfigRequest(config=to_properties({"name": one.name, **one.config}))
    return (await client.call(lambda stub: stub.ValidateConfig, request)).validation


def _after(error: CommandError, applied: list[views.Json]) -> CommandError:
    """An error half-way, with the list of connectors that were applied before it."""
    names = ", ".join(str(one["name"]) for one in applied)
    return replace(error, message=f"{error.message}; applied before it: {names}") if names else error


def not_all(bad: list[tuple[str, CommandError]], what_happened: str) -> CommandError:
    """One error of all bad connectors: every file, field and fix. Its exit code is that of the first."""
    if len(bad) == 1:
        [(source, error)] = bad
        where = "" if error.message.startswith(_named(source)) else f"{_named(source)}: "
        return replace(error, message=f"{where}{error.message}; {what_happened}")
    fields: list[tuple[str, str]] = []
    for source, error in bad:
        where = _named(source)
        fields.append((where, error.message.removeprefix(f"{where}: ")))
        fields += [(f"{where}: {field}", text) for field, text in error.fields]
    first = bad[0][1]
    advice = "Correct the errors named above and run again."
    return CommandError(
        first.reason, f"{len(bad)} connectors are refused; {what_happened}", advice, first.exit_code, tuple(fields)
    )


def refuse_invalid(name: str, validation: worker_service.ConfigValidation) -> None:
    """Raise CommandError with every error of the config, key by key; return when there is none."""
    found = tuple(
        (field.name, f"{error} ({fix})" if fix else error)
        for field in validation.fields
        for error, fix in zip_longest(field.errors, field.fixes, fillvalue="")
    )
    if found:
        raise CommandError("CONFIG_INVALID", f"connector {name} would be refused", exit_code=5, fields=found)


def tell_warnings(name: str, warnings: Iterable[worker_service.ConfigWarning]) -> None:
    """Print settings that are accepted but do not have their effect, on standard error."""
    for one in warnings:
        fix = f" ({one.fix})" if one.fix else ""
        err.print(f"[yellow]warning:[/] connector {escape(name)}: {escape(one.message + fix)}", soft_wrap=True)


@dataclass(frozen=True, slots=True)
class ConnectorDocument:
    """One connector of a file, in the form of Connect's REST API. `initial_state` "" = not in the file."""

    name: str
    config: dict[str, Any]
    initial_state: str = ""


@dataclass(frozen=True, slots=True)
class GivenConnector:
    """A connector to be applied, and the file it comes from."""

    source: str
    name: str
    config: dict[str, Any]


def read_all(files: list[str]) -> tuple[list[GivenConnector], list[tuple[str, CommandError]]]:
    """The usable connectors of all files, and the error of each other one."""
    given: list[GivenConnector] = []
    bad: list[tuple[str, CommandError]] = []
    seen: dict[str, str] = {}
    for source in files:
        try:
            for name, config in read_connectors(source):
                to_properties(config)
                stored = name.strip(_TRIMMED)
                if stored in seen:
                    raise unusable(
                        source, f"connector {stored} is in {_named(seen[stored])} too: leave one of them out"
                    )
                seen[stored] = source
                given.append(GivenConnector(source, name, config))
        except CommandError as error:
            bad.append((source, error))
    return given, bad


def read_connectors(source: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, config) of each connector in a file: one object or a list of them.

    Raises `CommandError` with the file and the error.
    """
    documents = read_documents(source)
    for one in documents:
        if one.initial_state:
            raise unusable(source, f'"initial_state" of {one.name} is for a connector that is new: use `herd create`')
    return [(one.name, one.config) for one in documents]


def read_documents(source: str) -> list[ConnectorDocument]:
    """Each connector of a file. Raises the errors of `read_connectors`."""
    document = read_document(source)
    items: list[Any] = cast("list[Any]", document) if isinstance(document, list) else [document]
    if not items:
        raise unusable(source, "no connector in it")
    return [_connector(source, item) for item in items]


def read_document(source: str) -> Any:
    """The JSON in a file, or (`-`) on standard input. Raises CommandError with the file's name."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except OSError as error:
        raise unusable(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise unusable(source, str(error)) from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise unusable(source, f"not JSON: {error}") from None


def _connector(source: str, item: Any) -> ConnectorDocument:
    if not isinstance(item, dict):
        raise unusable(source, 'expected {"name": ..., "config": {...}} or a flat config')
    fields = cast("dict[str, Any]", item)
    inner = fields.get("config")
    config = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
    name = fields.get("name", config.get("name"))
    if not isinstance(name, str) or not name.strip(_TRIMMED):
        raise unusable(source, 'no "name": add one beside "config" or inside it')
    _check_text(f'"name" of {name!r}', name)
    if "connector.class" not in config:
        raise unusable(source, 'no "connector.class": name the class of the connector')
    state = fields.get("initial_state") if config is not fields else None
    return ConnectorDocument(name, config, "" if state is None else str(state))


def to_properties(config: dict[str, Any]) -> common.Properties:
    """A config for the wire. Numbers and booleans become text, as Connect's REST API has it; null stays null."""
    entries: dict[str, common.PropertyValue] = {}
    for key, value in config.items():
        _check_text(repr(key), key)
        if isinstance(value, str):
            _check_text(key, value)
        if value is None:
            entries[key] = common.PropertyValue()
        elif isinstance(value, str):
            entries[key] = common.PropertyValue(text=value)
        elif isinstance(value, bool | int | float):
            entries[key] = common.PropertyValue(text=json.dumps(value))
        else:
            raise CommandError("CONFIG_INVALID", f"{key}: values are text, numbers, true, false or null", exit_code=5)
    return common.Properties(entries=entries)


def _check_text(what: str, text: str) -> None:
    """Raises CommandError for half a character (an escape such as \\ud800 alone), which no topic can hold."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        message = f"{what} has half of a character (a lone surrogate, as \\ud800): write both halves or leave it out"
        raise CommandError("CONFIG_INVALID", message.encode(errors="backslashreplace").decode(), exit_code=5)


def unusable(source: str, what: str) -> CommandError:
    """The error of a file that cannot be used, with the reason."""
    return CommandError("USAGE", f"{_named(source)}: {what}", exit_code=EXIT_USAGE)


def _named(source: str) -> str:
    return "standard input" if source == "-" else source
