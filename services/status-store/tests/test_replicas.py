"""Tests of three status stores as processes over a real broker: one writes, all serve reads and watches at a revision
the caller demands; a kill and a clean stop of the writer, and the worker leases that the replicas show meanwhile.

How long a replica may show a dead worker as live: while there is a writer, its lease; when the writer dies with the
worker, the take-over (10 s) and one full lease that the new writer grants; when there is no writer any more, 12 s
(`state.leases.SILENT_MS`, tested there).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_read_service_pb2 as read_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as write_pb2
from herdmesh.devstack.ports import free_ports
from herdmesh.rpc.errors import HerdmeshError, NotWriter
from tests.support.side_by_side import SideBySideTest
from tests.support.sizes import soak_or
from tests.support.statusstore_memory import put
from tests.support.statusstore_process import StatusStoreProcess
from tests.support.waiting import timed

pytestmark = [pytest.mark.kafka, pytest.mark.timed]

RUNNING, UNASSIGNED = connector_pb2.RUN_STATE_RUNNING, connector_pb2.RUN_STATE_UNASSIGNED
DEAD = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="a")
LIVE = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7205", incarnation="b")
#: Time for the checks that need a running lease, enough on a busy machine too.
LEASE_S = 3.0
#: The promised bound; the gates are at three times that. A stop without a hand-over takes the session's 6 s.
TAKE_OVER_S = 10.0
CLEAN_TAKE_OVER_S = 1.0
GATE = 3
#: Time after which a replica that lost its writer queries the next one; a frozen writer is abandoned after three
#: intervals.
RELAY_S = 5.0
WAIT_S = 60.0
#: A kill in `make test`; in `make soak` also a writer that is stopped and never notices it.
ENDS = [signal.SIGKILL, signal.SIGSTOP][: soak_or(1, 2)]


@asynccontextmanager
async def _three_stores(bootstrap: str, topic: str, folder: Path) -> AsyncGenerator[list[StatusStoreProcess]]:
    """Three replicas; the first is the writer."""
    ports = free_ports(3)
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    made = [
        StatusStoreProcess(
            bootstrap,
            topic,
            folder / f"store-{number}.log",
            more=[f"--listen=127.0.0.1:{port}", f"--peers={peers}", f"--lease-ms={LEASE_S * 1000:.0f}"],
        )
        for number, port in enumerate(ports)
    ]
    try:
        await made[0].start()
        await made[0].until_writing()
        await asyncio.gather(*(store.start() for store in made[1:]))
        await asyncio.gather(*(store.until_reading() for store in made))
        yield made
    finally:
        await asyncio.gather(*(store.kill() for store in made))


def _stores(test: SideBySideTest) -> AbstractAsyncContextManager[list[StatusStoreProcess]]:
    return _three_stores(test.fixture("kafka_bootstrap"), test.topic("status"), test.folder())


together = timed.making("kafka_bootstrap", stores=_stores)


async def _until(what: str, condition: Callable[[], Awaitable[bool]], within_s: float = WAIT_S) -> float:
    """Seconds until `condition` held; fails after `within_s`. A store that does not respond counts as not yet."""
    begun = time.monotonic()
    while True:
        with suppress(HerdmeshError):
            if await condition():
                return time.monotonic() - begun
        assert time.monotonic() - begun < within_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.05)


async def _task(store: StatusStoreProcess, connector: str) -> status_pb2.Status:
    answer = await store.read.GetStatus(read_pb2.GetStatusRequest(connector=connector), timeout=10)
    return answer.tasks[0]


async def _next_writer(stores: list[StatusStoreProcess]) -> StatusStoreProcess:
    """The first of the stores that reports itself as the writer."""

    async def writes(store: StatusStoreProcess) -> StatusStoreProcess:
        await store.until_writing()
        return store

    tasks = [asyncio.ensure_future(writes(store)) for store in stores]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _beat(store: StatusStoreProcess, worker: identity_pb2.WorkerIdentity) -> bool:
    await store.write.Heartbeat(write_pb2.HeartbeatRequest(worker=worker), timeout=10)
    return True


@together
@pytest.mark.parametrize("end", ENDS)
async def test_replicas_serve_reads_take_over_and_agree_on_live_workers(
    stores: list[StatusStoreProcess], end: signal.Signals
) -> None:
    first, *others = stores
    written = await _write(first, "c", DEAD)
    await _write(first, "d", LIVE)
    both = asyncio.gather(*(_keep_beating(first, worker) for worker in (DEAD, LIVE)))
    for store in stores:
        await _reads_and_watches_at(store, written)
    for store in others:
        with pytest.raises(NotWriter):
            await _beat(store, LIVE)
        await _until("the writer's leases are relayed", lambda store=store: _shown(store, "c", RUNNING))

    # 1. The writer ends, and one worker with it.
    both.cancel()
    first.signal(end)
    ended = time.monotonic()
    second = await _next_writer(others)
    took_s = time.monotonic() - ended
    assert took_s < GATE * TAKE_OVER_S
    [third] = [store for store in others if store is not second]
    for connector in "cd":  # one full lease for every known worker, which the replica shows too after the relay
        assert (await _task(second, connector)).effective_state == RUNNING
        await _until("relayed", lambda connector=connector: _shown(third, connector, RUNNING))
    beating = asyncio.ensure_future(_keep_beating(second, LIVE))
    await _until("the dead worker's lease ends", lambda: _shown(second, "c", UNASSIGNED))
    await _until("... on the replica too, so its relay found the new writer", lambda: _shown(third, "c", UNASSIGNED))
    dead_s = time.monotonic() - ended
    assert dead_s < GATE * (TAKE_OVER_S + LEASE_S + RELAY_S)
    assert (await _task(third, "c")).effective_reason == "LEASE_EXPIRED"
    assert (await _task(third, "d")).effective_state == RUNNING
    await _reads_and_watches_at(third, await _write(second, "e", LIVE))

    # 2. A clean stop.
    beating.cancel()
    stopped = time.monotonic()
    stopping = asyncio.ensure_future(second.stop())
    assert await _next_writer([third]) is third
    clean_s = time.monotonic() - stopped
    assert clean_s < GATE * CLEAN_TAKE_OVER_S
    assert (await _task(third, "d")).effective_state == RUNNING
    assert await stopping == 0
    await _write(third, "f", LIVE)
    print(
        f"take-over after {end.name}: {took_s:.2f} s; a replica showed the dead worker for {dead_s:.2f} s; "
        f"take-over after a clean stop: {clean_s:.2f} s"
    )


async def _write(store: StatusStoreProcess, connector: str, worker: identity_pb2.WorkerIdentity) -> status_pb2.Status:
    request = write_pb2.PutStatusesRequest(writer=worker, puts=[put(connector, 0)])
    reply = await store.write.PutStatuses(request, timeout=10)
    assert [outcome.result for outcome in reply.outcomes] == [write_pb2.PUT_RESULT_APPLIED]
    return reply.outcomes[0].stored


async def _reads_and_watches_at(store: StatusStoreProcess, written: status_pb2.Status) -> None:
    """A write acknowledged elsewhere is visible when its revision is demanded: in reads, refreshes, lists and
    watches.
    """
    at_least = written.revision
    request = read_pb2.GetStatusRequest(connector=written.connector, at_least=at_least)
    assert (await store.read.GetStatus(request, timeout=10)).tasks[0].revision == at_least
    await store.read.Refresh(read_pb2.RefreshRequest(revision=at_least), timeout=10)
    await store.read.Refresh(read_pb2.RefreshRequest(), timeout=10)
    listed = await store.read.ListStatuses(read_pb2.ListStatusesRequest(at_least=at_least), timeout=10)
    assert at_least in [status.revision for status in listed.statuses]
    watch = store.read.WatchStatuses(read_pb2.WatchStatusesRequest(at_least=at_least), timeout=10)
    async for event in watch:
        assert event.WhichOneof("event") != "snapshot_complete", "the snapshot lacks what was demanded"
        if event.status_put.revision == at_least:
            break


async def _shown(store: StatusStoreProcess, connector: str, state: connector_pb2.RunState.ValueType) -> bool:
    return (await _task(store, connector)).effective_state == state


async def _keep_beating(store: StatusStoreProcess, worker: identity_pb2.WorkerIdentity) -> None:
    while True:
        with suppress(HerdmeshError):  # the next attempt returns it
            await _beat(store, worker)
        await asyncio.sleep(0.25)
