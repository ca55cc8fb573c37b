"""`herd doctor`: the conditions that keep the mesh from working, and their fixes.

Owns the queries (every replica of both stores, the herder) and the advice per finding. The store itself names its
condition; nothing here guesses. Exit code 0 when every replica is HEALTHY, no record is undecodable and a herder leads;
else 1. Connectors and tasks that wait, stall or failed are listed too, but do not count: a mesh whose database is down
is healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli import views
from herdmesh.cli.client import HerderClient, find_config_stores, find_herder, find_status_stores
from herdmesh.cli.commands.get import fetch_connectors, print_refused_plugins
from herdmesh.cli.errors import CommandError
from herdmesh.cli.output import Format, colored, out, print_document, table
from herdmesh.cli.runner import HerderOption, OutputOption, run
from herdmesh.devstack.readiness import store_status
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

#: A store answers in every role; one that does not answer within this time counts as missing.
_TIMEOUT_S: Final = 5.0
_HERDER_PATIENCE_S: Final = 2.0
#: Maximum number of undecodable records, and of waits, printed for people; `-o json` has all that the store keeps.
_SHOWN_MAX: Final = 20

HINTS: Final[dict[str, str]] = {
    "BROKER_UNREACHABLE": "Start Kafka, or correct bootstrap_servers; the store then continues by itself.",
    "CLEANUP_POLICY_WRONG": "Run the command in the message; the store checks again within seconds.",
    "PARTITION_COUNT_WRONG": "Choose one of the ways in the message; the store checks again within seconds.",
    "NOT_AUTHORIZED": "Run the command in the message as a Kafka administrator; the store then continues by itself.",
    "TOPIC_RECREATED": "Find out who deleted the topic; the store starts again with the present one.",
    "FOREIGN_WRITER": "Stop that Java Connect cluster: the store then takes over by itself. Till then it is a replica.",
    "FENCED": "Wait some seconds and run `herd doctor` again; if it stays, find the other process of this group.id.",
    "TAKE_OVER_BLOCKED": "Wait some seconds and run `herd doctor` again; if it stays, do what the message says.",
    "FAILED": "Read the store's log; its supervisor starts it again.",
    "UNREACHABLE": "Start the store, or name the right address with --config-store or --status-store.",
    "UNDECODABLE": "Another program writes to this topic. These records change nothing and can stay; write a "
    "tombstone to their key to have compaction remove them.",
    "DUPLICATE_WORKER_ID": "`herd get workers` shows the one that is used; the log of the other has the same message.",
    "WAITING": "Check what it waits for: it then continues by itself. `herd describe connector` shows its attempts.",
    "STALLED": "Repair what it waits for, or read the stacks in its worker's log; `herd restart` abandons the run.",
    "RECONFIGURATION_LIMITED": "Find out why the connector requests new task configs: its log has the reason.",
    "NO_LEADER": "A herder needs a config store that writes: fix the findings above first, then read its log.",
}


def _stores_option(variable: str, port: int) -> Any:
    default = f"{variable}, the current context, the stack in ./.herd, else 127.0.0.1:{port}"
    return typer.Option(metavar="HOST:PORT,...", help=f"Every replica to check. Default: {default}.")


#: Conditions of connectors and tasks that are listed as notices; WAITING has a list of its own.
_NOTED: Final = ("STALLED", "RECONFIGURATION_LIMITED")
_LOOK: Final = "`herd describe connector` has the trace."


ConfigStoresOption = Annotated[str | None, _stores_option("HERDMESH_CONFIG_STORE", 7201)]
StatusStoresOption = Annotated[str | None, _stores_option("HERDMESH_STATUS_STORE", 7202)]


def doctor(
    config_store: ConfigStoresOption = None,
    status_store: StatusStoresOption = None,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Report what keeps stores and herder from working, and what to do; exit code 1 when there is a finding."""

    async def work() -> None:
        found = await examine(find_config_stores(config_store), find_status_stores(status_store), find_herder(herder))
        if output.is_document:
            print_document(output, found)
        else:
            _print(found)
        if not found["healthy"]:
            raise typer.Exit(1)

    run(output, work)


async def examine(config_stores: Sequence[str], status_stores: Sequence[str], herder: str) -> views.Json:
    """Query all services at once. Keys: `healthy`, `replicas`, `herder`; `findings`, `waits` and `notices`, each with a
    `hint`; `refused_plugins` as in `herd get plugins`.
    """
    asked = [("config-store", address) for address in config_stores]
    asked += [("status-store", address) for address in status_stores]
    leader, *replicas = await asyncio.gather(_herder(herder), *(_replica(store, address) for store, address in asked))
    waits, notices, refused_plugins = leader.pop("waits"), leader.pop("notices"), leader.pop("plugins")
    findings = [finding for replica in replicas for finding in _findings(replica)]
    if leader["state"] != "LEADS":
        reason = "UNREACHABLE" if leader["state"] == "UNREACHABLE" else "NO_LEADER"
        hint = "`herd up` starts a herder; --herder names another." if reason == "UNREACHABLE" else HINTS["NO_LEADER"]
        findings.append(_finding("herder", herder, reason, leader["message"], hint))
    for worker in leader["workers"]:
        findings += [
            _finding("worker", worker["worker_id"], one["type"], one["message"], HINTS.get(one["type"], ""))
            for one in worker["conditions"]
        ]
    return {
        "healthy": not findings,
        "replicas": list(replicas),
        "herder": leader,
        "findings": findings,
        "waits": waits,
        "notices": notices,
        "refused_plugins": refused_plugins,
    }


async def _replica(store: str, address: str) -> views.Json:
    known = {"store": store, "address": address}
    async with connect(address) as channel:
        try:
            return {**known, **views.store(await store_status(channel, store, _TIMEOUT_S))}
        except HerdmeshError as error:
            silent = views.store_silent(f"no {store} answers at {address} ({error.message})")
            return {**known, **silent}


async def _herder(address: str) -> views.Json:
    async with HerderClient(address, patience_s=_HERDER_PATIENCE_S) as client:
        try:
            reply = await client.call(lambda stub: stub.GetCluster, admin.GetClusterRequest(), timeout_s=_TIMEOUT_S)
            plugins = await client.call(lambda stub: stub.ListPlugins, admin.ListPluginsRequest())
            connectors = await fetch_connectors(client, full=False)
        except CommandError as error:
            state = "UNREACHABLE" if error.reason == "UNREACHABLE" else error.reason
            silent: views.Json = {"cluster_id": None, "workers": [], "plugins": [], "waits": [], "notices": []}
            return {"address": address, "state": state, "message": error.message, **silent}
        workers = map(views.worker, reply.workers)
        notes = [
            {key: one[key] for key in ("worker_id", "reason", "conditions")}
            for one in workers
            if one["reason"] or one["conditions"]
        ]
        address = reply.leader_address or client.address
        known = {"cluster_id": reply.cluster_id or None}
        refused = [*map(views.refused_plugin, plugins.refused)]
        of_units = {"plugins": refused, "waits": _waits(connectors), "notices": _notices(connectors)}
        return {"address": address, "state": "LEADS", "message": "", **known, "workers": notes, **of_units}


def _waits(connectors: Sequence[views.Json]) -> list[views.Json]:
    """The wait of every connector and task with the condition WAITING; `task` is None for a connector."""
    found: list[views.Json] = []
    for connector in connectors:
        for unit in (connector["connector"], *connector["tasks"]):
            found += [
                {
                    "connector": connector["name"],
                    "task": unit.get("id"),
                    **one["wait"],
                    "text": one["message"],
                    "hint": HINTS["WAITING"],
                }
                for one in unit.get("conditions", ())
                if "wait" in one
            ]
    return sorted(found, key=lambda one: one["since"] or "")


def _notices(connectors: Sequence[views.Json]) -> list[views.Json]:
    """The notice of every connector and task that failed, stalls or reconfigures too often; `task` is None for a
    connector.
    """
    found: list[views.Json] = []
    for connector in connectors:
        for unit in (connector["connector"], *connector["tasks"]):
            noted = [
                (one["type"], one["message"], HINTS[one["type"]])
                for one in unit.get("conditions", ())
                if one["type"] in _NOTED
            ]
            if unit["state"] == "FAILED":
                noted.append(("FAILED", unit.get("error", ""), unit.get("explanation", "") or _LOOK))
            found += [
                {"connector": connector["name"], "task": unit.get("id"), "type": type_, "text": text, "hint": hint}
                for type_, text, hint in noted
            ]
    return found


def _findings(replica: views.Json) -> list[views.Json]:
    found: list[views.Json] = []
    store, address, condition = replica["store"], replica["address"], replica["condition"]
    if condition != "HEALTHY":
        since = f" (since {replica['since']})" if replica["since"] else ""
        found.append(_finding(store, address, condition, replica["message"] + since, HINTS.get(condition, "")))
    if replica["undecodable_count"]:
        message = f"{replica['undecodable_count']} records of {replica['topic']} cannot be decoded"
        found.append(_finding(store, address, "UNDECODABLE", message, HINTS["UNDECODABLE"]))
    return found


def _finding(part: str, address: str, reason: str, message: str, hint: str) -> views.Json:
    return {"part": part, "address": address, "reason": reason, "message": message, "hint": hint}


def _print(found: views.Json) -> None:
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
    out.print(table(None, ("PART", "ADDRESS", "ROLE", "CONDITION", "UNDECODABLE"), rows))
    for one in found["findings"]:
        where = f"{one['part']} {escape(one['address'])}"
        out.print(f"\n[bold red]{one['reason']}[/] {where}: {escape(one['message'])}", soft_wrap=True)
        out.print(f"[dim]next:[/] {escape(one['hint'])}", soft_wrap=True)
    for one in leader["workers"]:
        if not one["reason"]:
            continue
        out.print(f"\n[bold]worker {escape(one['worker_id'])}[/]: {escape(one['reason'])}", soft_wrap=True)
    print_refused_plugins(found["refused_plugins"])
    _print_notices(found["notices"])
    _print_waits(found["waits"])
    for replica in found["replicas"]:
        _print_undecodable(replica)
    if found["healthy"] and not (found["waits"] or found["notices"] or found["refused_plugins"]):
        out.print("\neverything is healthy")
    elif found["healthy"]:
        out.print("\nstores, herder and workers are healthy; what waits or failed is listed above")


def _print_notices(notices: Sequence[views.Json]) -> None:
    for one in notices[:_SHOWN_MAX]:
        color = "red" if one["type"] == "FAILED" else "yellow"
        out.print(f"\n[bold {color}]{one['type']}[/] {_unit(one)}: {escape(one['text'])}", soft_wrap=True)
        out.print(f"[dim]next:[/] {escape(one['hint'])}", soft_wrap=True)
    if len(notices) > _SHOWN_MAX:
        out.print(f"\nand {len(notices) - _SHOWN_MAX} more of these; `-o json` has them all")


def _unit(one: views.Json) -> str:
    return f"connector {escape(one['connector'])}" + ("" if one["task"] is None else f" task {one['task']}")


def _print_waits(waits: Sequence[views.Json]) -> None:
    for one in waits[:_SHOWN_MAX]:
        since = f" (since {one['since']})" if one["since"] else ""
        out.print(f"\n[bold yellow]WAITING[/] {_unit(one)}: {escape(one['text'])}{since}", soft_wrap=True)
        out.print(f"[dim]next:[/] {escape(one['hint'])}", soft_wrap=True)
    if len(waits) > _SHOWN_MAX:
        out.print(f"\nand {len(waits) - _SHOWN_MAX} more that wait; `-o json` has them all")


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
