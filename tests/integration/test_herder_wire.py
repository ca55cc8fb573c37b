"""Behaviour that only the herder's wire shows: the order of checks, the counters on its page, and topics of a deleted
connector.
"""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from prometheus_client.parser import text_string_to_metric_families

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1 import connector_service_pb2
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle_pb
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.statusstore.v1 import status_pb2 as status_pb
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.herder.metrics import REBALANCE_GROUP, REBALANCES
from herdmesh.rpc.client import connect, retrying
from herdmesh.rpc.errors import ConnectorNotFound, HerdmeshError, NotLeader, RequestInvalid
from herdmesh.rpc.monitoring.connect_names import connect_name
from tests.integration.test_herder_service import (
    WAIT_S,
    Mesh,
    all_running,
    create,
    until,
    until_workers,
)

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

Page = dict[tuple[str, frozenset[str]], float]
SCOPE = "herdmesh.herder"

#: the leader refuses each for its contents, before its state gets it.
MALFORMED: dict[str, object] = {
    "ListConnectors": pb.ListConnectorsRequest(page_size=-1),
    "RewindOffsets": offset_pb.RewindOffsetsRequest(name="a"),
    "ListDeadLetters": admin_pb.ListDeadLettersRequest(name="a", page_size=-1),
    "ReplayDeadLetters": admin_pb.ReplayDeadLettersRequest(name="a", page_token="x", letters=[admin_pb.DeadLetter()]),
    "DeleteConnector": pb.DeleteConnectorRequest(),
    "GetConnector": pb.GetConnectorRequest(),
    "PauseConnector": lifecycle_pb.PauseConnectorRequest(),
    "ResumeConnector": lifecycle_pb.ResumeConnectorRequest(),
    "StopConnector": lifecycle_pb.StopConnectorRequest(),
    "RestartConnector": lifecycle_pb.RestartConnectorRequest(),
    "RestartTask": lifecycle_pb.RestartTaskRequest(),
    "ListTopics": admin_pb.ListTopicsRequest(),
    "ResetTopics": admin_pb.ResetTopicsRequest(),
    "DrainWorker": admin_pb.DrainWorkerRequest(),
    "UndrainWorker": admin_pb.UndrainWorkerRequest(),
}

SERVICE = connector_service_pb2.DESCRIPTOR.services_by_name["ConnectorService"]


@pytest_asyncio.fixture
async def mesh() -> AsyncIterator[Mesh]:
    made = Mesh()
    await made.start()
    await made.start_herder(made.herder)
    yield made
    await made.close()


async def refused_with(stub: ConnectorServiceAsyncStub, rpc: str, request: object) -> str:
    """The reason of a refused call; empty for one that is not."""
    method = SERVICE.methods_by_name[rpc]

    async def requests() -> AsyncIterator[object]:
        yield request

    answer = getattr(stub, rpc)(requests() if method.client_streaming else request, timeout=WAIT_S)
    try:
        if method.server_streaming:
            async for _ in answer:
                return ""
        else:
            await answer
    except HerdmeshError as error:
        return error.reason
    return ""


async def test_a_follower_names_the_leader_before_it_validates_a_request(mesh: Mesh) -> None:
    requests = {method.name: GetMessageClass(method.input_type)() for method in SERVICE.methods} | MALFORMED
    follower = f"{HOST}:{free_port()}"
    async with mesh.client() as leading:
        await retrying(lambda: leading.ListConnectors(pb.ListConnectorsRequest()), WAIT_S)
        await mesh.start_herder(follower)
        async with mesh.client(follower) as stub:
            with pytest.raises(NotLeader):
                await retrying(lambda: stub.ListConnectors(pb.ListConnectorsRequest()), WAIT_S)
            told = {rpc: await refused_with(stub, rpc, request) for rpc, request in requests.items()}
        assert told == dict.fromkeys(requests, NotLeader.reason) | {"GetCluster": ""}
        told = {rpc: await refused_with(leading, rpc, MALFORMED[rpc]) for rpc in MALFORMED}
        assert told == dict.fromkeys(MALFORMED, RequestInvalid.reason), "whoever leads looks at it"


async def test_a_deletion_also_removes_the_topics_in_use(mesh: Mesh) -> None:
    channel = connect(mesh.status_store)
    recorded = status_write_pb.PutTopicsRequest(topics=[status_pb.TopicStatus(topic="t", connector="a", task=0)])
    listed = admin_pb.ListTopicsRequest(name="a")
    try:
        async with mesh.client() as client, mesh.worker("w1"):
            await until_workers(client, 1)
            await client.CreateConnector(create("a", 1))
            await until(mesh, all_running("a", 1))
            await StatusWriteServiceStub(channel).PutTopics(recorded)
            assert list((await client.ListTopics(listed)).topics) == ["t"]
            await client.DeleteConnector(pb.DeleteConnectorRequest(name="a"))
            async with asyncio.timeout(WAIT_S):
                while (await client.ListTopics(listed)).topics:  # noqa: ASYNC110 - nobody tells of it
                    await asyncio.sleep(0.05)
    finally:
        await channel.close()


def page(address: str) -> Page:
    """A herder's samples by name and the values of their labels; of histograms, sums and counts only."""
    host, _, port = address.rpartition(":")
    with urllib.request.urlopen(f"http://{host}:{int(port) + 1000}/metrics", timeout=30) as read:
        families = list(text_string_to_metric_families(read.read().decode()))
    samples = [sample for family in families for sample in family.samples if "le" not in sample.labels]
    return {(one.name, frozenset(one.labels.values()) - {SCOPE}): one.value for one in samples}


async def test_the_metrics_page_of_a_herder_counts_its_work() -> None:
    """A herder in a process of its own: instruments belong to the process."""
    mesh = Mesh()
    await mesh.start()
    address = mesh.herder
    environment = {"HERDMESH_LISTEN": address, "HERDMESH_CONFIG_STORE": mesh.config_store}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "herdmesh.herder",
        env={**os.environ, **environment, "HERDMESH_STATUS_STORE": mesh.status_store},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with mesh.client() as client, mesh.worker("w1"), mesh.worker("w2") as drained:
            await until_workers(client, 2)
            await client.CreateConnector(create("a", 4))
            await until(mesh, all_running("a", 4))
            before = await asyncio.to_thread(page, address)
            await client.DrainWorker(admin_pb.DrainWorkerRequest(worker_id="w2:1"))
            async with asyncio.timeout(WAIT_S):
                while drained.held:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await until(mesh, all_running("a", 4))
            with pytest.raises(ConnectorNotFound):
                await client.GetConnector(pb.GetConnectorRequest(name="nobody"))
            await client.GetCluster(admin_pb.GetClusterRequest())
            await client.ListTopics(admin_pb.ListTopicsRequest(name="a"))
            after = await asyncio.to_thread(page, address)
    finally:
        process.terminate()
        await process.wait()
        await mesh.close()
    _check_requests(after)
    _check_moves(before, after)
    _check_rebalances(before, after, address)


def _check_requests(after: Page) -> None:
    def answered(request: str, outcome: str = "OK") -> float:
        return after.get(("herdmesh_herder_requests_total", frozenset({request, outcome})), 0)

    for request in ("CreateConnector", "DrainWorker", "GetCluster", "ListTopics"):
        assert answered(request) == 1, request
        took_s = after["herdmesh_herder_request_duration_seconds_sum", frozenset({request})]
        assert 0 < took_s < WAIT_S
    assert answered("GetConnector", "CONNECTOR_NOT_FOUND") == 1
    assert answered("ListWorkers") >= 1
    assert answered("WatchConnectors") >= 2, "each as soon as its snapshot is told"


def _check_moves(before: Page, after: Page) -> None:
    def value(of: Page, name: str, *labels: str) -> float:
        return of.get((name, frozenset(labels)), 0)

    assert value(after, "herdmesh_herder_epochs_total") == 1
    assert value(before, "herdmesh_herder_starts_total", "task", "false") == 4
    assert value(after, "herdmesh_herder_starts_total", "task", "true") == 2, "half of the tasks were on w2"
    assert value(after, "herdmesh_herder_stops_total", "task") == 2
    for phase, count in {
        "start connector": 1, "start task": 6, "stop task": 2, "generate task configs": 1, "ValidateOnWorker": 1,
        "PutConfig": 1, "CommitTasks": 1,
    }.items():  # fmt: skip
        told = value(after, "herdmesh_herder_phase_duration_seconds_count", phase)
        assert told >= count, phase
        assert 0 < value(after, "herdmesh_herder_phase_duration_seconds_sum", phase) < WAIT_S * told
    assert value(after, "herdmesh_herder_step_duration_seconds_count", "UnitReported") >= 5 + 2 * 2


def _check_rebalances(before: Page, after: Page, address: str) -> None:
    def value(of: Page, name: str) -> float:
        return of[connect_name(REBALANCE_GROUP, name, REBALANCES[name][0]), frozenset({address})]

    assert value(after, "epoch") == 1
    assert value(after, "completed-rebalances-total") > value(before, "completed-rebalances-total") > 0
    assert value(after, "rebalancing") == 0
    mean_s, max_s = value(after, "rebalance-avg-time-ms"), value(after, "rebalance-max-time-ms")
    assert 0 < mean_s <= max_s < WAIT_S
    assert 0 < value(after, "time-since-last-rebalance-ms") < WAIT_S
