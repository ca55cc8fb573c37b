"""`herd topics create|list|describe|delete`: topics of the mesh's Kafka, or of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.command_end import command_end
from herdmesh.cli.commands.data.options import (
    BootstrapOption,
    CommandConfigOption,
    YesOption,
    confirm,
    counted,
)
from herdmesh.cli.display.output import Format, count, err, out, print_document, table
from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_CODES, EXIT_USAGE, CommandError
from herdmesh.cli.runner import OutputOption

topics_app = typer.Typer(
    no_args_is_help=True, help="Topics of Kafka: create, list, describe, delete. `herd get topics` has a connector's."
)
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.", autocompletion=completion.topics)
]
InternalOption = Annotated[
    bool, typer.Option("--internal", help="Also Kafka's own topics (__...) and those with the mesh's state.")
]


@topics_app.command("create")
def create_topics(
    names: NamesArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, metavar="N", help="Default: the broker's num.partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, metavar="N", help="Default: 3, or one per broker of a smaller cluster."
        ),
    ] = None,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="KEY=VALUE", help="A topic config, such as cleanup.policy=compact. Repeatable."
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if it exists; nothing is changed.")
    ] = (False),
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Create topics, and wait until each partition has a leader."""
    with command_end(output):
        from herdmesh.cli.kafka import topics
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin

        given = dict(_pair(one) for one in configs or ())
        created = topics.create(
            KafkaAdmin(find_kafka(bootstrap_servers, command_config, is_change=True)),
            names,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=given,
            accept_existing=if_not_exists,
        )
        if output.is_document:
            print_document(output, created, kind="topic")
            return
        for one in created:
            fit = ""
            if one["result"] == "created" and replication_factor is None and one["brokers"] < topics.REPLICAS_USUAL:
                fit = f" (fits the cluster's {counted(one['brokers'], 'broker')})"
            verb = "created" if one["result"] == "created" else "exists already; nothing was changed"
            out.print_sentence(
                f"topic [bold]{escape(one['name'])}[/] {verb}: {counted(one['partitions'], 'partition')}, "
                f"replication factor {one['replication_factor']}{fit}"
            )


@topics_app.command("list")
def list_topics(
    internal: InternalOption = False,
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List topics. RECORDS is the distance from the first to the last offset: more than there are where records were
    compacted away or written in transactions.
    """
    with command_end(output):
        from herdmesh.cli.kafka import topics
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin

        access = find_kafka(bootstrap_servers, command_config)
        found = topics.list_all(KafkaAdmin(access), internal=internal)
        if output.is_document:
            print_document(output, found, kind="topic")
            return
        if not found:
            out.print(f"no topics at {escape(access.bootstrap_servers)}")
            err.print("[dim]next:[/] `herd topics create NAME` creates one; --internal lists those of the mesh.")
            return
        rows = [
            (
                escape(one["name"]),
                str(one["partitions"]),
                str(one["replication_factor"]),
                count(one["records"]),
            )
            for one in found
        ]
        out.print(table(None, ("NAME", "PARTITIONS", "REPLICAS", "RECORDS"), rows, drop=("REPLICAS", "PARTITIONS")))


@topics_app.command("describe")
def describe_topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=completion.topics)],
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show a topic: leader, replicas and offsets of each partition, and the configs that were set for it."""
    with command_end(output):
        from herdmesh.cli.kafka import topics
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin

        found = topics.describe(KafkaAdmin(find_kafka(bootstrap_servers, command_config)), name)
        if output.is_document:
            print_document(output, found, kind="topic")
            return
        out.print_sentence(
            f"topic [bold]{escape(name)}[/]: {counted(len(found['partitions']), 'partition')}, "
            f"replication factor {found['replication_factor']}{_trouble(found['partitions'])}"
        )
        for key, value in found["configs"].items():
            out.print(f"{escape(key)}={escape(str(value))}", soft_wrap=True)
        rows = [
            (
                str(one["partition"]),
                "[bold red]none[/]" if one["leader"] is None else str(one["leader"]),
                ",".join(map(str, one["replicas"])),
                ",".join(map(str, one["in_sync_replicas"])),
                count(one["first_offset"]),
                count(one["end_offset"]),
            )
            for one in found["partitions"]
        ]
        columns = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "FIRST OFFSET", "END OFFSET")
        out.print(table(None, columns, rows, drop=("FIRST OFFSET", "END OFFSET")))


@topics_app.command("delete")
def delete_topics(
    names: NamesArgument,
    yes: YesOption = False,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Succeed even if it does not exist.")] = False,
    internal: InternalOption = False,
    bootstrap_servers: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Delete topics with all their records."""
    with command_end(output):
        from herdmesh.cli.kafka import topics
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin

        guarded = [name for name in names if topics.is_internal(name)]
        if guarded and not internal:
            text = f"{', '.join(guarded)}: it has the state of Kafka or of the mesh, which stops working without it"
            raise CommandError(
                "REQUEST_INVALID", text, "--internal deletes it all the same.", EXIT_CODES["REQUEST_INVALID"]
            )
        admin = KafkaAdmin(find_kafka(bootstrap_servers, command_config, is_change=True))
        if not allow_missing:
            topics.known(admin, names)
        confirm(f"Delete {', '.join(names)} of {admin.access.name} with all records?", yes=yes)
        done = topics.delete(admin, names, accept_missing=allow_missing)
        if output.is_document:
            print_document(output, done, kind="topic")
            return
        for one in done:
            verb = "deleted" if one["result"] == "deleted" else "does not exist"
            out.print(f"topic [bold]{escape(one['name'])}[/] {verb}")


def _trouble(partitions: Sequence[Json]) -> str:
    """The partitions that need a broker, as markup: of 100 partitions one is easily overlooked in the table."""
    offline = sum(one["leader"] is None for one in partitions)
    behind = sum(len(one["in_sync_replicas"]) < len(one["replicas"]) for one in partitions)
    text = f", [bold red]{counted(offline, 'partition')} without a leader[/]" if offline else ""
    return text + (f", [yellow]{counted(behind, 'partition')} with replicas that are not in sync[/]" if behind else "")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CommandError("USAGE", f"--config {text}: write KEY=VALUE", exit_code=EXIT_USAGE)
    return key, value
