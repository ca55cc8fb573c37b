"""The herder over real gRPC with real store services on memory engines, and workers that speak the session protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read_pb
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.api.herder.v1 import connector_pb2
from herdmesh.api.herder.v1 import lifecycle_messages_pb2 as lifecycle_pb
from herdmesh.api.herder.v1 import offset_messages_pb2 as offset_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import WorkerSessionServiceStub
from herdmesh.api.statusstore.v1 import status_pb2 as status_pb
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write_pb
from herdmesh.api.statusstore.v1.status_write_service_pb2_grpc import StatusWriteServiceStub
from herdmesh.configstore.__main__ import serve as serve_config_store
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.herder.__main__ import serve as serve_herder
from herdmesh.herder.settings import HerderSettings
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect, retrying
from herdmesh.rpc.errors import (
    ConnectorExists,
    ConnectorNotFound,
    ConnectorNotStopped,
    InvalidConfig,
    LoggerNotFound,
    NotLeader,
    NoWorker,
    PluginNotFound,
    RequestInvalid,
    RevisionMismatch,
    TopicTrackingDisabled,
    Unavailable,
    WorkerNotFound,
)
from herdmesh.statusstore.__main__ import make_store
from herdmesh.statusstore.__main__ import serve as serve_status_store
from herdmesh.statusstore.settings import StatusStoreSettings
from tests.support.session_worker import SINK_CLASS, SessionWorker
from tests.support.side_by_side import SideBySide, SideBySideTest

if TYPE_CHECKING:
    from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub
    from herdmesh.api.herder.v1.worker_session_service_pb2_grpc import WorkerSessionServiceAsyncStub

WAIT_S = 45.0


class Service:
    """One service in this process; `stop` does the same as SIGTERM."""

    def __init__(self, serving: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(serving(self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self._task


class Mesh:
    """Stores, herders by address, and a client of each."""

    def __init__(self, balance_delay_ms: int = HerderSettings().balance_delay_ms) -> None:
        self._balance_delay_ms = balance_delay_ms
        self.config_store, self.status_store = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
        self.herder = f"{HOST}:{free_port()}"
        self.herders: dict[str, Service] = {}
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        config = ConfigStoreSettings(listen=self.config_store, memory=True, metrics=False)
        status = StatusStoreSettings(listen=self.status_store, memory=True, metrics=False)
        for service in (
            Service(lambda stop: serve_config_store(config, stop)),
            Service(lambda stop: serve_status_store(stop, status, make_store(status))),
        ):
            self._stack.push_async_callback(service.stop)

    async def start_herder(self, address: str, *, resettable: bool = True) -> None:
        settings = HerderSettings(
            balance_delay_ms=self._balance_delay_ms,
            topic_tracking_allow_reset=resettable,
            listen=address,
            metrics=False,
            config_store=self.config_store,
            status_store=self.status_store,
            session_timeout_ms=6_000,
            stream_grace_ms=2_000,
        )
        self.herders[address] = Service(lambda stop: serve_herder(settings, stop))

    async def stop_herder(self, address: str) -> None:
        await self.herders.pop(address).stop()

    async def close(self) -> None:
        for address in list(self.herders):
            await self.stop_herder(address)
        await self._stack.aclose()

    @asynccontextmanager
    async def client(self, address: str | None = None) -> AsyncGenerator[ConnectorServiceAsyncStub]:
        channel = connect(address or self.herder)
        try:
            yield ConnectorServiceStub(channel)
        finally:
            await channel.close()

    def worker(self, name: str) -> SessionWorker:
        return SessionWorker(f"{name}:1", self.herder, self.status_store)


async def until(mesh: Mesh, reached: Callable[[dict[str, connector_pb2.Connector]], bool]) -> None:
    """Follow the watch until its view satisfies `reached`; a broken watch is opened again."""
    async with asyncio.timeout(WAIT_S), mesh.client() as client:
        while True:
            shown: dict[str, connector_pb2.Connector] = {}
            complete = False
            try:
                async for response in client.WatchConnectors(pb.WatchConnectorsRequest()):
                    match response.WhichOneof("event"):
                        case "snapshot_part":
                            shown.update((one.name, one) for one in response.snapshot_part.connectors)
                        case "connector":
                            shown[response.connector.name] = response.connector
                        case "deleted":
                            shown.pop(response.deleted, None)
                        case "snapshot_complete":
                            complete = True
                        case _:
                            pass
                    if complete and reached(shown):
                        return
            except (Unavailable, NotLeader):
                await asyncio.sleep(0.05)


def all_running(name: str, tasks: int) -> Callable[[dict[str, connector_pb2.Connector]], bool]:
    """Running, and not only by the last report of a worker that has yet to dial in to a new leader."""

    def reached(shown: dict[str, connector_pb2.Connector]) -> bool:
        if name not in shown or states(shown[name]) != [common.RUN_STATE_RUNNING] * (tasks + 1):
            return False
        return not any(status.conditions for status in (shown[name].status, *(t.status for t in shown[name].tasks)))

    return reached


def states(connector: connector_pb2.Connector) -> list[common.RunState.ValueType]:
    return [connector.status.state, *(task.status.state for task in connector.tasks)]


def create(name: str, tasks: int = 2, **more: str) -> pb.CreateConnectorRequest:
    config = {"connector.class": "TestSink", "tasks.max": str(tasks), **more}
    return pb.CreateConnectorRequest(name=name, config=properties.to_proto(config), request_id=f"create-{name}")


async def until_workers(client: ConnectorServiceAsyncStub, count: int) -> None:
    """Wait until the herder has so many: one that dials in after a connector was created takes tasks over."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await retrying(lambda: client.ListWorkers(admin_pb.ListWorkersRequest()), WAIT_S)
            if len(found.workers) >= count:
                return
            await asyncio.sleep(0.05)


async def until_shared(*workers: SessionWorker) -> None:
    """Wait until none drains and each has one task: nothing is left that moves later on."""
    async with asyncio.timeout(WAIT_S):
        while any(one.draining or sum(task is not None for _, task in one.held) != 1 for one in workers):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _mesh(
    _test: SideBySideTest, balance_delay_ms: int = HerderSettings().balance_delay_ms
) -> AsyncGenerator[Mesh]:
    made = Mesh(balance_delay_ms)
    await made.start()
    try:
        await made.start_herder(made.herder)
        yield made
    finally:
        await made.close()


#: Mostly they wait: for a herder to lead, for a silent worker to be counted as lost.
#: `balancing` is for tests that wait for units to move for balance, which is a minute off by default.
together = SideBySide(mesh=_mesh, balancing=partial(_mesh, balance_delay_ms=500), at_once=4)


@together
async def test_life_of_a_connector_over_grpc(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1") as worker, mesh.worker("w2"):
        await until_workers(client, 2)
        created = await retrying(lambda: client.CreateConnector(create("a", 4)), WAIT_S)
        assert created.connector.incarnation
        assert created.connector.type == common.CONNECTOR_TYPE_SINK
        # The same request id again is the same create, not a conflict; another one is.
        await client.CreateConnector(create("a", 4))
        other = create("a", 4)
        other.request_id = "other"
        with pytest.raises(ConnectorExists):
            await client.CreateConnector(other)
        await until(mesh, all_running("a", 4))

        paused = await client.PauseConnector(lifecycle_pb.PauseConnectorRequest(name="a"))
        assert paused.connector.target_state == common.TARGET_STATE_PAUSED
        await until(mesh, lambda shown: states(shown["a"]) == [common.RUN_STATE_PAUSED] * 5)
        await client.ResumeConnector(lifecycle_pb.ResumeConnectorRequest(name="a"))
        await until(mesh, all_running("a", 4))
        assert set(worker.starts.values()) == {1}, "pause and resume happen in place"

        patch = pb.PatchConnectorRequest(name="a", patch=properties.to_proto({"tasks.max": "2"}), request_id="patch-a")
        patched = await client.PatchConnector(patch)
        assert patched.connector.config.entries["tasks.max"].text == "2"
        other = pb.PatchConnectorRequest(name="a", patch=properties.to_proto({"tasks.max": "3", "note": "other"}))
        await client.PatchConnector(other)
        retried = await client.PatchConnector(patch)  # merged again it would be another config, and it is applied once
        assert retried.connector.config.entries["tasks.max"].text == "3"
        await client.PatchConnector(pb.PatchConnectorRequest(name="a", patch=properties.to_proto({"tasks.max": "2"})))
        await until(mesh, all_running("a", 2))

        await client.StopConnector(lifecycle_pb.StopConnectorRequest(name="a"))
        await until(mesh, lambda shown: states(shown["a"]) == [common.RUN_STATE_STOPPED])
        await client.DeleteConnector(pb.DeleteConnectorRequest(name="a"))
        await until(mesh, lambda shown: not shown)
        with pytest.raises(ConnectorNotFound):
            await client.GetConnector(pb.GetConnectorRequest(name="a"))


@together
async def test_each_refusal_has_its_own_reason(mesh: Mesh) -> None:
    async with mesh.client() as client:
        await retrying(lambda: client.ListConnectors(pb.ListConnectorsRequest()), WAIT_S)
        with pytest.raises(NoWorker):
            await client.CreateConnector(create("a"))
        async with mesh.worker("w1"):
            created = await retrying(lambda: client.CreateConnector(create("a")), WAIT_S)
            with pytest.raises(InvalidConfig) as refused:
                await client.CreateConnector(create("b", wrong="yes"))
            assert [violation.field for violation in refused.value.violations] == ["wrong"]
            unknown = pb.CreateConnectorRequest(name="b", config=properties.to_proto({"connector.class": "Nonsense"}))
            with pytest.raises(InvalidConfig, match=SINK_CLASS):
                await client.CreateConnector(unknown)
            update = pb.UpdateConnectorRequest(
                name="a", config=create("a", 3).config, expected_revision=created.connector.config_revision
            )
            await client.UpdateConnector(update)
            with pytest.raises(RevisionMismatch):
                await client.UpdateConnector(update)
            with pytest.raises(RequestInvalid):
                await client.PauseConnector(lifecycle_pb.PauseConnectorRequest())
            with pytest.raises(ConnectorNotFound):
                await client.GetOffsets(offset_pb.GetOffsetsRequest(name="b"))
            with pytest.raises(RequestInvalid, match="time to go back to"):
                await client.RewindOffsets(offset_pb.RewindOffsetsRequest(name="a"))
            with pytest.raises(ConnectorNotStopped):
                await client.ResetOffsets(offset_pb.ResetOffsetsRequest(name="a"))
            validation = await client.ValidateConfig(pb.ValidateConfigRequest(config=create("x", wrong="yes").config))
            assert validation.validation.error_count == 1


@together
async def test_commands_to_workers_over_the_wire(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1") as one, mesh.worker("w2") as two:
        await retrying(lambda: client.CreateConnector(create("a", 2)), WAIT_S)
        await until(mesh, all_running("a", 2))
        async with asyncio.timeout(WAIT_S):
            there: set[str] = set()
            async for response in client.WatchConnectors(pb.WatchConnectorsRequest()):
                there.update(worker.worker_id for worker in (response.worker, *response.snapshot_part.workers))
                if {"w1:1", "w2:1"} <= there:
                    break
        planned = await client.PlanConfig(pb.PlanConfigRequest(name="a", config=create("a", 3).config))
        assert [(step.action, step.HasField("task")) for step in planned.steps] == [
            (pb.PLAN_ACTION_RESTART, False), (pb.PLAN_ACTION_RESTART, True), (pb.PLAN_ACTION_RESTART, True),
            (pb.PLAN_ACTION_START, True),
        ]  # fmt: skip
        assert planned.validation.class_name == "TestSink"
        assert planned.notes
        plugin = await client.GetPlugin(admin_pb.GetPluginRequest(class_name="TestSink"))
        assert (plugin.plugin.class_name, plugin.fields[0].value) == (SINK_CLASS, "TestSink")
        with pytest.raises(PluginNotFound, match=SINK_CLASS):
            await client.GetPlugin(admin_pb.GetPluginRequest(class_name="Nonsense"))

        level = await client.SetLoggers(admin_pb.SetLoggersRequest(logger="org.foo", level="debug", request_id="l1"))
        assert level.affected == ["org.foo"]
        assert (one.loggers["org.foo"].level, two.loggers["org.foo"].level) == ("DEBUG", "DEBUG")
        listed = await client.GetLoggers(admin_pb.GetLoggersRequest(logger="org"))
        assert [(entry.logger, entry.worker_id) for entry in listed.loggers] == [
            ("org.foo", "w1:1"), ("org.foo", "w2:1"),
        ]  # fmt: skip
        assert listed.loggers[0].HasField("modify_time")
        with pytest.raises(LoggerNotFound):
            await client.GetLoggers(admin_pb.GetLoggersRequest(logger="com"))
        await client.SetLoggers(admin_pb.SetLoggersRequest(logger="org.foo", level="ERROR", worker_id="w2:1"))
        assert (one.loggers["org.foo"].level, two.loggers["org.foo"].level) == ("DEBUG", "ERROR")

        offset = offset_pb.OffsetEntry(partition_json='{"kafka_topic":"t","kafka_partition":0}', offset_json=None)
        other = create("b", 1)
        other.initial_offsets.append(offset)
        await client.CreateConnector(other)
        await client.CreateConnector(other)  # a retry finds the first outcome, and touches nothing
        (altered,) = [*one.altered, *two.altered]
        assert (altered.connector, altered.offsets[0]) == ("b", offset)
        assert altered.config.entries["name"].text == "b"


@together
async def test_lists_are_sorted_and_paged(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1"):
        for name in ("c", "a", "b"):
            await retrying(lambda name=name: client.CreateConnector(create(name, 1)), WAIT_S)
        first = await client.ListConnectors(pb.ListConnectorsRequest(page_size=2))
        assert [connector.name for connector in first.connectors] == ["a", "b"]
        request = pb.ListConnectorsRequest(page_size=2, page_token=first.next_page_token)
        second = await client.ListConnectors(request)
        assert [connector.name for connector in second.connectors] == ["c"]
        assert not second.next_page_token
        plugins = await client.ListPlugins(admin_pb.ListPluginsRequest())
        assert [plugin.class_name for plugin in plugins.plugins] == [SINK_CLASS]
        for name in ("a", "b", "c"):
            await until(mesh, all_running(name, 1))
        workers = await client.ListWorkers(admin_pb.ListWorkersRequest())
        assert [(worker.worker_id, len(worker.tasks)) for worker in workers.workers] == [("w1:1", 3)]


@together
async def test_a_restarted_herder_restarts_no_task(mesh: Mesh) -> None:
    async with mesh.worker("w1") as one, mesh.worker("w2") as two:
        async with mesh.client() as client:
            await until_workers(client, 2)
            await retrying(lambda: client.CreateConnector(create("a", 4)), WAIT_S)
            await until(mesh, all_running("a", 4))
        await mesh.stop_herder(mesh.herder)
        await mesh.start_herder(mesh.herder)
        await until(mesh, all_running("a", 4))
        async with mesh.client() as client:
            cluster = await client.GetCluster(admin_pb.GetClusterRequest())
        assert (cluster.start_count, cluster.adopted_count) == (0, 5)
        assert sum((one.starts + two.starts).values()) == 5


@together
async def test_a_dead_workers_tasks_move_with_their_commit_scope(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1") as left:
        async with mesh.worker("w2") as dead:
            await until_workers(client, 2)
            await retrying(lambda: client.CreateConnector(create("a", 4)), WAIT_S)
            await until(mesh, all_running("a", 4))
            had = set(dead.held)
            before = {key for key in left.held if key[1] is not None}
        await until(mesh, all_running("a", 4))
        async with asyncio.timeout(WAIT_S):
            while not had <= set(left.held):
                left.changed.clear()
                await left.changed.wait()
        assert all(left.starts[key] == 1 for key in before), "what ran goes on untouched"
        assert {left.commit_scopes[key].group for key in had if key[1] is not None} == {"connect-a"}


@together
async def test_a_leaving_worker_hands_all_its_units_over(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1") as stays, mesh.worker("w2") as leaves:
        await until_workers(client, 2)
        await retrying(lambda: client.CreateConnector(create("a", 4)), WAIT_S)
        await until(mesh, all_running("a", 4))
        async with asyncio.timeout(WAIT_S):
            await leaves.leave()
        await until(mesh, all_running("a", 4))
        assert len(stays.held) == 5
        assert leaves.held == {}


@together
async def test_a_follower_names_the_leader_and_takes_over(mesh: Mesh) -> None:
    second = f"{HOST}:{free_port()}"
    async with mesh.worker("w1") as worker:
        async with mesh.client() as client:
            await retrying(lambda: client.CreateConnector(create("a", 2)), WAIT_S)
            await until(mesh, all_running("a", 2))
        await mesh.start_herder(second)
        async with mesh.client(second) as client:
            with pytest.raises(NotLeader) as refused:
                await retrying(lambda: client.ListConnectors(pb.ListConnectorsRequest()), WAIT_S)
            assert refused.value.leader_address == mesh.herder
            first, mesh.herder = mesh.herder, second
            await mesh.stop_herder(first)
            worker.follow(second)
            await until(mesh, all_running("a", 2))
            cluster = await client.GetCluster(admin_pb.GetClusterRequest())
            assert (cluster.start_count, cluster.adopted_count) == (0, 3)
            assert cluster.leader_address == second


@together
async def test_a_watch_snapshot_sends_many_connectors_in_one_part(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1"):
        for number in range(5):
            await retrying(lambda number=number: client.CreateConnector(create(f"c{number}", 4)), WAIT_S)
            await until(mesh, all_running(f"c{number}", 4))
        told: dict[str, object] = {}
        parts = 0
        watch = aiter(client.WatchConnectors(pb.WatchConnectorsRequest(names=["c0", "c2", "c4"])))
        async for response in watch:
            if response.HasField("snapshot_complete"):
                break
            parts += 1
            told.update((one.name, one) for one in response.snapshot_part.connectors)
            told.update((worker.worker_id, worker) for worker in response.snapshot_part.workers)
        assert parts < 4, "a message costs more than what is in it"
        assert set(told) == {"c0", "c2", "c4", "w1:1"}
        for name in ("c0", "c2", "c4"):
            assert told[name] == (await client.GetConnector(pb.GetConnectorRequest(name=name))).connector
        await client.PatchConnector(pb.PatchConnectorRequest(name="c2", patch=properties.to_proto({"note": "new"})))
        async with asyncio.timeout(WAIT_S):
            assert (await anext(watch)).connector.name == "c2", "what follows comes one by one"


@together
async def test_a_slow_watch_arrives_at_the_latest_state(mesh: Mesh) -> None:
    async with mesh.client() as client, mesh.worker("w1"):
        await retrying(lambda: client.CreateConnector(create("a", 2)), WAIT_S)
        slow = aiter(client.WatchConnectors(pb.WatchConnectorsRequest(names=["a"])))
        assert [one.name for one in (await anext(slow)).snapshot_part.connectors] == ["a"]
        for number in range(5):
            patch = properties.to_proto({"note": str(number)})
            await client.PatchConnector(pb.PatchConnectorRequest(name="a", patch=patch))
        last = ""
        async with asyncio.timeout(WAIT_S):
            async for response in slow:
                last = response.connector.config.entries["note"].text if response.HasField("connector") else last
                if last == "4":
                    break
        assert last == "4"


@together
async def test_an_unknown_message_ends_the_session(mesh: Mesh) -> None:
    async with mesh.client() as client:
        await retrying(lambda: client.ListConnectors(pb.ListConnectorsRequest()), WAIT_S)
    channel = connect(mesh.herder)

    async def messages() -> AsyncIterator[session_pb.SessionRequest]:
        yield session_pb.SessionRequest(heartbeat=session_pb.WorkerHeartbeat())

    stub: WorkerSessionServiceAsyncStub = WorkerSessionServiceStub(channel)
    with pytest.raises(RequestInvalid):
        await anext(aiter(stub.Session(messages())))
    await channel.close()


@together
async def test_the_leader_creates_a_session_key(mesh: Mesh) -> None:
    channel = connect(mesh.config_store)
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    async for event in ConfigReadServiceStub(channel).Watch(config_read_pb.WatchRequest()):
                        if event.HasField("session_key_changed"):
                            key = event.session_key_changed
                            break
                    else:
                        continue
                    break
                except Unavailable:  # the store is still starting
                    await asyncio.sleep(0.05)
    finally:
        await channel.close()
    assert (key.algorithm, len(key.key)) == ("HmacSHA256", 32)
    assert key.create_time.ToMilliseconds() > 1_700_000_000_000


@together
async def test_a_new_leader_recognises_retried_requests_of_the_old_one(balancing: Mesh) -> None:
    """Restarts, drains and changes, retried on the next leader under their ids: answered, and not executed again."""
    second = f"{HOST}:{free_port()}"
    restart = lifecycle_pb.RestartConnectorRequest(name="a", include_tasks=True, request_id="restart")
    task = lifecycle_pb.RestartTaskRequest(name="a", task=1, request_id="task")
    patch = pb.PatchConnectorRequest(name="a", patch=properties.to_proto({"note": "1"}), request_id="patch")
    delete = pb.DeleteConnectorRequest(name="gone", request_id="delete")
    drain = admin_pb.DrainWorkerRequest(worker_id="w2:1", request_id="drain")
    undrain = admin_pb.UndrainWorkerRequest(worker_id="w2:1", request_id="undrain")
    async with balancing.worker("w1") as one, balancing.worker("w2") as two:
        async with balancing.client() as client:
            await until_workers(client, 2)
            await retrying(lambda: client.CreateConnector(create("gone", 1)), WAIT_S)
            await retrying(lambda: client.CreateConnector(create("a", 2)), WAIT_S)
            await until(balancing, all_running("a", 2))
            await client.PatchConnector(patch)
            await until(balancing, all_running("a", 2))
            before = sum((one.starts + two.starts).values())
            plan = await client.RestartConnector(restart)
            assert {item.worker_id for item in plan.items} == {"w1:1", "w2:1"}
            assert [(item.HasField("task"), item.restarted) for item in plan.items] == [
                (False, True), (True, True), (True, True)
            ]  # fmt: skip
            await until(balancing, all_running("a", 2))
            assert sum((one.starts + two.starts).values()) == before + 3
            await client.RestartTask(task)
            await until(balancing, all_running("a", 2))
            await client.DeleteConnector(delete)
            await until(balancing, lambda shown: "gone" not in shown)
            await client.DrainWorker(drain)
            await client.UndrainWorker(undrain)
            await until_shared(one, two)
            await until(balancing, all_running("a", 2))
        await balancing.start_herder(second)
        for worker in (one, two):
            worker.follow(second)
        first, balancing.herder = balancing.herder, second
        await balancing.stop_herder(first)
        await until(balancing, all_running("a", 2))
        before = sum((one.starts + two.starts).values())
        async with balancing.client() as client:
            assert (await client.RestartConnector(restart)).items == plan.items
            await client.RestartTask(task)
            patched = await client.PatchConnector(patch)
            assert patched.connector.config.entries["note"].text == "1"
            await client.DeleteConnector(delete)
            created = await client.CreateConnector(create("gone", 1))
            assert created.connector.status.state == common.RUN_STATE_DESTROYED, "made once, and deleted since"
            assert (await client.DrainWorker(drain)).worker.state == connector_pb2.WORKER_STATE_CONNECTED
            with pytest.raises(ConnectorNotFound):
                await client.DeleteConnector(pb.DeleteConnectorRequest(name="gone"))
        await until(balancing, all_running("a", 2))
        assert sum((one.starts + two.starts).values()) == before
        assert not two.draining


@together
async def test_a_new_leader_recognises_a_drain_whose_worker_has_left(mesh: Mesh) -> None:
    second = f"{HOST}:{free_port()}"
    drain = admin_pb.DrainWorkerRequest(worker_id="w2:1", request_id="drain")
    async with mesh.worker("w1") as stays:
        async with mesh.worker("w2") as leaves, mesh.client() as client:
            await retrying(lambda: client.CreateConnector(create("a", 2)), WAIT_S)
            await until(mesh, all_running("a", 2))
            await retrying(lambda: client.DrainWorker(drain), WAIT_S)
            async with asyncio.timeout(WAIT_S):
                await leaves.leave()
            await leaves.end_lease()
        await mesh.start_herder(second)
        stays.follow(second)
        first, mesh.herder = mesh.herder, second
        await mesh.stop_herder(first)
        await until(mesh, all_running("a", 2))
        async with mesh.client() as client:
            told = await retrying(lambda: client.DrainWorker(drain), WAIT_S)
            assert told.worker.state == connector_pb2.WORKER_STATE_DRAINED
            assert told.worker.reason == "drained, and gone; it has no units left"
            assert [one.worker_id for one in (await client.ListWorkers(admin_pb.ListWorkersRequest())).workers] == [
                "w1:1"
            ]
            with pytest.raises(WorkerNotFound):
                await client.DrainWorker(admin_pb.DrainWorkerRequest(worker_id="w2:1", request_id="another"))


@together
async def test_topics_are_listed_and_reset(mesh: Mesh) -> None:
    channel = connect(mesh.status_store)
    statuses = StatusWriteServiceStub(channel)
    topics = [status_pb.TopicStatus(topic=topic, connector="a", task=0) for topic in ("b", "a")]
    listed = admin_pb.ListTopicsRequest(name="a")
    try:
        await retrying(lambda: statuses.PutTopics(status_write_pb.PutTopicsRequest(topics=topics)), WAIT_S)
        async with mesh.client() as client:
            response = await retrying(lambda: client.ListTopics(listed), WAIT_S)
            assert list(response.topics) == ["a", "b"]
            await client.ResetTopics(admin_pb.ResetTopicsRequest(name="a", request_id="reset"))
            assert list((await client.ListTopics(listed)).topics) == []
            unknown = await client.ListTopics(admin_pb.ListTopicsRequest(name="nobody"))
            assert list(unknown.topics) == [], "as in Connect, nobody asks whether it exists"
        await mesh.stop_herder(mesh.herder)
        await mesh.start_herder(mesh.herder, resettable=False)
        async with mesh.client() as client:
            await retrying(lambda: client.ListTopics(listed), WAIT_S)
            with pytest.raises(TopicTrackingDisabled, match="HERDMESH_TOPIC_TRACKING_ALLOW_RESET"):
                await client.ResetTopics(admin_pb.ResetTopicsRequest(name="a"))
    finally:
        await channel.close()
