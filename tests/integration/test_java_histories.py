"""Random histories written by Java's own stores and by ours in turn, on the same two topics: both read the same.

Either side does whatever its interface lets a herder or worker do, in any order: task sets of connectors that are not
there, commits and counts after a deletion, statuses of repeated and older generations, safe or not, deletions of
connectors whose tasks stand. After every few operations everything that the two interfaces show is compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from herdmesh.api.configstore.v1 import config_write_service_pb2 as config_write
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_read
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write
from herdmesh.rpc import properties
from herdmesh.rpc.errors import ConnectorNotFound
from tests.support.configstore_process import ConfigStoreProcess, leading
from tests.support.java_stores import JavaStores, Json
from tests.support.sizes import soak_or
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.store_process import SHORT_SESSION

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1_800)]

OPERATIONS = soak_or(240, 6_000)
SEED = 25
_NAMES = ("c", "c-1", "odd é ☃")
_TARGETS = ("STARTED", "PAUSED", "STOPPED")
_CONNECTOR_STATES = ("RUNNING", "PAUSED", "FAILED", "UNASSIGNED", "STOPPED", "DESTROYED")
_TASK_STATES = ("RUNNING", "RUNNING", "UNASSIGNED", "UNASSIGNED", "PAUSED", "FAILED", "RESTARTING", "DESTROYED")
_WORKERS = ("w1:8083", "w2:8083")
_DO = ("config", "tasks", "tasks", "remove", "target", "count", "status", "status", "status", "status")


class Ours:
    """Our two stores; `play` takes the operations that `JavaStores.play` takes."""

    def __init__(self, bootstrap: str, config_topic: str, status_topic: str, folder: Path) -> None:
        self.config = ConfigStoreProcess(bootstrap, config_topic, folder / "config.log", more=SHORT_SESSION)
        self.status = StatusStoreProcess(
            bootstrap, status_topic, folder / "status.log", more=("--status-storage-partitions=1", *SHORT_SESSION)
        )
        self.token = identity_pb2.LeaderToken()

    async def play(self, operation: Json) -> None:
        """One operation. What our store refuses (a task set of no connector, a stale status) changes nothing."""
        if operation["do"] == "status":
            await self._status(operation)
            return
        with suppress(ConnectorNotFound):
            await self._config(operation)

    async def _config(self, operation: Json) -> None:
        name, write = operation["name"], self.config.write
        options = config_write.WriteOptions(leader=self.token)
        target = common.TargetState.Value(f"TARGET_STATE_{operation.get('target') or 'UNSPECIFIED'}")
        match operation["do"]:
            case "config":
                config = properties.to_proto(operation["config"])
                await write.PutConnectorConfig(
                    config_write.PutConnectorConfigRequest(connector=name, config=config, initial_target_state=target)
                )
            case "remove":
                await write.DeleteConnector(config_write.DeleteConnectorRequest(connector=name))
            case "tasks":
                tasks = [properties.to_proto(task) for task in operation["tasks"]]
                await write.CommitTaskConfigs(
                    config_write.CommitTaskConfigsRequest(options=options, connector=name, tasks=tasks)
                )
            case "target":
                await write.SetTargetState(config_write.SetTargetStateRequest(connector=name, target_state=target))
            case _:
                await write.PutTaskCount(
                    config_write.PutTaskCountRequest(options=options, connector=name, task_count=operation["count"])
                )

    async def _status(self, operation: Json) -> None:
        status = status_pb2.Status(
            connector=operation["name"],
            task=operation.get("task"),
            state=common.RunState.Value(f"RUN_STATE_{operation['state']}"),
            generation=operation["generation"],
            version="4.3.1",
        )
        mode = status_write.PUT_MODE_PUT_SAFE if operation["safe"] else status_write.PUT_MODE_PUT
        writer = identity_pb2.WorkerIdentity(worker_id=operation["worker"], incarnation=operation["incarnation"])
        answer = await self.status.write.PutStatuses(
            status_write.PutStatusesRequest(writer=writer, puts=[status_write.StatusPut(status=status, mode=mode)])
        )
        if answer.outcomes[0].result == status_write.PUT_RESULT_APPLIED:
            listed = await self.status.read.ListStatuses(
                status_read.ListStatusesRequest(connectors=[operation["name"]], linearizable=True)
            )
            shown = [one.state for one in listed.statuses if _task_of(one) == operation.get("task")]
            expected = [] if operation["state"] == "DESTROYED" else [status.state]
            assert shown == expected, f"APPLIED, and not shown: {operation}"

    async def show(self, names: Sequence[str]) -> dict[str, Json]:
        """What both stores hold at the ends of their topics, in the words of `JavaStores.show`."""
        snapshot = await self.config.read.GetSnapshot(
            config_read.GetSnapshotRequest(connectors=names, linearizable=True)
        )
        listed = await self.status.read.ListStatuses(
            status_read.ListStatusesRequest(connectors=names, linearizable=True)
        )
        entries = {entry.name: entry for entry in snapshot.connectors}
        return {name: _shown(entries.get(name), name, listed.statuses) for name in names}


def _shown(entry: config_pb2.ConnectorEntry | None, name: str, statuses: Sequence[status_pb2.Status]) -> Json:
    entry = entry or config_pb2.ConnectorEntry()
    target = common.TargetState.Name(entry.target_state).removeprefix("TARGET_STATE_")
    own = [one for one in statuses if one.connector == name]
    connector = [_status_shown(one) for one in own if not one.HasField("task")]
    return {
        "config": properties.from_proto(entry.config) if entry.has_config else None,
        "target": None if target == "UNSPECIFIED" else target,
        "tasks": [properties.from_proto(task) for task in entry.tasks],
        "count": entry.task_count,
        "pending": entry.pending_fencing,
        "record": entry.task_count_record if entry.HasField("task_count_record") else None,
        "inconsistent": entry.inconsistent,
        "applied": properties.from_proto(entry.applied_config) if entry.HasField("applied_config") else None,
        "status": connector[0] if connector else None,
        "task_statuses": {str(one.task): _status_shown(one) for one in own if one.HasField("task")},
    }


def _status_shown(status: status_pb2.Status) -> list[Any]:
    state = common.RunState.Name(status.state).removeprefix("RUN_STATE_")
    worker_id = status.worker_id if status.HasField("worker_id") else None
    return [state, worker_id, status.generation, status.version if status.HasField("version") else None]


def _task_of(status: status_pb2.Status) -> int | None:
    return status.task if status.HasField("task") else None


def _operation(chance: random.Random, generation: int) -> Json:
    kind, name = chance.choice(_DO), chance.choice(_NAMES)
    operation: Json = {"do": kind, "name": name}
    match kind:
        case "config":
            operation |= {"config": {"name": name, "v": chance.choice("xyz")}}
            operation["target"] = chance.choice([None, None, *_TARGETS])
        case "tasks":
            operation["tasks"] = [{"t": chance.choice("xyz")} for _ in range(chance.choice([0, 1, 1, 2, 3]))]
        case "target":
            operation["target"] = chance.choice(_TARGETS)
        case "count":
            operation["count"] = chance.randrange(4)
        case "status":
            operation["safe"] = chance.random() < 0.4
            operation["worker"] = chance.choice(_WORKERS)
            operation["incarnation"] = f"{operation['worker']}-{chance.choice('ab')}"
            operation["generation"] = max(generation + chance.choice([0, 0, 1, -1, -2, -5]), 0)
            if chance.random() < 0.8:
                operation |= {"task": chance.randrange(2), "state": chance.choice(_TASK_STATES)}
            else:
                operation["state"] = chance.choice(_CONNECTOR_STATES)
        case _:
            pass
    return operation


async def test_whoever_writes_what_both_read_the_same(
    kafka_bootstrap: str, tmp_topic: Callable[[str], str], tmp_path: Path
) -> None:
    topics = (tmp_topic("configs"), tmp_topic("status"))
    java, ours = JavaStores(kafka_bootstrap, *topics, tmp_path), Ours(kafka_bootstrap, *topics, tmp_path)
    chance, generation, since = random.Random(SEED), 1, list[str]()
    done = {"java": 0, "ours": 0}
    await java.start()
    try:
        await asyncio.gather(ours.config.start(), ours.status.start())
        await asyncio.gather(ours.config.until_writing(), ours.status.until_writing())
        async with leading(ours.config) as ours.token:
            for number in range(OPERATIONS):
                generation += chance.random() < 0.3
                operation, side = _operation(chance, generation), chance.choice(["java", "ours"])
                since.append(f"{side}: {operation}")
                done[side] += 1
                await (java.play(operation) if side == "java" else ours.play(operation))
                if chance.random() < 0.4 or number == OPERATIONS - 1:
                    mine, theirs = await ours.show(_NAMES), await java.show(_NAMES)
                    assert mine == theirs, "\n".join(since)
                    since.clear()
    finally:
        await asyncio.gather(java.stop(), ours.config.kill(), ours.status.kill())
    assert min(done["java"], done["ours"]) > OPERATIONS // 3
