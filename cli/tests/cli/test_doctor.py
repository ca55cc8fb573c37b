"""Tests of `herd doctor` with servers of given conditions: its requests, its output, and its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
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
from herdmesh.cli.doctor import CODES, Severity
from herdmesh.cli.doctor.machine import disk_findings, stack_findings
from herdmesh.cli.doctor.services import skew_findings, skew_s
from herdmesh.cli.doctor.units import connector_findings
from herdmesh.devstack.layout import ProcessMark, ServiceState, StackState
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
        self.workers = [
            connector_pb2.Worker(worker_id="w1", reason="910 units fewer than its share; balanced once it is calm"),
            connector_pb2.Worker(worker_id="w2", conditions=conditions),
        ]
        self.connectors: list[connector_pb2.Connector] = []
        self.refused: list[connector_common.RefusedPlugin] = []

    async def GetCluster(self, request: Any, context: Any) -> admin_pb.GetClusterResponse:
        return admin_pb.GetClusterResponse(
            cluster_id="lkc-1", leader_id="herder-1", leader_address="127.0.0.1:7203", epoch=1, workers=self.workers
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
    monkeypatch.setattr("herdmesh.cli.doctor.examination.TIMEOUT_S", 30.0)


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
        assert CODES["WAITING"].next_step in shown
        assert "no errors, 1 warning; `herd doctor --explain CODE`" in shown
        assert "everything is healthy" not in shown
        code, shown = await doctor(*addresses, "-o", "json")
        found = json.loads(shown)
        assert (code, found["healthy"]) == (0, True)
        code, shown = await doctor(*addresses, "-o", "csv")
        rows = list(csv.DictReader(shown.splitlines()))
        assert [(row["CODE"], row["SEVERITY"], row["NAME"]) for row in rows] == [
            ("WAITING", "warning", "connector orders task 3")
        ]
        assert rows[0]["NEXT_STEP"] == CODES["WAITING"].next_step
        (wait,) = [one for one in found["findings"] if one["code"] == "WAITING"]
        assert (wait["connector"], wait["task"], wait["page"]) == ("orders", 3, "docs/reference/doctor.md#waiting")
        assert (wait["wait"]["waits_for"], wait["wait"]["tries"]) == ("PostgreSQL db:5432", 7)


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
    finding = "PLUGIN_REFUSED plugin /opt/plugins/[bad] (bad:Bad): ImportError: no libfoo\nnext: mend it"
    async with serving(config(HEALTHY), status_store(HEALTHY), herder) as addresses:
        code, shown = await doctor(*addresses)
        assert code == 0, "the mesh works"
        assert finding in shown
        assert "everything is healthy" not in shown
        code, shown = await doctor(*addresses, "-o", "json")
        assert [one["workers"] for one in json.loads(shown)["findings"]] == [["w1", "w2"]]
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
    assert code == 1, "a failed task is an error"
    told = "TASK_FAILED connector orders task 0: connection.password: PostgreSQL refuses\nnext: correct the config"
    assert told in shown
    assert f"STALLED connector orders task 1: its run has done nothing\nnext: {CODES['STALLED'].next_step}" in shown
    assert "1 error, 2 warnings" in shown
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
        leads = {"address": "127.0.0.1:7203", "state": "LEADS", "message": "", "cluster_id": "lkc-1", "version": None}
        assert (found["herder"], found["workers"]) == (leads, uneven)
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
        for told in (wrong.message, CODES["CLEANUP_POLICY_WRONG"].next_step, "REPLAYING", "2023-11-14T22:13:20Z"):
            assert told in text
        assert "everything is healthy" not in text
        code, text = await doctor(*addresses, "-o", "json")
        [finding] = json.loads(text)["findings"]
        assert (code, finding["code"], finding["part"]) == (1, "CLEANUP_POLICY_WRONG", "config-store")


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
        assert [(one["part"], one["code"]) for one in found["findings"]] == [
            ("config-store", "UNREACHABLE"),
            ("herder", "UNREACHABLE"),
        ]


@pytest.mark.parametrize("condition", store_pb2.StoreCondition.keys())
def test_every_condition_of_a_store_has_a_code(condition: str) -> None:
    name = condition.removeprefix("STORE_CONDITION_")
    assert {"FAILED": "STORE_FAILED"}.get(name, name) in CODES or name in {"UNSPECIFIED", "HEALTHY"}


async def test_a_code_is_explained_without_a_mesh() -> None:
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--explain", "supervisor_gone"])
    assert done.exit_code == 0
    assert CODES["SUPERVISOR_GONE"].meaning in done.stdout
    assert CODES["SUPERVISOR_GONE"].next_step in done.stdout
    done = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--explain", "nothing"])
    assert (done.exit_code, "there are: BROKER_UNREACHABLE" in done.stderr) == (2, True)


def _connector(target_state: str = "STARTED", **task: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "target_state": target_state,
        "connector": {"state": "RUNNING"},
        "tasks": [{"id": 0, **task}],
    }


@pytest.mark.parametrize(
    ("connector", "codes"),
    [
        (_connector(state="RUNNING"), []),
        (_connector(state="UNASSIGNED", since="2026-11-28T10:00:30Z"), []),
        (_connector(state="UNASSIGNED", since="2026-11-28T09:58:00Z"), ["NOT_RUNNING"]),
        (_connector(state="UNASSIGNED", conditions=[{"type": "NO_WORKER", "message": "-"}]), ["NOT_RUNNING"]),
        (_connector("STOPPED", state="UNASSIGNED", since="2026-11-28T09:58:00Z"), []),
        (_connector("PAUSED", state="FAILED", error="boom"), ["TASK_FAILED"]),
        (_connector(state="RESTARTING", explanation="restart 2 of 10"), ["RESTARTING"]),
        ({**_connector(state="RUNNING"), "tasks": []}, ["NO_TASKS"]),
        ({**_connector(state="RUNNING"), "connector": {"state": "FAILED", "error": "x"}}, ["CONNECTOR_FAILED"]),
    ],
)
def test_the_findings_of_a_connector(connector: dict[str, Any], codes: list[str]) -> None:
    found = connector_findings([connector], datetime(2026, 11, 28, 10, 1, tzinfo=UTC))
    assert [one["code"] for one in found] == codes


async def test_a_mesh_without_workers_is_an_error() -> None:
    herder = leader()
    herder.workers = [connector_pb2.Worker(worker_id="w1", state=connector_pb2.WORKER_STATE_LOST, reason="it broke")]
    async with serving(config(HEALTHY), status_store(HEALTHY), herder) as addresses:
        code, shown = await doctor(*addresses, "-o", "json")
    assert (code, [one["code"] for one in json.loads(shown)["findings"]]) == (1, ["NO_WORKER", "WORKER_LOST"])


def test_services_without_their_supervisor_are_an_error() -> None:
    here = ProcessMark.of(os.getpid())
    ended = ProcessMark(here.pid, here.create_time_s - 1_000.0)
    state = StackState(supervisor=ended, services=[ServiceState("herder", "127.0.0.1:7203", "serving", mark=here)])
    (found,) = stack_findings(state, Path(".herd"))
    assert (found["code"], found["message"]) == ("SUPERVISOR_GONE", "it ended, and these run on: herder")
    state.services[0].mark = ended
    assert list(stack_findings(state, Path(".herd"))) == [], "a stack that was stopped is no finding"
    state.supervisor = here
    state.services[0].state = "restarting"
    (found,) = stack_findings(state, Path(".herd"))
    assert (found["code"], found["name"]) == ("SERVICE_DOWN", "herder")


@pytest.mark.parametrize(
    ("total", "free", "codes"),
    [(1_000, 500, []), (1_000, 9, ["DISK_LOW"]), (1_000, 11, []), (100, 1, ["DISK_LOW"]), (60, 0.5, ["DISK_FULL"])],
)
def test_the_findings_of_a_disk(total: float, free: float, codes: list[str]) -> None:
    disk = {"path": "/", "total_bytes": int(total * 2**30), "free_bytes": int(free * 2**30)}
    assert [one["code"] for one in disk_findings("w1", [disk])] == codes


def test_clocks_and_versions_that_differ_are_named() -> None:
    reply = admin_pb.GetClusterResponse()
    assert skew_s(reply, 100.0, 101.0) is None, "an earlier release sends no time"
    for at, skew in ((100.5, 0.0), (99.0, -1.0), (104.0, 3.0)):
        reply.report_time.FromNanoseconds(int(at * 1e9))
        assert skew_s(reply, 100.0, 101.0) == pytest.approx(skew)
    answers = [
        {"part": "herder", "name": "h", "version": "2", "skew_s": 3.0},
        {"part": "worker", "name": "w", "version": "1", "skew_s": -1.0},
        {"part": "worker", "name": "silent", "version": None, "skew_s": None},
    ]
    versions, clock = skew_findings(answers, "2")
    assert (versions["code"], versions["message"]) == ("VERSION_SKEW", "1: worker w; 2: this command, herder h")
    assert (clock["code"], clock["name"], clock["message"]) == (
        *("CLOCK_SKEW", "h"),
        "its clock is 3.0 s ahead of this machine's",
    )


async def test_services_of_two_kafka_clusters_are_an_error() -> None:
    other = store_pb2.StoreStatus(cluster_id="lkc-2")
    other.MergeFrom(HEALTHY)
    async with serving(config(other), status_store(HEALTHY), leader()) as addresses:
        code, shown = await doctor(*addresses, "-o", "json")
    (found,) = json.loads(shown)["findings"]
    assert (code, found["code"]) == (1, "KAFKA_CLUSTERS_DIFFER")
    assert "lkc-1: herder" in found["message"]
    assert "lkc-2: config-store" in found["message"]


async def test_an_unreachable_kafka_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.cli.doctor.examination.KAFKA_TIMEOUT_S", 0.5)
    async with serving(config(HEALTHY), status_store(HEALTHY), leader()) as addresses:
        code, shown = await doctor(*addresses, "--bootstrap-servers=127.0.0.1:1", "-o", "json")
    assert (code, [one["code"] for one in json.loads(shown)["findings"]]) == (1, ["KAFKA_UNREACHABLE"])


def test_every_code_has_a_meaning_and_a_next_step() -> None:
    for name, code in CODES.items():
        assert name.isupper(), name
        assert code.meaning.endswith("."), name
        assert code.next_step, name
        assert code.severity in Severity, name
