"""`herd history` and `herd restore`: the changes of a connector, and the return to an earlier config.

Owns the two commands. History is a read of the config store. A restore is an update like any other, so an earlier
config is validated as a new one is, and its tasks restart as for any change. The store never returns secrets, so
redacted values are taken from the config in force, or from the command line.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.results import end_with
from herdmesh.cli.batch.waiting import Floors, TimeoutOption, WaitOption, wait_of
from herdmesh.cli.commands.apply import tell_warnings
from herdmesh.cli.commands.doctor import ConfigStoresOption
from herdmesh.cli.display import changes, views
from herdmesh.cli.display.output import Format, err, out, print_document, table
from herdmesh.cli.errors import EXIT_USAGE, CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import history_entries
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, run, with_herder
from herdmesh.rpc import properties, revisions
from herdmesh.rpc.request_ids import new_request_id

_SHOWN = 20
_DIFF_STYLES = {"+": "green", "-": "red", "~": "yellow"}


def history(
    name: NameArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number to list; 0 = all that are kept.")
    ] = _SHOWN,
    diff: Annotated[bool, typer.Option("--diff", "-d", help="Show old and new values; secrets are ****.")] = False,
    all_changes: Annotated[
        bool, typer.Option("--all", "-a", help="Also the herder's own steps, such as commits of task configs.")
    ] = False,
    config_store: ConfigStoresOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List the changes of a connector with caller and time, newest first; also of a deleted connector. The steps that a
    herder carried out because of a change are listed with --all.
    """

    async def work() -> None:
        read, listed, steps = await _read_changes(name, config_store, limit, all_changes=all_changes, diff=diff)
        if diff:
            numbers = {one["revision"]: one for one in changes.with_values(read)}
            listed = [numbers[one["revision"]] for one in listed]
        if output.is_document:
            print_document(output, listed)
            return
        if not listed:
            out.print(f"no changes are recorded of {escape(name)}")
            return
        _print_changes(listed, by=all_changes)
        if steps:
            err.print_sentence(
                f"[dim]{steps} {'step' if steps == 1 else 'steps'} of the herder left out; --all lists all[/]"
            )

    run(output, work)


async def _read_changes(
    name: str, config_store: str | None, limit: int, *, all_changes: bool, diff: bool
) -> tuple[list[views.Json], list[views.Json], int]:
    """The changes read, those to list, and the number of the herder's steps between these. For a `diff` the reading
    goes on to the config before the last one.
    """
    read: list[views.Json] = []
    listed: list[views.Json] = []
    steps, lacks_earlier = 0, False
    async for entry in history_entries(name, config_store):
        one = changes.view(entry)
        read.append(one)
        if one["config"] is not None or one["deleted"]:
            lacks_earlier = False
        if not limit or len(listed) < limit:
            if all_changes or one["by"] == "caller":
                listed.append(one)
                lacks_earlier = lacks_earlier or one["config"] is not None
            else:
                steps += 1
        if limit and len(listed) == limit and not (diff and lacks_earlier):
            break
    return read, listed, steps


def _print_changes(listed: list[views.Json], *, by: bool) -> None:
    columns = ("TIME", *(("BY",) if by else ()), "CALLER", "OPERATION", "CHANGED", "REVISION")
    rows = [
        [
            one["time"],
            *((one["by"],) if by else ()),
            escape(one["caller"] or "-"),
            one["operation"],
            escape(changes.summary_of(one)),
            escape(one["revision"].rpartition("@")[2]),
        ]
        for one in listed
    ]
    if "diff" not in listed[0]:
        out.print(table(None, columns, rows, story="CHANGED", drop=("BY", "REVISION", "CALLER")))
        return
    for one, row in zip(listed, rows, strict=True):
        out.print_sentence("  ".join(cell for name, cell in zip(columns, row, strict=True) if name != "CHANGED"))
        lines = changes.diff_lines(one) or [f"  {changes.summary_of(one)}"]
        for line in lines:
            out.print(escape(line), style=_DIFF_STYLES.get(line[2:3], ""), soft_wrap=True)


def restore(
    name: NameArgument,
    revision: Annotated[
        str,
        typer.Option("--revision", metavar="R", help="Revision of a change that `herd history` shows with a config."),
    ],
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="KEY=VALUE", help="A value that history does not keep; repeatable."),
    ] = None,
    config_store: ConfigStoresOption = None,
    wait: WaitOption = None,
    timeout: TimeoutOption = "",
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Set a connector's config back to an earlier one, also of a deleted connector. It is validated as any update."""

    async def work(client: HerderClient) -> None:
        waiting = wait_of(wait, timeout)
        given = dict(_pair(text) for text in secret or ())
        entry = await _entry(name, revision, config_store)
        current = await _current(client, name)
        known = properties.from_proto(current.config) if current is not None else {}
        config = properties.from_proto(entry.config_after)
        missing = [key for key in entry.redacted_properties if key not in given and key not in known]
        if missing:
            text = (
                f"history does not keep the values of {', '.join(missing)}, and the current config does not have them"
            )
            raise CommandError("USAGE", text, "Give each with --secret KEY=VALUE.", EXIT_USAGE)
        taken = [key for key in entry.redacted_properties if key not in given]
        config |= {key: known[key] for key in taken} | given
        request = messages.UpdateConnectorRequest(
            request_id=new_request_id(), name=name, config=properties.to_proto(config), allow_missing=current is None
        )
        if current is not None:
            request.expected_revision.CopyFrom(current.config_revision)
        await waiting.remember(client, [name])
        reply = await client.call(lambda stub: stub.UpdateConnector, request)
        tell_warnings(name, reply.warnings)
        if not output.is_document:
            kept = f"; with their current values: {escape(', '.join(taken))}" if taken else ""
            out.print(f"connector [bold]{escape(name)}[/] has its config of revision {escape(revision)} again{kept}")
        document = {
            "result": "unchanged" if reply.unchanged else "restored",
            "secrets_from_current": taken,
            **views.connector(reply.connector),
            "warnings": views.warnings(reply.warnings),
        }
        restarts = current is not None and not reply.unchanged
        late = await waiting.until(client, {name: waiting.floors_of(name) if restarts else Floors()})
        end_with(output, [document], late.get(name))

    with_herder(output, herder, work)


async def _entry(name: str, revision: str, config_store: str | None) -> store.HistoryEntry:
    """The change at a revision, which may be given in full or as history shows it. Raises CommandError when it has no
    config.
    """
    async for entry in history_entries(name, config_store):
        text = revisions.to_text(revisions.from_proto(entry.revision))
        if revision in (text, text.rpartition("@")[2]):
            if not entry.HasField("config_after"):
                raise CommandError(
                    "USAGE", f"the change at {revision} ({entry.operation}) has no config", exit_code=EXIT_USAGE
                )
            return entry
    raise from_reason("HISTORY_NOT_FOUND", f"no change of {name} at revision {revision}")


async def _current(client: HerderClient, name: str) -> Any:
    """The current connector, None when there is none."""
    try:
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
    except CommandError as error:
        if error.reason == "CONNECTOR_NOT_FOUND":
            return None
        raise
    return reply.connector


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CommandError("USAGE", "--secret is KEY=VALUE", exit_code=EXIT_USAGE)
    return key, value
