"""`herd apply` and `herd validate`: connectors from Connect's own files, stored or only checked.

Owns the order of an apply: read all files, then send all in one batch, of which the herder has all configs checked
before it writes the first. Does not decide whether a config is a change: the config store compares, and writes nothing
for an equal one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_service
from herdmesh.cli.batch.connector_files import GivenConnector, read_all, shown_source, to_properties
from herdmesh.cli.batch.results import end_with
from herdmesh.cli.batch.sending import BatchOutcomes, ChangeBatch, send
from herdmesh.cli.batch.waiting import Floors, StateWait, TimeoutOption, WaitOption, wait_of
from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, err, out, print_document
from herdmesh.cli.errors import EXIT_CODES, CommandError, shown_violations
from herdmesh.cli.mesh import bounded
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.mesh.outcomes import ItemOutcome
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder
from herdmesh.rpc.request_ids import new_request_id

FilesOption = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--file",
        metavar="FILE|DIR|-",
        help='JSON ({"name","config"}, a flat config or a list), YAML, .properties, or a folder; - is stdin.',
    ),
]
RecursiveOption = Annotated[bool, typer.Option("--recursive", "-R", help="Read the folders within a folder too.")]

Checked = tuple[GivenConnector, list[views.Json]]
"""A connector whose config is valid, with the warnings about it."""


class DryRun(StrEnum):
    """How far an apply goes without a change."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def apply(
    files: FilesOption,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Apply the valid connectors even if others are invalid; by default none is applied."
        ),
    ] = False,
    recursive: RecursiveOption = False,
    dry_run: Annotated[
        DryRun,
        typer.Option(
            "--dry-run",
            help="Change nothing. server: a worker checks the configs, and what would be created or updated is "
            "printed. client: only the files are checked.",
        ),
    ] = DryRun.NONE,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create connectors, or replace the configs of those that exist. All are checked before the first is applied.

    A connector whose config is unchanged is left alone: nothing restarts.
    """

    async def work(client: HerderClient) -> None:
        waiting = wait_of(wait, timeout)
        given, bad = read_all(files, recursive=recursive)
        if dry_run is DryRun.CLIENT:
            _print_client_dry_run(output, given, bad)
            return
        if dry_run is DryRun.SERVER:
            checked = await valid_configs(client, given, bad)
            if bad and not keep_going:
                raise not_all(bad, "nothing was applied")
            outcomes = await bounded.run_all(
                checked, lambda one: _would_apply(client, *one), show=lambda result: _show_dry_run(result, output)
            )
            bad += [(outcome.item[0].source, outcome.error) for outcome in outcomes if outcome.error is not None]
            results = [outcome.result for outcome in outcomes if outcome.result is not None]
            end_with(output, results, not_all(bad, _applied(0)) if bad else None)
            return
        if bad and not keep_going:
            if len(given) > 1:
                await valid_configs(client, given, bad)
            raise not_all(bad, "nothing was applied")
        await _apply_all(client, given, bad, waiting, output, keep_going=keep_going)

    with_herder(output, herder, work)


def validate(
    files: FilesOption,
    recursive: RecursiveOption = False,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Report the errors of configs, found on a worker that has the plugin; -o json has Connect's validation result."""

    async def work(client: HerderClient) -> None:
        given, bad = read_all(files, recursive=recursive)
        outcomes = await bounded.run_all(given, lambda one: _validation(client, one))
        found: list[worker_service.ConfigValidation] = []
        for outcome in outcomes:
            if outcome.result is None:
                assert outcome.error is not None
                raise outcome.error
            found.append(outcome.result)
            if output.is_document:
                continue
            name = outcome.item.name
            tell_warnings(name, outcome.result.warnings)
            try:
                refuse_invalid(name, outcome.result)
            except CommandError as error:
                bad.append((outcome.item.source, error))
                continue
            out.print(f"connector [bold]{escape(name)}[/] is valid; nothing was changed")
        if bad:
            raise not_all(bad, "nothing was changed")
        if output.is_document:
            shown = [views.validation(one) for one in found]
            print_document(output, shown if len(shown) != 1 else shown[0])
            if any(one.error_count for one in found):
                raise typer.Exit(EXIT_CODES["CONFIG_INVALID"])

    with_herder(output, herder, work)


async def valid_configs(
    client: HerderClient, given: Sequence[GivenConnector], bad: list[tuple[str, CommandError]]
) -> list[Checked]:
    """The connectors whose configs are valid, with the warnings; `bad` gets the others. Raises any other error."""
    sent = await send(
        client,
        ChangeBatch(
            given,
            change_of=update_of,
            result_of=lambda one, reply: (one, views.warnings(reply.warnings)),
            verb="checked",
            warned=warn_of_refused,
            validate_only=True,
        ),
    )
    if sent.interrupted is not None:
        raise sent.interrupted
    bad += refused(sent.failed)
    return sent.results


def update_of(one: GivenConnector) -> messages.UpdateConnectorRequest:
    """The request that creates or updates a connector."""
    return messages.UpdateConnectorRequest(
        request_id=new_request_id(), name=one.name, config=to_properties(one.config), allow_missing=True
    )


def warn_of_refused(one: GivenConnector, warnings: Iterable[worker_service.ConfigWarning]) -> None:
    """Print the warnings about a config that is refused."""
    tell_warnings(one.name, warnings)


def refused(failed: Iterable[tuple[GivenConnector, CommandError]]) -> list[tuple[str, CommandError]]:
    """The errors of a batch with the files of their connectors, and the connectors' names in the messages."""
    return [(one.source, _named(one.name, error)) for one, error in failed]


def _named(name: str, error: CommandError) -> CommandError:
    if error.reason == "CONFIG_INVALID":
        return replace(error, message=f"connector {name} would be refused")
    return replace(error, message=f"connector {name}: {error.message}")


async def tell_warnings_of_refused(client: HerderClient, one: GivenConnector, error: CommandError) -> None:
    """Print the warnings about a config that was refused, so that its misspelt keys are known with its errors: the
    refusal has errors alone.
    """
    if error.reason != "CONFIG_INVALID":
        return
    try:
        validation = await _validation(client, one)
    except CommandError:
        return  # the refusal itself is told
    tell_warnings(one.name, validation.warnings)


async def _apply_all(
    client: HerderClient,
    given: Sequence[GivenConnector],
    bad: list[tuple[str, CommandError]],
    waiting: StateWait,
    output: Format,
    *,
    keep_going: bool,
) -> None:
    """Apply the connectors, one by its own call and several as a batch, and end the command with their results. `bad`
    has the files that are of no use.
    """
    await waiting.remember(client, (one.stored_name for one in given))
    if len(given) == 1 and not bad:
        result = await _apply(client, given[0])
        _show(result, output)
        sent: BatchOutcomes[GivenConnector, views.Json] = BatchOutcomes([ItemOutcome(given[0], result)])
    else:
        sent = await send(
            client,
            ChangeBatch(
                given,
                change_of=update_of,
                result_of=lambda _, reply: _result(reply),
                verb="applied",
                show=lambda result: _show(result, output),
                warned=warn_of_refused,
                keep_going=keep_going,
                shows_progress=not output.is_document,
            ),
        )
    results = sent.results
    if sent.interrupted is not None:
        end_with(output, results, sent.interrupted)
    floors = {
        str(one["name"]): waiting.floors_of(str(one["name"])) if one["result"] == "updated" else Floors()
        for one in results
    }
    late = await waiting.until(client, floors)
    source_of = {one.stored_name: one.source for one in given}
    bad = [*bad, *refused(sent.failed), *((source_of[name], error) for name, error in late.items())]
    end_with(output, results, not_all(bad, _applied(len(results))) if bad else None)


def _applied(count: int) -> str:
    return f"{count} applied" if count else "nothing was applied"


async def _apply(client: HerderClient, one: GivenConnector) -> views.Json:
    try:
        reply = await client.call(lambda stub: stub.UpdateConnector, update_of(one))
    except CommandError as error:
        await tell_warnings_of_refused(client, one, error)
        raise replace(error, message=f"connector {one.name}: {error.message}") from None
    return _result(reply)


def _result(reply: messages.UpdateConnectorResponse) -> views.Json:
    result = "created" if reply.created else "unchanged" if reply.unchanged else "updated"
    return {"result": result, **views.connector(reply.connector), "warnings": views.warnings(reply.warnings)}


def _show(result: views.Json, output: Format) -> None:
    name = result["name"]
    print_warnings(name, result["warnings"])
    if not output.is_document:
        out.print(f"connector [bold]{escape(name)}[/] {result['result']}")
    if result["result"] == "unchanged" and _has_failed(result):
        again = f"an unchanged config restarts nothing: `herd restart {name} --include-tasks` does"
        err.print_sentence(f"[yellow]warning:[/] connector {escape(name)} is FAILED; {escape(again)}")


def _has_failed(connector: views.Json) -> bool:
    return any(unit["state"] == "FAILED" for unit in (connector["connector"], *connector["tasks"]))


async def _would_apply(client: HerderClient, one: GivenConnector, warnings: list[views.Json]) -> views.Json:
    """The result of an apply, without the apply; `warnings` are those of its validation."""
    stored = await stored_config(client, one.stored_name)
    new = views.properties(to_properties({**one.config, "name": one.stored_name}))
    result = "created" if stored is None else "unchanged" if stored == new else "updated"
    return {"result": result, "dry_run": "server", "name": one.stored_name, "warnings": warnings}


def _show_dry_run(result: views.Json, output: Format) -> None:
    print_warnings(result["name"], result["warnings"])
    if not output.is_document:
        more = "" if result["result"] == "unchanged" else " would be"
        text = f"connector [bold]{escape(result['name'])}[/]{more} {result['result']}"
        out.print(f"{text} [dim](dry run on the server: nothing was changed)[/]")


async def stored_config(client: HerderClient, name: str) -> views.Json | None:
    """The config in force with its secrets, None when there is no such connector."""
    try:
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
    except CommandError as error:
        if error.reason == "CONNECTOR_NOT_FOUND":
            return None
        raise
    return views.properties(reply.connector.config)


def _print_client_dry_run(output: Format, given: Sequence[GivenConnector], bad: list[tuple[str, CommandError]]) -> None:
    if not output.is_document:
        for one in given:
            text = f"connector [bold]{escape(one.stored_name)}[/] is read from {escape(shown_source(one.source))}"
            out.print(f"{text} [dim](dry run of the client: no herder was called)[/]")
    results = [{"result": "read", "dry_run": "client", "name": one.stored_name} for one in given]
    end_with(output, results, not_all(bad, "nothing was applied") if bad else None)


async def _validation(client: HerderClient, one: GivenConnector) -> worker_service.ConfigValidation:
    request = messages.ValidateConfigRequest(config=to_properties({"name": one.name, **one.config}))
    validation: worker_service.ConfigValidation = (
        await client.call(lambda stub: stub.ValidateConfig, request)
    ).validation
    return validation


def not_all(bad: list[tuple[str, CommandError]], what_happened: str) -> CommandError:
    """One error of all bad connectors: every file, field and fix. Its exit code is that of the first."""
    if len(bad) == 1:
        [(source, error)] = bad
        where = "" if error.message.startswith(shown_source(source)) else f"{shown_source(source)}: "
        return replace(error, message=f"{where}{error.message}; {what_happened}")
    fields: list[tuple[str, str]] = []
    for source, error in bad:
        where = shown_source(source)
        fields.append((where, error.message.removeprefix(f"{where}: ")))
        fields += [(f"{where}: {field}", text) for field, text in error.fields]
    first = bad[0][1]
    advice = "Correct the errors named above and run again."
    return CommandError(
        first.reason, f"{len(bad)} connectors are refused; {what_happened}", advice, first.exit_code, tuple(fields)
    )


def refuse_invalid(name: str, validation: worker_service.ConfigValidation) -> None:
    """Raise CommandError with every error of the config, key by key; return when there is none."""
    found = shown_violations(
        (field.name, f"{error} ({fix})" if fix else error)
        for field in validation.fields
        for error, fix in zip_longest(field.errors, field.fixes, fillvalue="")
    )
    if found:
        raise CommandError("CONFIG_INVALID", f"connector {name} would be refused", exit_code=5, fields=found)


def tell_warnings(name: str, warnings: Iterable[worker_service.ConfigWarning]) -> None:
    """Print settings that are accepted but do not have their effect, on standard error."""
    print_warnings(name, views.warnings(warnings))


def print_warnings(name: str, warnings: Iterable[views.Json]) -> None:
    """As `tell_warnings`, of a document."""
    for one in warnings:
        fix = f" ({one['fix']})" if one["fix"] else ""
        err.print_sentence(f"[yellow]warning:[/] connector {escape(name)}: {escape(one['message'] + fix)}")
