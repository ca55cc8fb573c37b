"""Two herders as processes of their own: one is killed, stopped or frozen; the other leads, and no task restarts.

Stores keep everything in memory, the status store in this process, and workers speak the session protocol without
Spark: the subject is leadership and how clients find it. `tests.chaos` does the same among all other
faults.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.api.herder.v1 import connector_service_pb2_grpc
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.cli.display.board import Board
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.configstore.state import election
from herdmesh.herder.effects import campaign
from herdmesh.rpc import properties
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.rpc.request_ids import new_request_id
from herdmesh.session.messages import Welcome
from herdmesh.statusstore.__main__ import make_store, serve
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.worker.effects.stores.session import HerderSession
from herdmesh.worker.state import events
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.session_worker import SINK_CLASS, SessionWorker
from tests.support.side_by_side import SideBySide
from tests.support.store_process import StoreProcess

pytestmark = pytest.mark.timed

#: The user's promise after kill -9 (ARCHITECTURE, kill -9), after SIGTERM, and until a client has found the other: its
#: backoff's 0.5 s, and the same of gRPC's reconnects. The first gate is the promise itself (2.0 to 2.3 s in whole runs
#: on a busy machine); the other gates are three times theirs.
KILLED_S_MAX = 5.0
RESIGNED_S_MAX = 1.5
ENDED_S_MAX = 5.0
FOUND_S_MAX = 1.5
GATE = 3
WAIT_S = 60.0
TASKS = 4


class HerderProcess(StoreProcess):
    """`python -m herdmesh.herder` on a free port."""

    module = "herdmesh.herder"
    read_service = "herdmesh.api.herder.v1.ConnectorService"
    write_service = "herdmesh.api.herder.v1.WorkerSessionService"

    def stub(self, channel: grpc.aio.Channel) -> None:
        self.connectors = connector_service_pb2_grpc.ConnectorServiceStub(channel)

    async def cluster(self) -> admin.GetClusterResponse:
        return await self.connectors.GetCluster(admin.GetClusterRequest(), timeout=2)

    async def until_cluster(self, condition: Callable[[admin.GetClusterResponse], bool]) -> admin.GetClusterResponse:
        """The herder's view of the cluster, once it satisfies the condition."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    cluster = await self.cluster()
                except HerdmeshError:
                    cluster = admin.GetClusterResponse()
                if condition(cluster):
                    return cluster
                await asyncio.sleep(0.02)


class Pair:
    """A leader, a follower, and two workers that hold the tasks of connector `a`."""

    def __init__(
        self, leader: HerderProcess, follower: HerderProcess, workers: list[SessionWorker], election_log: Path
    ) -> None:
        self.leader, self.follower, self.workers = leader, follower, workers
        self._election_log = election_log

    @property
    def starts(self) -> int:
        """How often any unit was started on any worker."""
        return sum(sum(worker.starts.values()) for worker in self.workers)

    async def until_resigned(self) -> None:
        """Wait until the electing store has got a leader's resignation."""
        async with asyncio.timeout(WAIT_S):
            while b'"resigned"' not in self._election_log.read_bytes():  # noqa: ASYNC110  # only its log tells
                await asyncio.sleep(0.02)

    async def until_taken_over(self) -> admin.GetClusterResponse:
        """Wait until the follower leads and has adopted every unit."""
        await self.follower.until_cluster(lambda one: one.epoch > 0)
        return await self.follower.until_cluster(lambda one: one.adopted_count == TASKS + 1)

    def assert_nothing_restarted(self, cluster: admin.GetClusterResponse) -> None:
        assert (cluster.start_count, cluster.adopted_count) == (0, TASKS + 1)
        assert self.starts == TASKS + 1


@asynccontextmanager
async def _processes(folder: Path) -> AsyncGenerator[tuple[HerderProcess, HerderProcess, str]]:
    """The leader, a follower, and the address of the status store."""
    config = ConfigStoreProcess("127.0.0.1:1", "configs", folder / "config.log", more=["--memory"])
    made: list[StoreProcess] = [config]
    async with AsyncExitStack() as stack:
        status_store = await stack.enter_async_context(_status_store())
        stack.push_async_callback(_kill, made)
        await config.start()
        addresses = [f"--config-store={config.address}", f"--status-store={status_store}"]
        herders = [HerderProcess(addresses, folder / f"herder-{number}.log") for number in (1, 2)]
        made += herders
        await asyncio.gather(*(herder.start() for herder in herders))
        told = await herders[0].until_cluster(lambda one: bool(one.leader_address))
        leader, follower = sorted(herders, key=lambda one: one.address != told.leader_address)
        await leader.until_cluster(lambda one: one.epoch > 0)
        await follower.until_cluster(lambda one: one.leader_address == leader.address)
        yield leader, follower, status_store


async def _kill(made: list[StoreProcess]) -> None:
    for process in reversed(made):
        await process.kill()


@asynccontextmanager
async def _status_store() -> AsyncGenerator[str]:
    """The address of one that ends with the block."""
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    settings = StatusStoreSettings(listen="127.0.0.1:0", memory=True, metrics=False)
    serving = asyncio.create_task(serve(stop, settings, make_store(settings), port.set_result))
    try:
        await asyncio.wait({serving, port}, return_when=asyncio.FIRST_COMPLETED)
        assert port.done(), serving
        yield f"127.0.0.1:{port.result()}"
    finally:
        stop.set()
        await serving


@asynccontextmanager
async def _pair(folder: Path) -> AsyncGenerator[Pair]:
    async with _processes(folder) as (leader, follower, status_store):
        both = f"{follower.address},{leader.address}"
        async with SessionWorker("w1:1", both, status_store) as one, SessionWorker("w2:1", both, status_store) as two:
            async with HerderClient(leader.address) as client:
                config = properties.to_proto({"connector.class": SINK_CLASS, "tasks.max": str(TASKS), "topics": "t"})
                create = messages.CreateConnectorRequest(request_id=new_request_id(), name="a", config=config)
                await client.call(lambda stub: stub.CreateConnector, create)
            pair = Pair(leader, follower, [one, two], folder / "config.log")
            await leader.until_cluster(lambda _: len(one.held) + len(two.held) == TASKS + 1)
            yield pair


#: Each has a pair of its own, and mostly waits for a silence to be noticed.
together = SideBySide(pair=lambda test: _pair(test.folder()))


@together
async def test_a_killed_leader_is_replaced_in_time_and_restarts_nothing(
    pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    """Every client of ours succeeds: commands that know both herders or one, a watch and a worker that know the
    follower alone.
    """
    leader, follower = pair.leader.address, pair.follower.address
    async with AsyncExitStack() as stack:
        addresses = (f"{leader},{follower}", f"{follower},{leader}", follower)
        clients = [await stack.enter_async_context(HerderClient(one)) for one in addresses]
        for client in clients:
            await _get(client)
            assert client.address == leader
        watch = await stack.enter_async_context(_watching(follower))
        worker = await stack.enter_async_context(_dialling(follower))
        await watch.get()
        first = await _until_opened(worker)

        killed_s = time.monotonic()
        await pair.leader.end()
        answering = asyncio.gather(*(_timed(client, killed_s) for client in clients))
        await pair.follower.until_cluster(lambda one: one.epoch > 0)
        took_s = time.monotonic() - killed_s
        answered_s = await answering
        record_property("led_after_s", round(took_s, 2))
        print(f"after kill -9 of the leader another leads in {took_s:.2f} s, clients answered after {answered_s}")
        assert took_s < KILLED_S_MAX
        assert max(answered_s) < took_s + GATE * FOUND_S_MAX
        pair.assert_nothing_restarted(await pair.until_taken_over())
        async with asyncio.timeout(WAIT_S):
            assert set(await watch.get()) == {"a"}
        assert await _until_opened(worker) == first + 1


@together
async def test_a_stopped_leader_resigns_at_once(pair: Pair, record_property: Callable[[str, object], None]) -> None:
    stopped_s = time.monotonic()
    pair.leader.signal(signal.SIGTERM)
    cluster = await pair.follower.until_cluster(lambda one: one.epoch > 0)
    took_s = time.monotonic() - stopped_s
    code = await pair.leader.ended()
    ended_s = time.monotonic() - stopped_s
    record_property("led_after_s", round(took_s, 2))
    print(f"after SIGTERM of the leader another leads in {took_s:.2f} s; it ended after {ended_s:.2f} s")
    await pair.until_resigned()  # and did not merely time out, which takes the store two seconds
    assert took_s < GATE * RESIGNED_S_MAX
    assert (code, cluster.epoch) == (0, 2)
    assert ended_s < GATE * ENDED_S_MAX
    pair.assert_nothing_restarted(await pair.until_taken_over())


@together
async def test_a_frozen_leader_is_replaced_and_wakes_as_a_follower(
    pair: Pair, record_property: Callable[[str, object], None]
) -> None:
    """Its connections stay open, so only silence reveals it. A call in flight to it ends with the other's answer."""
    async with HerderClient(f"{pair.leader.address},{pair.follower.address}") as client:
        await _get(client)
        pair.leader.signal(signal.SIGSTOP)
        frozen_s = time.monotonic()
        try:
            answered = asyncio.create_task(_timed(client, frozen_s))
            await pair.follower.until_cluster(lambda one: one.epoch > 0)
            took_s = time.monotonic() - frozen_s
            record_property("led_after_s", round(took_s, 2))
            print(f"after SIGSTOP of the leader another leads in {took_s:.2f} s, a caller heard it {await answered} s")
            assert took_s < GATE * (KILLED_S_MAX + 1)
            pair.assert_nothing_restarted(await pair.until_taken_over())
        finally:
            pair.leader.signal(signal.SIGCONT)
        await pair.leader.until_cluster(lambda one: one.leader_address == pair.follower.address and one.epoch == 0)
        pair.assert_nothing_restarted(await pair.follower.cluster())


def test_the_herder_counts_a_broken_connection_as_the_election_does() -> None:
    assert campaign.RETURN_MS == election.RETURN_MS
    assert campaign.RETURN_MS > 1000 * campaign.RETRY_S_MAX  # a live herder is back before


@asynccontextmanager
async def _watching(addresses: str) -> AsyncGenerator[asyncio.Queue[list[str]]]:
    """Output of `herd watch`: the names on its board, at each change from the leader."""
    board = Board()
    told: asyncio.Queue[list[str]] = asyncio.Queue()

    def changed(_name: str, _connector: object) -> None:
        told.put_nowait(sorted(board.connectors))

    following = asyncio.create_task(board.follow(addresses, changed))
    try:
        yield told
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def _dialling(addresses: str) -> AsyncGenerator[asyncio.Queue[events.Event]]:
    """A worker's own dialling (`SessionWorker` is a fake of it), and the events it gets."""
    heard: asyncio.Queue[events.Event] = asyncio.Queue()

    def hello() -> session_pb2.WorkerHello:
        worker = identity_pb2.WorkerIdentity(worker_id="w3:1", incarnation="w3")
        return session_pb2.WorkerHello(worker=worker, address="w3:1", slots=1)

    session = HerderSession(addresses, hello, heard.put)
    session.start()
    try:
        yield heard
    finally:
        await session.close()


async def _until_opened(told: asyncio.Queue[events.Event]) -> int:
    """The epoch of the next welcome."""
    async with asyncio.timeout(WAIT_S):
        while True:
            event = await told.get()
            if isinstance(event, events.Command) and isinstance(event.message, Welcome):
                return event.epoch


async def _get(client: HerderClient) -> Any:
    return await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name="a"))


async def _timed(client: HerderClient, since_s: float) -> float:
    await _get(client)
    return round(time.monotonic() - since_s, 2)
