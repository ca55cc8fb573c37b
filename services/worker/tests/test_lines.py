"""Connections to herder and status store over real servers: fail-over, order, and queues while they are unreachable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb2
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.session import wire as session_wire
from herdmesh.session.messages import Welcome
from herdmesh.session.model import Assignment, RunState, UnitId
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.effects.stores import statuses
from herdmesh.worker.effects.stores.session import HerderSession
from herdmesh.worker.effects.stores.statuses import StatusClient
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state import events
from herdmesh.worker.state.instructions import WriteStatus
from herdmesh.worker.state.model import PutMode
from services.worker.tests import fakes
from services.worker.tests.fakes import RememberingStatusStore, ScriptedHerder

WORKER = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="life")
UNIT = UnitId("c", 0)


def status(state: RunState, unit: UnitId = UNIT, generation: int = 1) -> WriteStatus:
    return WriteStatus(unit, state, PutMode.PUT, generation, {"connector.class": "FileStreamSink"})


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.01)


@pytest.fixture
def emitted() -> asyncio.Queue[events.Event]:
    return asyncio.Queue()


async def test_statuses_wait_for_the_store_and_the_latest_wins(emitted: asyncio.Queue[events.Event]) -> None:
    store = RememberingStatusStore()
    store.away = True
    server, address = await fakes.serve_store(store)
    client = StatusClient(address, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emitted.put)
    client.start()
    try:
        client.write(status(RunState.RUNNING))
        client.write(status(RunState.RUNNING, UnitId("c", 1)))
        await until(lambda: store.refused)
        client.write(status(RunState.PAUSED))
        store.away = False
        await until(lambda: len(store.puts) == 2)
        assert [one.state for one in store.of("c", 0)] == [connector_pb2.RUN_STATE_PAUSED]
        assert store.of("c", 0)[0].worker_incarnation == "life"
        await until(lambda: store.leases)
    finally:
        await client.close(30)
        await server.stop(0)
    assert store.leases[-1].leaving


async def test_running_statuses_are_batched_and_others_are_sent_at_once(
    emitted: asyncio.Queue[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "_GATHER_S", 3_600.0)
    store = RememberingStatusStore()
    server, address = await fakes.serve_store(store)
    client = StatusClient(address, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emitted.put)
    client.start()
    try:
        await until(lambda: store.leases)
        client.write(status(RunState.RUNNING))
        client.write(status(RunState.RUNNING, UnitId("c", 1)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not store.sequences
        client.write(status(RunState.FAILED, UnitId("c", 2)))
        await until(lambda: len(store.puts) == 3)
        assert store.sequences == [1], "in one write"
        client.write(status(RunState.RUNNING, UnitId("c", 3)))
    finally:
        await client.close(30)
        await server.stop(0)
    assert store.of("c", 3), "and who closes waits no longer than it must"


async def test_each_request_has_a_higher_sequence_also_after_a_failed_one(
    emitted: asyncio.Queue[events.Event],
) -> None:
    store = RememberingStatusStore()
    store.away = True
    server, address = await fakes.serve_store(store)
    client = StatusClient(address, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emitted.put)
    client.start()
    try:
        client.write(status(RunState.RUNNING))
        await until(lambda: len(store.sequences) >= 2)
        store.away = False
        await until(lambda: store.puts)
        client.write(status(RunState.PAUSED))
        await until(lambda: len(store.puts) == 2)
        assert store.sequences == list(range(1, len(store.sequences) + 1))
    finally:
        await client.close(30)
        await server.stop(0)


async def test_an_invalid_status_delays_no_other(emitted: asyncio.Queue[events.Event]) -> None:
    store = RememberingStatusStore()
    store.invalid.add("bad")
    server, address = await fakes.serve_store(store)
    client = StatusClient(address, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emitted.put)
    client.start()
    try:
        for connector in ("a", "bad", "b"):
            client.write(status(RunState.RUNNING, UnitId(connector, 0)))
        await until(lambda: store.of("a") and store.of("b"))
        client.write(status(RunState.PAUSED, UnitId("a", 0)))
        await until(lambda: len(store.of("a")) == 2)
        assert not store.of("bad")
    finally:
        await client.close(30)
        await server.stop(0)


async def test_a_stale_status_emits_an_event(emitted: asyncio.Queue[events.Event]) -> None:
    store = RememberingStatusStore()
    store.stale.add("c")
    server, address = await fakes.serve_store(store)
    client = StatusClient(address, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emitted.put)
    client.start()
    try:
        client.write(status(RunState.RUNNING, generation=7))
        async with asyncio.timeout(60):
            assert await emitted.get() == events.StatusStale(UNIT, 7)
    finally:
        await client.close(30)
        await server.stop(0)


async def test_the_session_follows_the_leader_and_reconnects(emitted: asyncio.Queue[events.Event]) -> None:
    follower, leader = ScriptedHerder(), ScriptedHerder()
    follower_server, follower_address = await fakes.serve_herder(follower)
    leader_server, leader_address = await fakes.serve_herder(leader)
    follower.leader_address = leader_address
    session = HerderSession(follower_address, lambda: session_pb2.WorkerHello(worker=WORKER), emitted.put)
    session.start()
    try:
        await leader.until_session()
        opened = await _event(emitted, events.Command)
        assert isinstance(opened, events.Command)
        assert isinstance(opened.message, Welcome)
        session.send(session_wire.report_to(UNIT, Assignment(1, 1), RunState.RUNNING, None))
        await leader.until_report("c", connector_pb2.RUN_STATE_RUNNING)

        leader.end_session()
        assert isinstance(await _event(emitted, events.SessionClosed), events.SessionClosed)
        await leader.until_session(2)

        await leader_server.stop(0)
        follower.leader_address = ""
        await follower.until_session()
        assert not follower.hellos[0].holdings
    finally:
        await session.close()
        await follower_server.stop(0)
        await leader_server.stop(0)


async def test_a_released_worker_opens_no_session(emitted: asyncio.Queue[events.Event]) -> None:
    """Its loop may be busy for seconds before it ends the process. A second session shows when it would have
    connected."""
    leaver_herder, other_herder = ScriptedHerder(), ScriptedHerder()
    servers = [await fakes.serve_herder(one) for one in (leaver_herder, other_herder)]

    def hello() -> session_pb2.WorkerHello:
        return session_pb2.WorkerHello(worker=WORKER)

    leaver = HerderSession(servers[0][1], hello, emitted.put)
    other = HerderSession(servers[1][1], hello, emitted.put)
    released = session_pb2.SessionResponse(epoch=1, released=session_pb2.SessionReleased())
    for session in (leaver, other):
        session.start()
    try:
        await leaver_herder.until_session()
        await other_herder.until_session()
        leaver.send(session_pb2.SessionRequest(leaving=session_pb2.WorkerLeaving()))
        for herder in (leaver_herder, other_herder):
            herder.send(released)
            herder.end_session()
        for count in (2, 3, 4):
            await other_herder.until_session(count)  # it did not ask to leave: it connects again
            other_herder.end_session()
        assert len(leaver_herder.hellos) == 1
    finally:
        await leaver.close()
        await other.close()
        for server, _ in servers:
            await server.stop(0)


async def _event(emitted: asyncio.Queue[events.Event], kind: type) -> events.Event:
    async with asyncio.timeout(60):
        while True:
            event = await emitted.get()
            if isinstance(event, kind):
                return event
