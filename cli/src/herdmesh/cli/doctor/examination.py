"""The examination of `herd doctor`: all services, the stack of this machine and Kafka, queried at once.

Owns the queries and their time limits. The judgements are in `units`, `services` and `machine`. Invariants: it ends
within the longest of its time limits, whatever is frozen; a part that cannot be queried is a finding, or is named in
`unchecked` with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.worker.v1 import worker_service_pb2 as worker_pb
from herdmesh.api.worker.v1 import worker_service_pb2_grpc as worker_grpc
from herdmesh.cli.display import views
from herdmesh.cli.doctor import machine, services, units
from herdmesh.cli.doctor.codes import Severity
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.mesh.contexts import DEFAULT_DATA_DIR
from herdmesh.cli.queries import fetch_connectors
from herdmesh.devstack.layout import StackLayout, StackState
from herdmesh.devstack.readiness import store_status
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError

#: A service answers in every role; one that does not answer within this time counts as missing.
TIMEOUT_S: Final = 5.0
KAFKA_TIMEOUT_S: Final = 5.0
_HERDER_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ExaminedServices:
    """What to examine. Addresses are host:port; `bootstrap_servers` empty = those of the stack in `data_dir`."""

    config_stores: Sequence[str]
    status_stores: Sequence[str]
    herder: str
    bootstrap_servers: str = ""
    command_config: str = ""
    """File with the settings of TLS and login for the `bootstrap_servers`."""
    data_dir: Path = DEFAULT_DATA_DIR


async def examine(targets: ExaminedServices) -> views.Json:
    """Query everything. Keys: `healthy` (no error), `replicas`, `herder`, `findings`, `checked` and `unchecked`."""
    asked = [("config-store", address) for address in targets.config_stores]
    asked += [("status-store", address) for address in targets.status_stores]
    stack = _stack_of(targets)
    cluster = targets.bootstrap_servers, targets.command_config
    if not targets.bootstrap_servers and stack is not None:
        cluster = stack.bootstrap_servers, stack.command_config
    herder, kafka, *replicas = await asyncio.gather(
        _herder(targets.herder),
        asyncio.to_thread(machine.kafka, *cluster, KAFKA_TIMEOUT_S),
        *(_replica(store, address) for store, address in asked),
    )
    workers = await asyncio.gather(*(_worker(one) for one in herder["workers"] if one["address"]))
    answers = [*replicas, herder, *workers]
    findings = [
        *(one for replica in replicas for one in services.store_findings(replica)),
        *services.herder_findings(herder),
        *_of_units(herder),
        *services.skew_findings(answers, version("herdmesh-cli")),
        *services.cluster_findings(answers, kafka),
        *(one for worker in workers for one in services.process_findings(worker)),
        *kafka["findings"],
        *machine.stack_findings(stack, targets.data_dir),
        *machine.disk_findings("data folder", machine.local_disks(stack, targets.data_dir)),
    ]
    findings.sort(key=lambda one: one["severity"] != Severity.ERROR)
    checked, unchecked = services.checks(herder, workers, kafka, stack)
    return {
        "healthy": not any(one["severity"] == Severity.ERROR for one in findings),
        "replicas": list(replicas),
        "herder": {key: herder[key] for key in ("address", "state", "message", "cluster_id", "version")},
        "workers": [
            {"worker_id": one["worker_id"], "reason": one["reason"], "conditions": one["conditions"]}
            for one in herder["workers"]
            if one["reason"] or one["conditions"]
        ],
        "findings": findings,
        "checked": checked,
        "unchecked": unchecked,
    }


def _stack_of(targets: ExaminedServices) -> StackState | None:
    """The stack of `herd up` in the data folder, if the herder to examine is one of it."""
    state = StackLayout(targets.data_dir).read_state()
    if state is None or not set(state.herder.split(",")) & set(targets.herder.split(",")):
        return None
    return state


def _of_units(herder: views.Json) -> list[views.Json]:
    if herder["state"] != "LEADS":
        return []
    return [
        *units.worker_findings(herder["workers"], len(herder["connectors"])),
        *units.connector_findings(herder["connectors"]),
        *units.plugin_findings(herder["refused_plugins"]),
    ]


async def _replica(store: str, address: str) -> views.Json:
    known: views.Json = {"store": store, "address": address, "part": store, "name": address}
    async with connect(address) as channel:
        began_s = time.time()
        try:
            status = await store_status(channel, store, TIMEOUT_S)
        except HerdmeshError as error:
            condition = "WRONG_ADDRESS" if error.reason == "NOT_BUILT" else "UNREACHABLE"
            silent = views.store_silent(f"no {store} answers at {address} ({error.message})")
            return {**known, **silent, "condition": condition, "skew_s": None}
        return {**known, **views.store(status), "skew_s": services.skew_s(status, began_s, time.time())}


async def _herder(address: str) -> views.Json:
    known: views.Json = {"part": "herder", "address": address, "name": address, "message": "", "cluster_id": None}
    empty: views.Json = {"version": None, "skew_s": None, "workers": [], "connectors": [], "refused_plugins": []}
    try:
        async with HerderClient(address, patience_s=_HERDER_PATIENCE_S) as client:
            began_s = time.time()
            reply: Any = await client.call(lambda stub: stub.GetCluster, admin.GetClusterRequest(), timeout_s=TIMEOUT_S)
            ended_s = time.time()
            plugins = await client.call(lambda stub: stub.ListPlugins, admin.ListPluginsRequest())
            connectors = await fetch_connectors(client, full=False)
            address = reply.leader_address or client.address
    except CommandError as error:
        state = "WRONG_ADDRESS" if error.exit_code == EXIT_USAGE else error.reason
        return {**known, **empty, "state": state, "message": error.message}
    return {
        **known,
        "address": address,
        "name": address,
        "state": "LEADS",
        "cluster_id": reply.cluster_id or None,
        "version": reply.version or None,
        "skew_s": services.skew_s(reply, began_s, ended_s),
        "workers": [*map(views.worker, reply.workers)],
        "connectors": connectors,
        "refused_plugins": [*map(views.refused_plugin, plugins.refused)],
    }


async def _worker(worker: views.Json) -> views.Json:
    """The process of a worker, by its own answer."""
    known: views.Json = {"part": "worker", "name": worker["worker_id"], "address": worker["address"]}
    async with connect(worker["address"]) as channel:
        stub: Any = worker_grpc.WorkerServiceStub(channel)
        began_s = time.time()
        try:
            reply = await stub.GetWorkerStatus(worker_pb.GetWorkerStatusRequest(), timeout=TIMEOUT_S)
        except HerdmeshError as error:
            silent: views.Json = {"version": None, "cluster_id": None, "skew_s": None, "disks": []}
            return {**known, **silent, "trouble": error.message, "reason": error.reason, "state": worker["state"]}
        return {
            **known,
            **views.worker_status(reply),
            "cluster_id": None,
            "trouble": "",
            "skew_s": services.skew_s(reply, began_s, time.time()),
        }
