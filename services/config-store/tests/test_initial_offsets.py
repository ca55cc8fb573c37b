"""Tests of a create with offsets: connector and offsets are stored both or neither, over real gRPC on the memory
engine. `tests/contract/test_topicstore_beside.py` tests that Kafka keeps them together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from herdmesh.api.common.v1 import offsets_pb2
from herdmesh.api.configstore.v1 import config_write_service_pb2
from herdmesh.configstore.effects.stores import wall_clock_ms
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE
from herdmesh.rpc.errors import ConnectorExists, OffsetsRefused, RequestInvalid
from herdmesh.topicstore import StoreRole
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from tests.support.configstore_replica import Replica, Replicas

OFFSETS = "connect-offsets"
KEY, VALUE = b'["c1",{"filename":"a"}]', b'{"position":7}'


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.create_topic(OFFSETS, 3, "compact", 0)
    made.create_topic("t", 3, "delete", 0)
    return made


@pytest.fixture
async def writer(broker: MemoryBroker) -> AsyncIterator[Replica]:
    replicas = Replicas(broker, wall_clock_ms)
    one = await replicas.add()
    await one.until_serving(LEADERSHIP_SERVICE)
    yield one
    await replicas.close()


def brought(topic: str = OFFSETS, value: bytes | None = VALUE) -> offsets_pb2.PreparedOffsets:
    return offsets_pb2.PreparedOffsets(
        records=[
            offsets_pb2.OffsetRecord(topic=topic, key=KEY, value=value),
            offsets_pb2.OffsetRecord(topic=topic, key=b'["c1",{"filename":"b"}]'),
        ],
        group="connect-c1",
        group_offsets=[offsets_pb2.GroupOffset(topic="t", partition=2, offset=9, metadata="m")],
    )


def stored(broker: MemoryBroker) -> list[tuple[bytes | None, bytes | None]]:
    partitions = broker.topics[OFFSETS].partitions
    return [(one.key, one.value) for partition in partitions for one in partition.since(0, 100)]


async def test_initial_offsets_are_stored_with_the_connector(writer: Replica, broker: MemoryBroker) -> None:
    made = await writer.put("c1", must_not_exist=True, initial_offsets=brought())
    assert made.created
    assert sorted(stored(broker), key=repr) == [(KEY, VALUE), (b'["c1",{"filename":"b"}]', None)]
    assert broker.group_offsets == {"connect-c1": {("t", 2): (9, "m")}}


async def test_a_create_of_an_existing_name_stores_no_offsets(writer: Replica, broker: MemoryBroker) -> None:
    await writer.put("c1")
    with pytest.raises(ConnectorExists):
        await writer.put("c1", must_not_exist=True, initial_offsets=brought())
    assert (stored(broker), broker.group_offsets) == ([], {})


async def test_a_create_whose_offsets_kafka_refuses_stores_no_connector(writer: Replica, broker: MemoryBroker) -> None:
    with pytest.raises(OffsetsRefused, match="nowhere"):
        await writer.put("c1", must_not_exist=True, initial_offsets=brought("nowhere"))
    assert (stored(broker), broker.group_offsets) == ([], {})
    await writer.until_serving(LEADERSHIP_SERVICE)
    assert (await writer.put("c1", must_not_exist=True, initial_offsets=brought())).created, "and the name is free"


async def test_only_a_create_may_have_offsets(writer: Replica, broker: MemoryBroker) -> None:
    with pytest.raises(RequestInvalid, match="must_not_exist"):
        await writer.put("c1", initial_offsets=brought())
    assert stored(broker) == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"records": [offsets_pb2.OffsetRecord(key=KEY)]}, "records.topic"),
        ({"records": [offsets_pb2.OffsetRecord(topic="connect-configs", key=KEY)]}, "records.topic"),
        ({"group_offsets": [offsets_pb2.GroupOffset(topic="t")]}, "group"),
        ({"group": "g", "group_offsets": [offsets_pb2.GroupOffset(topic="t", offset=-1)]}, "group_offsets"),
    ],
)
async def test_impossible_offsets_are_refused_with_the_name_of_their_field(
    writer: Replica, wrong: dict[str, object], field: str
) -> None:
    with pytest.raises(RequestInvalid) as refused:
        await writer.put("c1", must_not_exist=True, initial_offsets=offsets_pb2.PreparedOffsets(**wrong))  # pyright: ignore[reportArgumentType]
    assert [one.field for one in refused.value.violations] == [f"initial_offsets.{field}"]
    assert writer.store.role is StoreRole.WRITER


async def test_a_retried_create_gets_its_first_outcome_and_writes_nothing(
    writer: Replica, broker: MemoryBroker
) -> None:
    """Another worker may have prepared other offsets for the retry."""
    options = config_write_service_pb2.WriteOptions(request_id="r1")
    for value in (VALUE, b'{"position":8}'):
        made = await writer.put("c1", must_not_exist=True, options=options, initial_offsets=brought(value=value))
        assert made.created
    assert (KEY, VALUE) in stored(broker)
    assert len(stored(broker)) == 2
