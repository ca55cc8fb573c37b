"""`herd offsets get|set|reset|rewind`: the offsets of a connector, read and changed (KIP-875).

Owns the four commands. The output of `get -o json` is the input of `set -f`, and of Connect's REST API. Invariant: a
change is sent under one request id however often it is repeated, and never without a confirmation or --yes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import offset_messages_pb2 as messages
from herdmesh.cli.batch.confirming import confirm
from herdmesh.cli.commands.create import read_offsets
from herdmesh.cli.display.output import Format, err, out, print_document, table
from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, NameArgument, OutputOption, with_herder
from herdmesh.cli.times import duration, moment
from herdmesh.rpc.request_ids import new_request_id

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub
    from herdmesh.cli.display.views import Json

offsets_app = typer.Typer(no_args_is_help=True, help="Offsets of a connector: show and change them.")

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check the change, show its result, and change nothing.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="TIME", parser=duration, help="Longest wait for the connector's answer, as 30s or 5m."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_TIMEOUT_S = 90.0
"""The same time as for Java's request."""
_SINK_PARTITION = {"kafka_topic", "kafka_partition"}


@offsets_app.command("get")
def get_offsets(name: NameArgument, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show a connector's offsets: of a sink those committed by its consumer group, of a source those in its offsets
    topic. This works in any state; -o json is the input of `herd offsets set -f`.
    """

    async def work(client: HerderClient) -> None:
        reply = await client.call(lambda stub: stub.GetOffsets, messages.GetOffsetsRequest(name=name))
        found = _documents(reply.offsets)
        if output.is_document:
            print_document(output, {"offsets": found}, rows=_table_of(found))
        elif found:
            out.print(table(None, *_table_of(found)))
        else:
            out.print(f"[bold]{escape(name)}[/] has no offsets")
        if reply.message:
            err.print_sentence(f"[yellow]note:[/] {escape(reply.message)}")

    with_herder(output, herder, work)


@offsets_app.command("set")
def set_offsets(
    name: NameArgument,
    file: Annotated[
        str,
        typer.Option(
            "-f", "--file", metavar="FILE|-", help='{"offsets": [{"partition": {...}, "offset": {...}|null}]}.'
        ),
    ] = "",
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Of a sink: the partition's topic.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="Of a sink.")] = None,
    offset: Annotated[
        str,
        typer.Option("--offset", metavar="N|null", help="Of a sink: the offset of the next record; null removes it."),
    ] = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    timeout_s: TimeoutOption = _TIMEOUT_S,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Set the offsets from which a stopped connector continues, all or none; partitions that are not named keep
    theirs.
    """
    one = (topic, partition, offset)
    if bool(file) == any(part not in ("", None) for part in one):
        raise typer.BadParameter("give the offsets with --file, or one with --topic, --partition and --offset")
    if not file and any(part in ("", None) for part in one):
        raise typer.BadParameter("one offset needs --topic, --partition and --offset")
    if offset and offset != "null" and not offset.isdecimal():
        raise typer.BadParameter(f"--offset {offset}: a number, or null")

    def request() -> messages.AlterOffsetsRequest:
        wanted = messages.AlterOffsetsRequest(request_id=new_request_id(), name=name, dry_run=dry_run)
        wanted.offsets.extend(read_offsets(file) if file else [_sink_entry(topic, partition or 0, offset)])
        return wanted

    _change(lambda stub: stub.AlterOffsets, request, name, _Doing("set", dry_run, yes, timeout_s, herder, output))


@offsets_app.command("reset")
def reset(
    name: NameArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    timeout_s: TimeoutOption = _TIMEOUT_S,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Remove all offsets of a stopped connector, and show them as they were. A sink then begins according to
    consumer.override.auto.offset.reset (default: earliest), a source at its beginning.
    """

    def request() -> messages.ResetOffsetsRequest:
        return messages.ResetOffsetsRequest(request_id=new_request_id(), name=name, dry_run=dry_run)

    _change(lambda stub: stub.ResetOffsets, request, name, _Doing("reset", dry_run, yes, timeout_s, herder, output))


@offsets_app.command("rewind")
def rewind(
    name: NameArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="90s, 15m, 2h, 7d ago, or a time (UTC where it has no zone).")
    ],
    allow_forward: Annotated[
        bool,
        typer.Option(
            "--allow-forward", help="Of a sink: also beyond the committed offset; the records between are skipped."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    timeout_s: TimeoutOption = _TIMEOUT_S,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have a stopped connector continue from the first records that are not older than a time. A sink goes by the
    records' own times, in a partition without such records from its end; refused where that is beyond the committed
    offset, unless it is allowed. A source goes where its connector knows its position at that time (mirrors, tables
    with a timestamp column), never forward.
    """

    def request() -> messages.RewindOffsetsRequest:
        wanted = messages.RewindOffsetsRequest(
            request_id=new_request_id(), name=name, dry_run=dry_run, allow_forward=allow_forward
        )
        wanted.time.FromDatetime(moment(to, datetime.now(UTC), "--to"))
        return wanted

    _change(lambda stub: stub.RewindOffsets, request, name, _Doing("rewind", dry_run, yes, timeout_s, herder, output))


class _Doing:
    """The options of a change: how it is made and reported."""

    def __init__(
        self, verb: str, dry_run: bool, yes: bool, timeout_s: float, herder: str | None, output: Format
    ) -> None:
        self.verb = verb
        self.dry_run = dry_run
        self.timeout_s = timeout_s
        self.herder = herder
        self.output = output
        self._asks = not (yes or dry_run)

    @property
    def caption(self) -> str:
        """The caption of the offsets that a change shows."""
        if self.verb == "reset":
            return "to be removed" if self.dry_run else "as they were"
        return "as they would be" if self.dry_run else "as they are now"

    def confirm(self, name: str) -> None:
        """Ask the user, unless no question is needed. Raises as `confirming.confirm`."""
        if self._asks:
            question = {"set": "Change", "reset": "Remove all", "rewind": "Rewind all"}[self.verb]
            confirm(self.verb, f"{question} offsets of connector {name}?")


def _change(
    pick: Callable[[ConnectorServiceAsyncStub], Callable[..., Any]],
    request: Callable[[], Any],
    name: str,
    doing: _Doing,
) -> None:
    async def work(client: HerderClient) -> None:
        wanted = request()  # checks the arguments, so that nobody is asked in vain
        doing.confirm(name)
        try:
            reply = await client.call(pick, wanted, doing.timeout_s)
        except CommandError as error:
            if error.reason == "CONNECTOR_NOT_STOPPED":
                error.next_step = f"`herd stop {name}` stops it; `herd resume {name}` lets it run again afterwards."
            raise
        found = _documents(reply.offsets)
        if doing.output.is_document:
            print_document(
                doing.output,
                {
                    "result": doing.verb,
                    "name": name,
                    "dry_run": doing.dry_run,
                    "message": reply.message,
                    "offsets": found,
                },
            )
            return
        out.print_sentence(f"[bold]{escape(name)}[/]: {escape(reply.message)}")
        if found:
            out.print(f"[dim]{doing.caption}:[/]")
            out.print(table(None, *_table_of(found)))

    with_herder(doing.output, doing.herder, work)


def _sink_entry(topic: str, partition: int, offset: str) -> messages.OffsetEntry:
    place = json.dumps({"kafka_topic": topic, "kafka_partition": partition})
    entry = messages.OffsetEntry(partition_json=place)
    if offset != "null":
        entry.offset_json = json.dumps({"kafka_offset": int(offset)})
    return entry


def _documents(entries: Sequence[messages.OffsetEntry]) -> list[Json]:
    """Offsets in Connect's form."""
    return [
        {
            "partition": json.loads(entry.partition_json),
            "offset": json.loads(entry.offset_json) if entry.HasField("offset_json") else None,
        }
        for entry in entries
    ]


def _table_of(found: Sequence[Json]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Columns and rows: of a sink topic, partition and offset, of a source what its connector stores."""
    if all(_is_sinks(one["partition"]) for one in found):
        rows: list[Sequence[str]] = [
            (
                escape(str(one["partition"]["kafka_topic"])),
                str(one["partition"]["kafka_partition"]),
                "-" if one["offset"] is None else str(one["offset"]["kafka_offset"]),
            )
            for one in found
        ]
        return ("TOPIC", "PARTITION", "OFFSET"), rows
    rows = [
        tuple(escape(json.dumps(one[side], ensure_ascii=False)) for side in ("partition", "offset")) for one in found
    ]
    return ("SOURCE PARTITION", "SOURCE OFFSET"), rows


def _is_sinks(partition: Any) -> bool:
    return isinstance(partition, dict) and set(cast("Json", partition)) == _SINK_PARTITION
