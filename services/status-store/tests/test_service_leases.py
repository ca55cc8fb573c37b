"""Tests of leases as callers see them: which watchers are notified and when, the cost of a thousand workers, and the
effect of clocks.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.statusstore.effects import leases as effects
from herdmesh.statusstore.effects.leases import LeaseKeeper
from herdmesh.statusstore.effects.relay import WRITE_SERVICE
from herdmesh.statusstore.effects.role import READ_SERVICE
from herdmesh.statusstore.state.leases import BecameWriter, Heartbeat, LeaseTable, Publish, Relayed
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from tests.support.statusstore_memory import RUNNING, UNASSIGNED, W1, W2, Client, Watch, kinds, put, running

WORKERS = 1_000


@pytest.fixture
async def keeper() -> LeaseKeeper:
    made = LeaseKeeper()
    made.handle(BecameWriter({}, 6000))
    return made


# -- notifications


@pytest.mark.timed
def test_heartbeats_without_change_notify_nobody_and_cost_the_same_among_a_thousand() -> None:
    few_s, many_s = min(_beating_s(10) for _ in range(3)), min(_beating_s(WORKERS) for _ in range(3))
    print(f"a heartbeat among 10 workers: {few_s * 1e6:.1f} us, among {WORKERS}: {many_s * 1e6:.1f} us")
    assert many_s < 8 * few_s  # a check of every lease at each heartbeat would cost some fifty times as much


def _beating_s(workers: int) -> float:
    """Seconds of one heartbeat that changes nothing."""
    table = LeaseTable()
    table.handle(BecameWriter({}, 6000), 0)
    beats = [Heartbeat(f"w{number}", "a", 6000) for number in range(workers)]
    assert all(Publish() in table.handle(beat, 0) for beat in beats)
    times = range(1, 2 * WORKERS // workers + 1)
    begun = time.thread_time()  # the test's own processor time: other processes may use the machine meanwhile
    told = [table.handle(beat, moment) for moment in times for beat in beats]
    took_s = time.thread_time() - begun
    assert not any(told)
    assert Publish() in table.handle(Heartbeat("w0", "a", 6000, leaving=True), 5000)
    return took_s / len(told)


async def test_a_thousand_workers_that_start_together_cause_few_tables() -> None:
    async with running(MemoryBroker()) as (client, _, _):
        watch, loop = Watch(client), asyncio.get_running_loop()
        begun_s = loop.time()
        await watch.until("leases")
        workers = [identity_pb2.WorkerIdentity(worker_id=f"w{number:04}", incarnation="a") for number in range(200)]
        await asyncio.gather(*(client.beat(worker) for worker in workers))
        tables: list[int] = []
        while not tables or tables[-1] < len(workers):
            tables.append(len((await watch.until("leases"))[-1].leases.leases))
        assert len(tables) < 2 + (loop.time() - begun_s) / effects.PUBLISH_EVERY_S
        await asyncio.gather(*(client.beat(worker) for worker in workers))
        await client.put(put("c", 0))
        seen = kinds(await watch.until("status_put"))
        assert seen.count("leases") <= 2  # one that was already due, and that of the worker that wrote
        watch.call.cancel()


async def test_the_whole_table_follows_the_snapshot_and_every_resume_and_change() -> None:
    async with running(MemoryBroker()) as (client, _, _):
        await client.beat(W1)
        watch = Watch(client)
        first = await watch.until("leases")
        assert kinds(first) == ["snapshot_complete", "leases"]
        assert not first[-1].HasField("meta")  # leases have no revision
        resumed = Watch(client, resume=watch.revision)
        again = await resumed.next()
        assert again.WhichOneof("event") == "leases"
        assert [lease.worker_id for lease in again.leases.leases] == [W1.worker_id]
        await client.beat(W2)
        for one in (watch, resumed):
            while len((table := (await one.until("leases"))[-1].leases).leases) < 2:
                pass  # W1's own lease, sent a moment later
            assert [(lease.worker_id, lease.live) for lease in table.leases] == [
                (W1.worker_id, True),
                (W2.worker_id, True),
            ]
            one.call.cancel()


async def test_a_writer_repeats_its_table_and_a_replica_does_not() -> None:
    broker = MemoryBroker()
    async with (
        running(broker) as (writer, _, port),
        running(broker, f"127.0.0.1:{port}", READ_SERVICE) as (replica, _, _),
    ):
        await _told(replica, W1, live=None)
        silent = aiter(replica.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
        assert not (await anext(silent)).leases.leases
        more = asyncio.ensure_future(anext(silent))
        repeated = aiter(writer.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
        assert [(await anext(repeated)).leases for _ in range(2)] == [read_pb2.LeaseTable()] * 2
        assert not more.done()
        await writer.beat(W1)
        assert (await more).leases.leases[0].live


# -- live workers


async def test_the_running_status_of_a_dead_worker_ends_without_an_event() -> None:
    """There is no write, heartbeat or watcher: a read after the end of the lease shows it."""
    async with running(MemoryBroker()) as (client, _, _):
        await client.beat(W1, lease_ms=500)
        dead = put("c", 0, worker_id=W1.worker_id, worker_incarnation=W1.incarnation)
        await client.put(dead, writer=None)  # written by the leader: no evidence that the worker is alive
        leases = aiter(client.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60))
        async for event in leases:
            if [lease.live for lease in event.leases.leases] == [False]:
                break
        task = (await client.get("c")).tasks[0]
        assert (task.state, task.effective_state, task.effective_reason) == (RUNNING, UNASSIGNED, "LEASE_EXPIRED")


async def test_a_jump_of_the_wall_clock_neither_ends_nor_prolongs_a_lease(
    keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.handle(Heartbeat("w0", "a", 60_000))
    keeper.handle(Heartbeat("w1", "a", 500))
    monkeypatch.setattr(effects, "_epoch_ms", lambda: time.time_ns() // 1_000_000 + 3_600_000)
    shown = keeper.shown_of("w0")
    assert shown is not None
    assert shown.live
    assert shown.expire_time_ms > time.time_ns() // 1_000_000 + 3_600_000  # by the present wall clock
    while [lease.live for lease in keeper.shown()] != [True, False]:
        await asyncio.wait_for(keeper.changed(keeper.version), 60)
    keeper.close()


async def test_a_replica_with_another_clock_uses_the_writers_verdict(keeper: LeaseKeeper) -> None:
    """The writer decides `live`; the end of a lease by two wall clocks is only for display."""
    keeper.handle(Heartbeat("w0", "a", 6000))
    replica = LeaseKeeper()
    [lease] = keeper.shown()
    long_ago = effects.ShownLease(lease.worker_id, lease.incarnation, lease.live, lease.expire_time_ms - 3_600_000)
    replica.handle(Relayed((replica.from_shown(long_ago),)))
    assert [lease.live for lease in replica.shown()] == [True]
    for one in (keeper, replica):
        one.close()


async def test_a_relay_finds_the_next_writer_when_the_first_is_deposed() -> None:
    broker = MemoryBroker()
    async with running(broker) as (first, first_store, first_port):
        await first.put(put("c", 0))
        await first.beat(W1, lease_ms=60_000)  # the worker leaves before its lease ends, however long the replicas take
        async with running(broker, wait_for=READ_SERVICE) as (second, _, second_port):
            peers = f"127.0.0.1:{first_port}, 127.0.0.1:{second_port}"
            async with running(broker, peers, READ_SERVICE) as (third, _, _):
                await _told(third, W1, live=True)
                await first.beat(W1, leaving=True)
                await _told(third, W1, live=False)
                assert isinstance(first_store, MemoryTopicStore)
                first_store.freeze()
                await second.serving(WRITE_SERVICE)
                first_store.thaw()
                await second.beat(W2)
                await _told(third, W2, live=True)


async def _told(client: Client, worker: identity_pb2.WorkerIdentity, live: bool | None) -> None:
    """Wait until this replica shows the worker's lease with this `live`; None = shows a table without it."""
    async for event in client.read.WatchLeases(read_pb2.WatchLeasesRequest(), timeout=60):
        if {lease.worker_id: lease.live for lease in event.leases.leases}.get(worker.worker_id) is live:
            return
