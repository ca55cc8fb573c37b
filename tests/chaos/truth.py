"""Three views of the same units, by the parts of a mesh and by the machine, which must agree.

Owns the queries; `run` compares. Invariant: nothing here waits for a condition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.statusstore.v1 import status_read_service_pb2, status_read_service_pb2_grpc
from herdmesh.cli.display import views
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.rpc.client import connect
from tests.chaos.traffic import TASKS
from tests.support.mesh import Mesh, role_of

#: Process title of a fork until it has a run (`herdmesh.worker.spark.entry`).
STANDBY_NAME = "herd-standby"

Unit = tuple[str, int | None]
"""A connector's instance (None) or one of its tasks."""
UNITS: Sequence[Unit] = [(name, number) for name, tasks in TASKS.items() for number in (None, *range(tasks))]


@dataclass(frozen=True)
class Place:
    """The worker, state and generation of a unit."""

    state: str
    worker_id: str
    generation: int


async def places(client: HerderClient) -> dict[Unit, Place]:
    """The leading herder's view."""
    found: dict[Unit, Place] = {}
    reply = await client.call(lambda stub: stub.ListConnectors, messages.ListConnectorsRequest(), timeout_s=5)
    for connector in map(views.connector, reply.connectors):
        name: str = connector["name"]
        if name in TASKS:
            units = [(None, connector["connector"]), *((task["id"], task) for task in connector["tasks"])]
            for number, one in units:
                found[name, number] = Place(one["state"], one["worker_id"] or "", one["generation"])
    return found


async def stored(address: str) -> dict[Unit, Place]:
    """The view of this replica of the status store, read to the end of its topic."""
    async with connect(address) as channel:
        stub = status_read_service_pb2_grpc.StatusReadServiceStub(channel)
        request = status_read_service_pb2.ListStatusesRequest(linearizable=True, connectors=list(TASKS))
        answer = await stub.ListStatuses(request, timeout=10)
    return {
        (one.connector, one.task if one.HasField("task") else None): Place(
            views.run_state(one.effective_state), one.worker_id, one.generation
        )
        for one in answer.statuses
    }


def run_processes(mesh: Mesh) -> dict[str, int]:
    """How many runs each worker's machine really has, by the worker's address."""
    found: dict[str, int] = {}
    for name, process in mesh.stack.processes.items():
        if role_of(name) == "worker" and process.mark is not None:
            address = next(one.address for one in mesh.stack.state.services if one.name == name)
            with contextlib.suppress(psutil.NoSuchProcess):
                found[address] = len(runs_of(psutil.Process(process.mark.pid)))
    return found


def runs_of(worker: psutil.Process) -> list[psutil.Process]:
    """The runs of a worker: the forks of its JVM's Python daemon, except standby processes."""
    return [fork for daemon in daemons_of(worker) for fork in daemon.children() if not _only_waits(fork)]


def daemons_of(worker: psutil.Process) -> list[psutil.Process]:
    """The process that forks the runs of a worker: the Python daemon of its JVM."""
    jvm = jvm_of(worker)
    return [] if jvm is None else [one for one in jvm.children() if one.status() != psutil.STATUS_ZOMBIE]


def _only_waits(fork: psutil.Process) -> bool:
    """True for a fork that waits for a run, or has ended by now."""
    try:
        return fork.name() == STANDBY_NAME
    except psutil.NoSuchProcess:
        return True


def jvm_of(worker: psutil.Process) -> psutil.Process | None:
    """The JVM of a worker's Spark."""
    return next((one for one in worker.children(recursive=True) if one.name() == "java"), None)


def not_running(seen: Mapping[Unit, Place]) -> str:
    """The units that do not run, empty when everything does."""
    absent = [f"{named(unit)} absent" for unit in UNITS if unit not in seen]
    return ", ".join([*absent, *(f"{named(u)} {one.state}" for u, one in seen.items() if one.state != "RUNNING")])


def differing(left: Mapping[Unit, Place], right: Mapping[Unit, Place]) -> str:
    """Where two views differ, empty when they agree."""
    return ", ".join(
        f"{named(one)}: {left.get(one)} and {right.get(one)}" for one in UNITS if left.get(one) != right.get(one)
    )


def named(unit: Unit) -> str:
    """`flights` or `flights-0`."""
    return unit[0] if unit[1] is None else f"{unit[0]}-{unit[1]}"
