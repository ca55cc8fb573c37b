"""Metric series of a store on the /metrics page, over HTTP, on the memory engine: real numbers, removed when it
closes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from herdmesh.rpc.monitoring.http_pages import HttpPages, Readiness
from herdmesh.topicstore import StoreRole, StoreTuning, WriterFenced
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore
from herdmesh.topicstore.metrics import STORE_METRICS
from tests.contract.topicstore_harness import Change, KeyValues, MemoryCluster, put, suite_settings, until_role

_TOPIC = "topic-with-metrics"
_TUNING = StoreTuning(take_over_backoff_ms=1, take_over_backoff_ms_max=5, keep_alive_ms=600_000)


class Counted(KeyValues):
    """A state that reports its size, as the states of the two stores do."""

    connector_count = 7
    undecodable_count = 3


@pytest.fixture
async def page() -> AsyncIterator[str]:
    served = HttpPages("127.0.0.1", 0, lambda: Readiness(True, ""))
    yield f"http://127.0.0.1:{served.start()}/metrics"
    await served.stop()


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    made = MemoryCluster(suite_settings(_TOPIC))
    yield made
    await made.close()


async def _series(page: str) -> dict[str, float]:
    """Numbers of this test's topic by name and the labels that tell series of one name apart."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(page)).text
    found = dict[str, float]()
    for line in text.splitlines():
        if f'topic="{_TOPIC}"' in line and "_bucket{" not in line:
            name, value = line.split("{")[0], line.rsplit(" ", 1)[1]
            labels = [re.search(rf'{label}="([^"]*)"', line) for label in ("outcome", "role", "condition", "partition")]
            found[" ".join((name, *(one[1] for one in labels if one)))] = float(value)
    return found


async def test_writes_transactions_and_watchers_are_on_the_page_until_the_store_closes(
    cluster: MemoryCluster, page: str
) -> None:
    store = await cluster.open(tuning=_TUNING)
    await until_role(store, StoreRole.WRITER)
    await store.write(put(b"a", b"1"))
    await store.write(put(b"b", b"1"))

    def refuse(_: KeyValues) -> object:
        raise LookupError("no such key")

    with pytest.raises(LookupError):
        await store.write(refuse)  # pyright: ignore[reportArgumentType]  # raises before it could return
    watch = store.watch()
    await anext(watch)
    following = asyncio.ensure_future(anext(watch))
    await store.write(put(b"c", b"1"))
    await following
    found = await _series(page)
    assert found["herdmesh_store_writes_total applied"] == 3
    assert found["herdmesh_store_writes_total refused"] == 1
    assert found["herdmesh_store_write_latency_seconds_count"] == 3
    assert found["herdmesh_store_write_latency_seconds_sum"] > 0
    assert found["herdmesh_store_role writer"] == 1
    assert sum(value for name, value in found.items() if name.startswith("herdmesh_store_role ")) == 1
    assert found["herdmesh_store_condition HEALTHY"] == 1
    assert found["herdmesh_store_condition BROKER_UNREACHABLE"] == 0
    applied = store.revision.next_offsets
    assert [found[f"herdmesh_store_revision_offset {number}"] for number in range(len(applied))] == [*applied]
    assert sum(applied) > 0
    assert 0 < found["herdmesh_store_replay_seconds"] < 60
    assert found["herdmesh_store_transactions_total"] == 3
    assert found["herdmesh_store_transactions_failed_total"] == 0
    assert found["herdmesh_store_records_applied_total"] == 3
    assert found["herdmesh_store_reader_lag_offsets"] == 0
    assert found["herdmesh_store_watchers"] == 1
    assert found["herdmesh_store_watchers_cut_off_total"] == 0
    assert "herdmesh_store_snapshot_connectors" not in found, "this state does not tell its size"
    await store.close()
    assert await _series(page) == {}


async def test_a_failed_transaction_is_counted_with_the_failed_write(cluster: MemoryCluster, page: str) -> None:
    store = await cluster.open(tuning=_TUNING)
    await until_role(store, StoreRole.WRITER)
    store.lose_next_answer(applied=False)
    with pytest.raises(WriterFenced):
        await store.write(put(b"a", b"1"))
    found = await _series(page)
    assert found["herdmesh_store_transactions_failed_total"] == 1
    assert found["herdmesh_store_writes_total not_applied"] == 1
    assert found["herdmesh_store_write_latency_seconds_count"] == 0, "only writes that were applied are timed"


async def test_every_documented_series_is_shown_for_a_state_that_reports_its_size() -> None:
    made = MemoryCluster(suite_settings(_TOPIC))
    store = MemoryTopicStore[KeyValues, Change](made.broker, made.settings, Counted(), tuning=_TUNING)
    await store.start()
    try:
        shown = {family.name: family for family in store.metrics.families()}
        assert {name: (one.kind, one.description) for name, one in shown.items()} == STORE_METRICS
        assert shown["herdmesh_store_snapshot_connectors"].points == [({"topic": _TOPIC}, 7.0)]
        assert shown["herdmesh_store_undecodable_records_total"].points == [({"topic": _TOPIC}, 3.0)]
    finally:
        await store.close()
