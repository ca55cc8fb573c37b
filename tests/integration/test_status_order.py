"""A worker's statuses over fail-overs of the status store: an older one is never written after a newer one.

The worker's real client and two replicas of the real service over the memory engine, whose commits lose their answers
and whose writer is deposed without noticing, again and again. Each status carries a rising generation, so that the
topic itself shows the order.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.session.model import RunState, UnitId
from herdmesh.statusstore.effects.relay import WRITE_SERVICE
from herdmesh.statusstore.effects.role import READ_SERVICE
from herdmesh.topicstore.contract import StoreRole
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from herdmesh.worker.effects.runs.specs import RunSpecs
from herdmesh.worker.effects.stores import statuses
from herdmesh.worker.effects.stores.statuses import StatusClient
from herdmesh.worker.settings import WorkerSettings
from herdmesh.worker.state.events import StatusStale
from herdmesh.worker.state.instructions import WriteStatus
from herdmesh.worker.state.model import PutMode
from tests.support.sizes import soak_or
from tests.support.statusstore_memory import running

WORKER = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:7204", incarnation="life")
UNITS = [UnitId("c", task) for task in (None, 0, 1, 2)]
FAIL_OVERS = soak_or(4, 24)
STATES = [RunState.RUNNING, RunState.PAUSED, RunState.FAILED]


async def test_the_latest_status_of_each_unit_wins_over_fail_overs_of_the_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statuses, "_CALL_TIMEOUT_S", 0.3)  # many calls time out in flight
    broker = MemoryBroker()
    stale: list[StatusStale] = []

    async def emit(event: StatusStale) -> None:
        stale.append(event)

    async with (
        running(broker) as (first, first_store, first_port),
        running(broker, wait_for=READ_SERVICE) as (second, second_store, second_port),
    ):
        addresses = f"127.0.0.1:{first_port},127.0.0.1:{second_port}"
        client = StatusClient(addresses, WORKER, RunSpecs(WorkerSettings(), PluginRegistry.discover()), emit)
        ends = client.start()
        generation = 0

        async def write_until(done: asyncio.Future[Any]) -> None:
            """Write a status of some unit every few milliseconds."""
            nonlocal generation
            while not done.done():
                generation += 1
                unit = UNITS[generation % len(UNITS)]
                client.write(WriteStatus(unit, STATES[generation % 3], PutMode.PUT, generation, {}))
                await asyncio.wait([done], timeout=0.003)
            done.result()

        for turn in range(FAIL_OVERS):
            stores = [(first, first_store), (second, second_store)]
            stores.sort(key=lambda one: one[1].role is not StoreRole.WRITER)
            (_, writer), (other, _) = stores
            assert isinstance(writer, MemoryTopicStore)
            if turn % 2 == 0:
                writer.freeze()  # it does not learn that it was deposed; its calls still go out and meet the fence
                await write_until(asyncio.ensure_future(other.serving(WRITE_SERVICE)))
                await write_until(asyncio.ensure_future(_records(broker, len(_keys(broker)) + 20)))
                writer.thaw()
            else:
                writer.lose_next_answer(applied=turn % 4 == 1)
                await write_until(asyncio.ensure_future(_records(broker, len(_keys(broker)) + 20)))
        last = {unit: generation - (generation - number) % len(UNITS) for number, unit in enumerate(UNITS)}
        assert not any(task.done() for task in ends)
        monkeypatch.setattr(statuses, "_CALL_TIMEOUT_S", 20.0)  # the last statuses do not time out any more
        await client.close(flush_s=30)
    generations: dict[bytes, list[int]] = {}
    for key, value in _keys(broker):
        generations.setdefault(key, []).append(json.loads(value)["generation"])
    assert all(found == sorted(found) for found in generations.values())
    written = {key: found[-1] for key, found in generations.items()}
    assert written == {
        (b"status-connector-c" if unit.task is None else b"status-task-c-%d" % unit.task): last[unit] for unit in UNITS
    }
    assert not stale


def _keys(broker: MemoryBroker) -> list[tuple[bytes, bytes]]:
    records = broker.topics["connect-status"].records()
    return [(record.key, record.value) for record in records if record.key and record.value]


async def _records(broker: MemoryBroker, count: int) -> None:
    """Wait until the topic has that many."""
    while len(_keys(broker)) < count:  # noqa: ASYNC110  # the topic tells nobody
        await asyncio.sleep(0.01)
