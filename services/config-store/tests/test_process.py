"""Tests of the config store as a process on a real broker: kill -9 loses no acknowledged write, and a live Java cluster
keeps the store from writing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from herdmesh.api.common.v1 import identity_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.api.configstore.v1 import leadership_service_pb2 as lead_pb
from herdmesh.configstore.effects import connect_group
from herdmesh.configstore.effects.connect_group import ConnectGroup
from herdmesh.rpc.errors import ConnectorExists, HerdmeshError
from herdmesh.topicstore import ForeignWriter, TopicSettings
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.store_process import SHORT_SESSION

pytestmark = pytest.mark.kafka

_WRITERS = 8
_ACKNOWLEDGED_BEFORE_KILL = 100


async def test_kill_9_loses_no_acknowledged_write(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    """1. Eight callers create connectors as fast as they can. 2. The process is killed meanwhile. 3. After its restart
    every acknowledged connector is there, no transaction is there in part, and a retry of a write in flight is applied
    once.
    """
    store = ConfigStoreProcess(kafka_bootstrap, tmp_topic("configs"), tmp_path / "store.log", more=SHORT_SESSION)
    await store.start()
    await store.until_writing()
    granted = await _campaign(store, "herder-1")
    acknowledged: dict[str, int] = {}
    in_flight: dict[str, int] = {}
    enough = asyncio.Event()

    async def write(writer: int) -> None:
        for number in range(10_000):
            name = f"c-{writer}-{number}"
            in_flight[name] = number
            await store.put(name, {"name": name, "n": str(number)}, must_not_exist=True, request_id=name)
            acknowledged[name] = in_flight.pop(name)
            if len(acknowledged) >= _ACKNOWLEDGED_BEFORE_KILL:
                enough.set()

    writers = [asyncio.create_task(write(number)) for number in range(_WRITERS)]
    await enough.wait()
    await store.kill()
    for failed in await asyncio.gather(*writers, return_exceptions=True):
        assert isinstance(failed, HerdmeshError | asyncio.CancelledError)  # the call ended with the channel
    assert in_flight

    await store.start()
    try:
        await store.until_writing()
        found = await store.configs()
        assert set(acknowledged) <= set(found) <= set(acknowledged) | set(in_flight)
        for name, number in in_flight.items():
            response = await store.put(name, {"name": name, "n": str(number)}, must_not_exist=True, request_id=name)
            assert response.created
            with pytest.raises(ConnectorExists):
                await store.put(name, {}, must_not_exist=True, request_id=f"{name}-again")
        snapshot = await store.read.GetSnapshot(read_pb.GetSnapshotRequest(linearizable=True))
        assert {entry.name for entry in snapshot.connectors} == set(acknowledged) | set(in_flight)
        assert not any(entry.foreign or not entry.incarnation for entry in snapshot.connectors)
        token = identity_pb2.LeaderToken(epoch=granted.leadership.epoch, leader_id="herder-1")
        assert await _campaign(store, "herder-1", token) == granted  # the epoch survives the store's restart
        await store.lead.Resign(lead_pb.ResignRequest(leader=token))
        after = await _campaign(store, "herder-2")
        assert after.leadership.epoch == granted.leadership.epoch + 1
        assert after.leadership.generation_first == granted.leadership.generation_limit
        assert await store.stop() == 0
    finally:
        await store.kill()


async def _campaign(
    store: ConfigStoreProcess, herder: str, held: identity_pb2.LeaderToken | None = None
) -> lead_pb.LeadershipGranted:
    """Campaign until the grant, then break the stream without resigning."""
    over = asyncio.Event()

    async def heartbeats() -> AsyncIterator[lead_pb.CampaignRequest]:
        yield lead_pb.CampaignRequest(herder_id=herder, address="127.0.0.1:1", held=held)
        await over.wait()

    granted: lead_pb.LeadershipGranted | None = None
    async for reply in store.lead.Campaign(heartbeats()):
        if reply.HasField("granted"):
            granted = reply.granted
            over.set()
    assert granted is not None
    return granted


@pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")
async def test_a_live_member_of_connects_group_keeps_the_store_from_writing(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    name = tmp_topic("cluster")
    admin: Any = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    group = ConnectGroup(TopicSettings("", "", "", bootstrap_servers=kafka_bootstrap), name)
    assert await group.is_empty()
    member = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": name, "client.id": "java-worker"})
    with contextlib.closing(member):
        member.subscribe([name])
        async with asyncio.timeout(60):
            while not (members := await group.members()):
                await asyncio.to_thread(member.poll, 0.1)
        assert members == ["java-worker (/127.0.0.1)"]
        with pytest.raises(ForeignWriter, match="java-worker"):
            await group.is_empty()
    assert await group.is_empty()  # the consumer left the group when it closed


@pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")
async def test_a_query_to_an_unreachable_broker_writes_nothing_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client without a logger writes a line to standard error for each failed connection."""
    monkeypatch.setattr(connect_group, "_TIMEOUT_S", 0.3)
    with pytest.raises(KafkaException):
        await ConnectGroup(TopicSettings("", "", "", bootstrap_servers="127.0.0.1:1"), "g").members()
    assert "|FAIL|" not in capfd.readouterr().err
