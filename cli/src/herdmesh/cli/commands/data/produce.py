"""`herd produce`: records from files, standard input or options into a topic, each one's delivery confirmed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

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
    counted,
)
from herdmesh.cli.display.output import Format, err, out, print_document
from herdmesh.cli.errors import EXIT_CODES, CommandError
from herdmesh.cli.kafka.options import ConverterOptions
from herdmesh.cli.runner import HerderOption, OutputOption
from herdmesh.cli.transform.options import Direction, RecordForm

if TYPE_CHECKING:
    from herdmesh.cli.kafka.given_records import GivenRecords
    from herdmesh.cli.kafka.producing import Delivery, TopicProducer

_InputOption = Annotated[
    RecordForm,
    typer.Option(
        "--input",
        help="lines: each a value; records: JSON objects with key, value, headers, partition, timestamp, as "
        "`herd consume -o json` prints them; typed: with schemas. Default: detected from the first line.",
    ),
]
_WholeFilesOption = Annotated[
    bool, typer.Option("--whole-files", help="Each FILE is the value of one record, to the last byte.")
]
_KeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of records without one.")]
_KeySeparatorOption = Annotated[
    str | None, typer.Option("--key-separator", metavar="TEXT", help="A line is KEY, this text, VALUE.")
]
_KeyFieldOption = Annotated[
    str | None, typer.Option("--key-field", metavar="NAME", help="The key is this field of a JSON value.")
]
_HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of every record. Repeatable.")
]
_TombstoneOption = Annotated[
    bool, typer.Option("--tombstone", help="One record with --key and no value, which deletes that key.")
]
_NullMarkerOption = Annotated[
    str | None, typer.Option("--null-marker", metavar="TEXT", help="A line that is this text is a null value.")
]
_PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="Default: by the key, as Java's producer does.")
]
_KeySchemaOption = Annotated[
    Path | None, typer.Option("--key-schema", metavar="FILE", help="As --value-schema, for keys.")
]
_ValueSchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--value-schema",
        metavar="FILE",
        help='Schema of JSON values for the converter: {"type": "struct", "fields": [...]}.',
    ),
]
_FORMS_TO_NAME: Final = (RecordForm.RECORDS, RecordForm.TYPED)
_SHOWN: Final = 20


def produce(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Name of the topic; it must exist.", autocompletion=completion.topics)
    ],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE|-]...", help="Records; none = stdin.")] = None,
    form: _InputOption = RecordForm.AUTO,
    whole_files: _WholeFilesOption = False,
    key: _KeyOption = None,
    key_separator: _KeySeparatorOption = None,
    key_field: _KeyFieldOption = None,
    headers: _HeaderOption = None,
    tombstone: _TombstoneOption = False,
    null_marker: _NullMarkerOption = None,
    partition: _PartitionOption = None,
    as_connector: AsConnectorOption = None,
    key_converter: KeyConverterOption = None,
    value_converter: ValueConverterOption = None,
    header_converter: HeaderConverterOption = None,
    converter_config: ConverterConfigOption = None,
    key_schema: _KeySchemaOption = None,
    value_schema: _ValueSchemaOption = None,
    worker: WorkerOption = None,
    herder: HerderOption = None,
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Write records to a topic; without a converter, their bytes as they are.

    Ends with exit code 0 only if the broker confirmed every record. A record with "value": null is a tombstone.
    """
    with command_end(output):
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.given_records import GivenRecords, RecordOptions
        from herdmesh.cli.kafka.producing import TopicProducer

        options = RecordOptions(
            form, whole_files, key, key_separator, key_field, headers or (), partition, null_marker, tombstone,
            key_schema, value_schema,
        )  # fmt: skip
        options.check(files or ())
        access = find_kafka(bootstrap_servers, command_config, is_change=True)
        named = ConverterOptions(
            key_converter, value_converter, header_converter, converter_config or (), worker, as_connector
        )
        runner = converters(named, herder, Direction.SOURCE)
        records = GivenRecords(topic, options, runner)
        _send(records, TopicProducer(access, topic), files or [], output)


def _send(records: GivenRecords, producer: TopicProducer, files: list[str], output: Format) -> None:
    """Send all records and report. Raises CommandError unless all are delivered."""
    if not files and not records.options.tombstone and sys.stdin.isatty():
        err.print("[dim]one record a line; Ctrl-D ends[/]")
    try:
        for batch in records.batches(files):
            producer.send(batch)
    except BaseException:  # also Ctrl-C: records that were sent are confirmed and counted
        done = producer.finish()
        err.print(f"{counted(done.delivered, 'record')} in topic {escape(done.topic)} until then", soft_wrap=True)
        raise
    done = producer.finish()
    error = _incomplete(records, done)
    failures = [*records.refused, *done.failures]
    if output.is_document:
        shown = [{"record": where, "message": text} for where, text in failures]
        print_document(output, {**done.document(), "refused": len(records.refused), "failures": shown})
        if error is not None:
            raise typer.Exit(error.exit_code)
        return
    detected = records.options.form is RecordForm.AUTO and records.form in _FORMS_TO_NAME
    read_as = f", each line read as a record (--input {records.form})" if detected else ""
    out.print(f"{counted(done.delivered, 'record')} in topic [bold]{escape(done.topic)}[/]{read_as}", soft_wrap=True)
    for where, text in failures[:_SHOWN]:
        err.print(f"  {escape(where)}: {escape(text)}", soft_wrap=True)
    if error is not None:
        raise error


def _incomplete(records: GivenRecords, done: Delivery) -> CommandError | None:
    """The error of a command that did not deliver everything: data loss if the broker did not confirm a record,
    invalid input otherwise.
    """
    if done.undelivered:
        return CommandError(
            "NOT_DELIVERED",
            f"the broker did not confirm {counted(done.undelivered, 'record')} of {done.sent:,}",
            f"They may be missing: `herd consume {done.topic} --from -10` shows the last ones.",
            EXIT_CODES["RECORD_CORRUPT"],
        )
    if records.refused:
        return CommandError(
            "REQUEST_INVALID",
            f"{counted(len(records.refused), 'line')} not sent: no record could be made of them",
            "Correct these lines and send them alone: the other lines are in the topic.",
            EXIT_CODES["REQUEST_INVALID"],
        )
    return None
