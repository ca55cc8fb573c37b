"""`herd plan`: the effects of applying a file. Changes nothing."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient
from herdmesh.cli.commands.apply import FilesOption, read_connectors, refuse_invalid, tell_warnings, to_properties
from herdmesh.cli.output import Format, colored, out, print_document, table
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder


def plan(files: FilesOption, herder: HerderOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show what `herd apply` of these files would start, stop, restart and keep, and the effect on offsets."""

    async def work(client: HerderClient) -> None:
        plans: list[views.Json] = []
        for source in files:
            for name, config in read_connectors(source):
                plans.append(await _plan(client, name, config))
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
    else:
        out.print("nothing would change")
    for note in found["notes"]:
        out.print(f"note: {escape(note)}", soft_wrap=True)
