"""`herd consume`: records of topics on the terminal or in a pipe, as bytes or decoded by converters."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.command_end import command_end
from herdmesh.cli.commands.data.options import (
    AsConnectorOption,
    BootstrapOption,
    CommandConfigOption,
    ConverterConfigOption,
    HeaderConverterOption,
    KeyConverterOption,
    ValueConverterOption,
    WorkerOption,
    converters,
)
from herdmesh.cli.display.output import Format, err, out
from herdmesh.cli.display.record_option import RecordOutputOption
from herdmesh.cli.errors import EXIT_CODES, EXIT_INTERNAL, CommandError
from herdmesh.cli.kafka.options import ConverterOptions
from herdmesh.cli.runner import HerderOption
from herdmesh.cli.transform.options import Direction

if TYPE_CHECKING:
    from herdmesh.cli.display.records import RecordPrinter
    from herdmesh.cli.kafka.consuming import TopicConsumer
    from herdmesh.cli.transform.running import Runner
    from herdmesh.connect.model import ConnectRecord

_FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="beginning, end, an offset, -10 (the last ten of each partition), an age such as 15m, or a time. "
        "Default: beginning, with --follow end.",
    ),
]
_FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records; Ctrl-C ends.")]
_LimitOption = Annotated[int, typer.Option("--limit", "-n", min=0, metavar="N", help="End after N records; 0 = all.")]
_PartitionOption = Annotated[
    list[int] | None, typer.Option("--partition", min=0, metavar="N", help="Only this one. Repeatable.")
]
_UncommittedOption = Annotated[
    bool, typer.Option("--uncommitted", help="Also records of open and aborted transactions.")
]


def consume(
    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.", autocompletion=completion.topics)
    ],
    start: _FromOption = None,
    follow: _FollowOption = False,
    limit: _LimitOption = 0,
    partitions: _PartitionOption = None,
    uncommitted: _UncommittedOption = False,
    as_connector: AsConnectorOption = None,
    key_converter: KeyConverterOption = None,
    value_converter: ValueConverterOption = None,
    header_converter: HeaderConverterOption = None,
    converter_config: ConverterConfigOption = None,
    worker: WorkerOption = None,
    herder: HerderOption = None,
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: RecordOutputOption = Format.TABLE,
) -> None:
    """Print the records of topics, up to their ends as they are now. Joins no group and commits no offset.

    Exit code 1 if a converter refused a record; that record is printed as its bytes.
    """
    with command_end(output):
        from herdmesh.cli.display.records import RecordPrinter
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin, partitions_of
        from herdmesh.cli.kafka.consuming import TopicConsumer
        from herdmesh.cli.kafka.start import StartPlace, spans
        from herdmesh.cli.kafka.topics import known

        begin = StartPlace.parse(start if start is not None else "end" if follow else "beginning")
        access = find_kafka(bootstrap_servers, command_config)
        named = ConverterOptions(
            key_converter, value_converter, header_converter, converter_config or (), worker, as_connector
        )
        runner = converters(named, herder, Direction.SINK)
        admin = KafkaAdmin(access)
        topics = known(admin, names)
        chosen = [one for one in partitions_of(topics, names) if not partitions or one[1] in partitions]
        if not chosen:
            raise _no_partition(names, partitions or [])
        parts = spans(admin, topics, chosen, begin, uncommitted=uncommitted)
        printer = RecordPrinter(output, several_topics=len(names) > 1, aligned=sys.stdout.isatty(), headers=out.headers)
        with closing(TopicConsumer(access, parts, uncommitted=uncommitted)) as consumer:
            printed, refused = _print_records(consumer, printer, runner, limit=limit, follow=follow)
        if not printed and not output.is_document:
            err.print(f"[dim]no records in {escape(', '.join(names))} from there on[/]", soft_wrap=True)
        if refused:
            raise typer.Exit(EXIT_INTERNAL)


def _print_records(
    consumer: TopicConsumer, printer: RecordPrinter, runner: Runner | None, *, limit: int, follow: bool
) -> tuple[int, int]:
    """Print records as they come. Returns the number of printed ones, and of those that the converters refused."""
    from herdmesh.cli.kafka.conversion import decoded

    printed = refused = 0

    def report(record: ConnectRecord, text: str) -> None:
        nonlocal refused
        refused += 1
        place = f"{record.topic}-{record.partition}:{record.offset}"
        err.print(f"[bold red]not decoded[/] {escape(place)}: {escape(text)}", soft_wrap=True)

    for batch in consumer.batches(follow=follow):
        part = batch[: limit - printed] if limit else batch
        sys.stdout.buffer.writelines(printer.lines(part if runner is None else list(decoded(runner, part, report))))
        sys.stdout.buffer.flush()
        printed += len(part)
        if limit and printed >= limit:
            break
    return printed, refused


def _no_partition(names: list[str], partitions: list[int]) -> CommandError:
    text = f"no partition {', '.join(map(str, partitions))} in {', '.join(names)}"
    fix = f"`herd topics describe {names[0]}` lists the partitions."
    return CommandError("TOPIC_NOT_FOUND", text, fix, EXIT_CODES["TASK_NOT_FOUND"])
