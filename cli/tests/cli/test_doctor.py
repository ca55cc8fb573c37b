"""Tests of `herd doctor` with servers of given conditions: its requests, its output, and its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from typer.testing import CliRunner

from herdmesh.api.common.v1 import connector_pb2 as connector_common
from herdmesh.api.common.v1 import store_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_pb
from herdmesh.api.configstore.v1 import config_read_service_pb2_grpc as config_grpc
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as herder_pb
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import connector_service_pb2_grpc as herder_grpc
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as status_pb
from herdmesh.api.statusstore.v1 import status_read_service_pb2_grpc as status_grpc
from herdmesh.cli.app import app
from herdmesh.cli.commands.doctor import HINTS
from herdmesh.rpc.server import Server, ServiceRegistration

HEALTHY = store_pb2.StoreStatus(
    role=store_pb2.STORE_ROLE_WRITER, condition=store_pb2.STORE_CONDITION_HEALTHY, topic="t"
)


class _Config(config_grpc.ConfigReadServiceServicer):
    def __init__(self, status: store_pb2.StoreStatus) -> None:
        self.status = status

    async def GetStoreStatus(self, request: Any, context: Any) -> config_pb.GetStoreStatusResponse:
        return config_pb.GetStoreStatusResponse(status=self.status)


class _Status(status_grpc.StatusReadServiceServicer):
    def __init__(self, status: store_pb2.StoreStatus) -> None:
        self.status = status

    async def GetStoreStatus(self, request: Any, context: Any) -> status_pb.GetStoreStatusResponse:
        return status_pb.GetStoreStatusResponse(status=self.status)


class _Herder(herder_grpc.ConnectorServiceServicer):
    def __init__(self, *conditions: connector_common.Condition) -> None:
        self._conditions = conditions
        self.connectors: list[connector_pb2.Connector] = []
        self.refused: list[connector_common.RefusedPlugin] = []

    async def GetCluster(self, request: Any, context: Any) -> admin_pb.GetClusterResponse:
        workers = [
            connector_pb2.Worker(worker_id="w1", reason="910 units fewer than its share; balanced once it is calm"),
            connector_pb2.Worker(worker_id="w2", conditions=self._conditions),
        ]
        return admin_pb.GetClusterResponse(
            cluster_id="lkc-1", leader_id="herder-1", leader_address="127.0.0.1:7203", epoch=1, workers=workers
        )

    async def ListPlugins(self, request: Any, context: Any) -> admin_pb.ListPluginsResponse:
        return admin_pb.ListPluginsResponse(refused=self.refused)

    async def ListConnectors(self, request: Any, context: Any) -> herder_pb.ListConnectorsResponse:
        return herder_pb.ListConnectorsResponse(connectors=self.connectors)


def config(status: store_pb2.StoreStatus) -> Any:
    return _Config(status)  # pyright: ignore[reportAbstractUsage]  # the other methods are the generated base's


def status_store(status: store_pb2.StoreStatus) -> Any:
    return _Status(status)  # pyright: ignore[reportAbstractUsage]


def leader(*conditions: connector_common.Condition) -> Any:
    return _Herder(*conditions)  # pyright: ignore[reportAbstractUsage]


@contextlib.asynccontextmanager
async def serving(*servicers: Any) -> AsyncGenerator[list[str]]:
    """Start servers for these servicers; yields their addresses."""
    registrations = {
        _Config: (config_grpc.add_ConfigReadServiceServicer_to_server, "herdmesh.api.configstore.v1.ConfigReadService"),
        _Status: (status_grpc.add_StatusReadServiceServicer_to_server, "herdmesh.api.statusstore.v1.StatusReadService"),
        _Herder: (herder_grpc.add_ConnectorServiceServicer_to_server, "herdmesh.api.herder.v1.ConnectorService"),
    }
    servers = [
        Server("127.0.0.1:0", [ServiceRegistration(one, *registrations[type(one)])], metrics=False) for one in servicers
    ]
    ports = [await server.start() for server in servers]
    try:
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        await asyncio.gather(*(server.stop(0) for server in servers))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer timeout, so that the stores answer even while other tests use the processor for seconds."""
    monkeypatch.setattr("herdmesh.cli.commands.doctor._TIMEOUT_S", 30.0)


async def doctor(config_stores: str, status_stores: str, herder: str, *more: str) -> tuple[int, str]:
    """Run the command; returns exit code and standard output."""
    asked = [f"--config-store={config_stores}", f"--status-store={status_stores}", f"--herder={herder}"]
    # the command runs an event loop of its own
    result = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", *asked, *more])
    return result.exit_code, result.stdout


async def test_two_workers_of_one_id_are_a_finding() -> None:
    duplicate = connector_common.Condition(type="DUPLICATE_WORKER_ID", message="another process uses the id w2 as well")
    async with serving(config(HEALTHY), status_store(HEALTHY), leader(duplicate)) as (one, status, herder):
        code, text = await doctor(one, status, herder)
    assert code == 1
    assert "DUPLICATE_WORKER_ID worker w2: another process uses the id w2 as well" in text


async def test_a_waiting_task_is_listed_and_the_mesh_is_healthy() -> None:
    text = "waits for PostgreSQL db:5432: connection refused (7 tries)"
    wait = connector_common.Wait(waits_for="PostgreSQL db:5432", message="connection refused", tries=7)
    wait.since.FromSeconds(1_000_000_000)
    condition = connector_common.Condition(type="WAITING", message=text, wait=wait)
    task = connector_pb2.Task(id=connector_common.TaskId(connector="orders", task=3))
    task.status.conditions.append(condition)
    herder = leader()
    herder.connectors.append(connector_pb2.Connector(name="orders", tasks=[task]))
    async with serving(config(HEALTHY), status_store(HEALTHY), herder) as addresses:
        code, shown = await doctor(*addresses)
        assert code == 0
        assert f"WAITING connector orders task 3: {text} (since 2001-09-09T01:46:40Z)" in shown
        assert HINTS["WAITING"] in shown
        assert "stores, herder and workers are healthy; what waits or failed is listed above" in shown
        assert "everything is healthy" not in shown
        code, shown = await doctor(*addresses, "-o", "json")
        found = json.loads(shown)
        assert (code, found["healthy"]) == (0, True)
        assert [(one["connector"], one["task"], one["waits_for"], one["tries"]) for one in found["waits"]] == [
            ("orders", 3, "PostgreSQL db:5432", 7)
        ]


async def test_unusable_plugins_are_listed_by_doctor_and_by_get_plugins() -> None:
    herder = leader()
    refused = connector_common.RefusedPlugin(
        folder="/opt/plugins/[bad]",
        plugin="bad:Bad",
        why="ImportError: no libfoo",
        fix="mend it",
        worker_ids=["w1", "w2"],
    )
    herder.refused.append(refused)
    line = "NOT USED /opt/plugins/[bad] (bad:Bad) on w1, w2: ImportError: no libfoo\nnext: mend it"
    async with serving(config(HEALTHY), status_store(HEALTHY), herder) as addresses:
        code, shown = await doctor(*addresses)
        assert code == 0, "the mesh works"
        assert line in shown
        assert "everything is healthy" not in shown
        code, shown = await doctor(*addresses, "-o", "json")
        assert [one["plugin"] for one in json.loads(shown)["refused_plugins"]] == ["bad:Bad"]
        asked = ["get", "plugins", f"--herder={addresses[-1]}"]
        listed = await asyncio.to_thread(CliRunner().invoke, app, asked)
        assert line in listed.stdout
        listed = await asyncio.to_thread(CliRunner().invoke, app, [*asked, "-o", "json"])
        (found,) = json.loads(listed.stdout)
        assert (found["class"], found["type"], found["workers"]) == (None, "refused", ["w1", "w2"])
        listed = await asyncio.to_thread(CliRunner().invoke, app, [*asked, "Bad"])
        assert "1 cannot be used: `herd get plugins` shows why" in " ".join(listed.stderr.split())


async def test_failed_and_stalled_tasks_are_listed_with_the_next_step() -> None:
    failed = connector_pb2.Task(id=connector_common.TaskId(connector="orders", task=0))
    failed.status.state = connector_common.RUN_STATE_FAILED
    failed.status.failure.message = "connection.password: PostgreSQL refuses"
    failed.status.explanation = "correct the config"
    stalled = connector_pb2.Task(id=connector_common.TaskId(connector="orders", task=1))
    stalled.status.conditions.add(type="STALLED", message="its run has done nothing")
    connector = connector_pb2.Connector(name="orders", tasks=[failed, stalled])
    connector.status.conditions.add(type="RECONFIGURATION_LIMITED", message="it asked 9 times")
    herder = leader()
    herder.connectors.append(connector)
    async with serving(config(HEALTHY), status_store(HEALTHY), herder) as addresses:
        code, shown = await doctor(*addresses)
    assert code == 0
    assert "FAILED connector orders task 0: connection.password: PostgreSQL refuses\nnext: correct the config" in shown
    assert f"STALLED connector orders task 1: its run has done nothing\nnext: {HINTS['STALLED']}" in shown
    assert "RECONFIGURATION_LIMITED connector orders: it asked 9 times" in shown
    assert "everything is healthy" not in shown


async def test_a_healthy_mesh_is_reported_with_exit_code_0() -> None:
    async with serving(config(HEALTHY), config(HEALTHY), status_store(HEALTHY), leader()) as (one, two, status, herder):
        code, text = await doctor(f"{one},{two}", status, herder, "-o", "json")
        found = json.loads(text)
        assert (code, found["healthy"], found["findings"]) == (0, True, [])
        assert [replica["address"] for replica in found["replicas"]] == [one, two, status]
        assert {replica["role"] for replica in found["replicas"]} == {"WRITER"}
        reason = "910 units fewer than its share; balanced once it is calm"
        uneven: list[dict[str, Any]] = [{"worker_id": "w1", "reason": reason, "conditions": []}]
        leads = {"address": "127.0.0.1:7203", "state": "LEADS", "message": "", "cluster_id": "lkc-1", "workers": uneven}
        assert found["herder"] == leads
        code, text = await doctor(one, status, herder)
        assert code == 0
        assert "everything is healthy" in text
        assert "worker w1: 910 units fewer than its share" in text


async def test_a_finding_is_reported_with_the_stores_message_and_a_hint() -> None:
    wrong = store_pb2.StoreStatus(
        role=store_pb2.STORE_ROLE_REPLAYING,
        condition=store_pb2.STORE_CONDITION_CLEANUP_POLICY_WRONG,
        message="topic 't' has cleanup.policy=delete: kafka-configs.sh --alter",
        topic="t",
    )
    wrong.since.FromSeconds(1_700_000_000)
    async with serving(config(wrong), status_store(HEALTHY), leader()) as addresses:
        code, text = await doctor(*addresses)
        assert code == 1
        for told in (wrong.message, HINTS["CLEANUP_POLICY_WRONG"], "REPLAYING", "2023-11-14T22:13:20Z"):
            assert told in text
        assert "everything is healthy" not in text
        code, text = await doctor(*addresses, "-o", "json")
        [finding] = json.loads(text)["findings"]
        assert (code, finding["reason"], finding["part"]) == (1, "CLEANUP_POLICY_WRONG", "config-store")


async def test_undecodable_records_are_listed_and_are_a_finding() -> None:
    records = [
        store_pb2.UndecodableRecord(topic="t", partition=3, offset=number, key=f"[key] {number}", reason="not JSON")
        for number in range(30)
    ]
    status = store_pb2.StoreStatus(undecodable_count=4711, undecodable=records)
    status.MergeFrom(HEALTHY)
    async with serving(config(HEALTHY), status_store(status), leader()) as addresses:
        code, text = await doctor(*addresses)
        assert code == 1
        assert "4711 records of t" in text
        assert "[key] 29" in text
        assert "[key] 9" not in text  # only the latest are listed
        code, text = await doctor(*addresses, "-o", "json")
        assert code == 1
        assert len(json.loads(text)["replicas"][1]["undecodable"]) == 30


async def test_a_service_that_does_not_answer_is_a_finding() -> None:
    async with serving(status_store(HEALTHY)) as (status,):
        code, text = await doctor("127.0.0.1:1", status, "127.0.0.1:1", "-o", "json")
        found = json.loads(text)
        assert code == 1
        assert [(one["part"], one["reason"]) for one in found["findings"]] == [
            ("config-store", "UNREACHABLE"),
            ("herder", "UNREACHABLE"),
        ]


@pytest.mark.parametrize("condition", store_pb2.StoreCondition.keys())
def test_every_condition_has_a_hint(condition: str) -> None:
    name = condition.removeprefix("STORE_CONDITION_")
    assert name in HINTS or name in {"UNSPECIFIED", "HEALTHY"}
