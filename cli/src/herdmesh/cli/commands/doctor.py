"""`herd doctor`: what is wrong with the mesh, and what to do.

Owns the command and its output. The checks are in `herdmesh.cli.doctor`. Exit code 1 when there is an error; a warning
heals by itself or may become an error, and leaves the exit code at 0: a mesh whose database is down is healthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from herdmesh.cli import completion
from herdmesh.cli.display import findings, views
from herdmesh.cli.display.output import Format, colored, out, print_document, table
from herdmesh.cli.doctor import CODES, ExaminedServices, examine
from herdmesh.cli.doctor.codes import PAGE
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import find_config_stores, find_herder, find_status_stores
from herdmesh.cli.mesh.contexts import KAFKA_ENV, find_kafka_target
from herdmesh.cli.runner import HerderOption, OutputOption, run

#: Maximum number of undecodable records, and of groups of findings of one severity, for people; `-o json` has all.
_SHOWN_MAX: Final = 20
_STYLES: Final = {"error": "bold red", "warning": "bold yellow"}


def _stores_option(variable: str, port: int) -> Any:
    default = f"{variable}, the current context, the stack in ./.herd, else 127.0.0.1:{port}"
    return typer.Option(metavar="HOST:PORT,...", help=f"Every replica to check. Default: {default}.")


ConfigStoresOption = Annotated[str | None, _stores_option("HERDMESH_CONFIG_STORE", 7201)]
StatusStoresOption = Annotated[str | None, _stores_option("HERDMESH_STATUS_STORE", 7202)]


def doctor(
    config_store: ConfigStoresOption = None,
    status_store: StatusStoresOption = None,
    herder: HerderOption = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT,...",
            help=f"Kafka to check from here. Default: {KAFKA_ENV}, the current context, the stack in ./.herd, else "
            "none.",
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="CODE",
            help="Print what a finding's code means, and end.",
            autocompletion=completion.finding_codes,
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Report what is wrong with connectors, tasks, workers, stores, herder, supervisor, Kafka, versions, clocks and
    disks, each with a code and a next step; exit code 1 when there is an error.
    """

    async def work() -> None:
        if explain is not None:
            _explain(explain, output)
            return
        found = await examine(
            ExaminedServices(
                find_config_stores(config_store),
                find_status_stores(status_store),
                find_herder(herder),
                *_kafka(bootstrap_servers),
            )
        )
        if output.is_document:
            print_document(output, found, rows=_finding_rows(found["findings"]))
        else:
            _print(found)
        if not found["healthy"]:
            raise typer.Exit(1)

    run(output, work)


def _kafka(option: str | None) -> tuple[str, str]:
    """The Kafka to check and the file with its login, but for that of the stack in ./.herd, which is checked when it is
    the herder's. "" = none is known.
    """
    try:
        target = find_kafka_target(option)
    except CommandError:
        return "", ""
    return ("", "") if target.source == "folder" else (target.address, target.command_config)


def _explain(name: str, output: Format) -> None:
    code = CODES.get(name.upper())
    if code is None:
        text = f"no finding has the code {name}; there are: {', '.join(sorted(CODES))}"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    if output.is_document:
        print_document(
            output,
            {"code": name.upper(), "severity": code.severity, "meaning": code.meaning, "next_step": code.next_step},
        )
        return
    out.print_sentence(f"[{_STYLES[code.severity]}]{name.upper()}[/] ({code.severity}): {escape(code.meaning)}")
    out.print_sentence(f"[dim]next:[/] {escape(code.next_step)}")


def _finding_rows(found: Sequence[views.Json]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of `-o csv`: a line for each finding."""
    keys = ("code", "severity", "part", "name", "message", "next_step", "since")
    return [key.upper() for key in keys], [[escape(str(one.get(key) or "")) for key in keys] for one in found]


def _print(found: views.Json) -> None:
    if found["findings"]:
        out.print_sentence(_verdict(found["findings"]))
    else:
        out.print("everything is healthy")
    groups = findings.grouped(found["findings"])
    for severity in ("error", "warning"):
        _print_groups([one for one in groups if one.first["severity"] == severity])
    rows = [
        [
            one["store"],
            escape(one["address"]),
            one["role"] or "-",
            colored(one["condition"]),
            str(one["undecodable_count"]),
        ]
        for one in found["replicas"]
    ]
    leader = found["herder"]
    rows.append(["herder", escape(leader["address"]), "-", colored(leader["state"]), "-"])
    columns = ("PART", "ADDRESS", "ROLE", "CONDITION", "UNDECODABLE")
    out.print()
    out.print(table(None, columns, rows, drop=("ROLE", "UNDECODABLE")))
    told = {one["message"] for one in found["findings"]}
    for one in found["workers"]:
        if one["reason"] and one["reason"] not in told:
            out.print_sentence(f"\n[bold]worker {escape(one['worker_id'])}[/]: {escape(one['reason'])}")
    for replica in found["replicas"]:
        _print_undecodable(replica)
    _print_checks(found)


def _print_groups(groups: Sequence[findings.FindingGroup]) -> None:
    for group in groups[:_SHOWN_MAX]:
        out.print()
        for whole, brief in findings.lines_of(group, _STYLES[group.first["severity"]]):
            out.print_sentence(whole, brief=brief)
    if len(groups) > _SHOWN_MAX:
        left = sum(len(one.findings) for one in groups[_SHOWN_MAX:])
        out.print_sentence(f"\nand {left} more of this severity; `-o json` has them all")


def _verdict(listed: Sequence[views.Json]) -> str:
    errors = sum(one["severity"] == "error" for one in listed)
    warnings = len(listed) - errors
    counts = [f"[bold red]{_many(errors, 'error')}[/]"] if errors else ["no errors"]
    counts += [f"[bold yellow]{_many(warnings, 'warning')}[/]"] if warnings else []
    return ", ".join(counts)


def _print_checks(found: views.Json) -> None:
    """The parts that were checked; where there are findings, the verdict again, which a long list has moved away."""
    out.print_sentence(f"\n[dim]checked: {escape(', '.join(found['checked']))}[/]")
    for one in found["unchecked"]:
        out.print_sentence(f"[dim]not checked: {escape(one)}[/]")
    if found["findings"]:
        out.print_sentence(f"{_verdict(found['findings'])}; `herd doctor --explain CODE`, or {PAGE}, says more")


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_undecodable(replica: views.Json) -> None:
    latest = replica["undecodable"][-_SHOWN_MAX:]
    if not latest:
        return
    rows = [
        [escape(one["topic"]), str(one["partition"]), str(one["offset"]), escape(one["key"]), escape(one["reason"])]
        for one in latest
    ]
    title = f"\nundecodable in {replica['store']} {replica['address']}, the latest {len(latest)}"
    out.print(table(escape(title), ("TOPIC", "PARTITION", "OFFSET", "KEY", "REASON"), rows))
