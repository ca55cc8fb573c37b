"""`herd plan`: the effects of applying a file. Changes nothing."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.batch.connector_files import read_all, to_properties
from herdmesh.cli.commands.apply import FilesOption, RecursiveOption, not_all, refuse_invalid, tell_warnings
from herdmesh.cli.display import views
from herdmesh.cli.display.output import Format, colored, out, print_document, table
from herdmesh.cli.mesh import bounded
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder


def plan(
    files: FilesOption,
    recursive: RecursiveOption = False,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what `herd apply` of these files would start, stop, restart and keep, and the effect on offsets."""

    async def work(client: HerderClient) -> None:
        given, bad = read_all(files, recursive=recursive)
        outcomes = await bounded.run_all(given, lambda one: _plan(client, one.name, one.config))
        bad += [(outcome.item.source, outcome.error) for outcome in outcomes if outcome.error is not None]
        if bad:
            raise not_all(bad, "nothing was changed")
        plans = [outcome.result for outcome in outcomes if outcome.result is not None]
        if output.is_document:
            print_document(output, plans if len(plans) != 1 else plans[0])
        else:
            for one in plans:
                _print_plan(one)

    with_herder(output, herder, work)


async def _plan(client: HerderClient, name: str, config: dict[str, Any]) -> views.Json:
    request = messages.PlanConfigRequest(name=name, config=to_properties({"name": name, **config}))
    reply = await client.call(lambda stub: stub.PlanConfig, request)
    refuse_invalid(name, reply.validation)
    tell_warnings(name, reply.validation.warnings)
    return {
        "name": name,
        "steps": [views.plan_step(one) for one in reply.steps],
        "notes": list(reply.notes),
        "warnings": views.warnings(reply.validation.warnings),
    }


def _print_plan(found: views.Json) -> None:
    out.print(f"[bold]{escape(found['name'])}[/]")
    rows = [
        [
            "connector" if one["task"] is None else f"task {one['task']}",
            colored(one["action"]),
            escape(one["reason"]),
        ]
        for one in found["steps"]
    ]
    if rows:
        out.print(table(None, ("WHAT", "ACTION", "WHY"), rows))
    elif not found["notes"]:
        out.print("nothing would change")
    for note in found["notes"]:
        out.print_sentence(f"note: {escape(note)}")
