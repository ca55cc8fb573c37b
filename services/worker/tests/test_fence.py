"""Fencing for a herder: earlier owners of the ids are cut off, and no id waits for the client's slow second look."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from herdmesh.engine.errors import TaskFenced
from herdmesh.engine.fence import Fence
from herdmesh.worker.effects import fence as fencing


@pytest.mark.kafka
async def test_every_id_is_taken_from_its_owner(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = tmp_topic()
    ids = [f"{topic}-{task}" for task in range(2)]
    owners = [Fence(Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": one}), one) for one in ids]
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": topic})
    for owner in owners:
        owner.take_over()
    connected: list[Producer] = []
    connect = fencing.connect

    def counted(producer: Producer) -> None:
        connect(producer)
        connected.append(producer)

    monkeypatch.setattr(fencing, "connect", counted)
    await fencing.fence(kafka_bootstrap, {}, ids)
    assert len(connected) == 2, "each has a connection before it asks for its coordinator"
    for owner in owners:
        with pytest.raises(TaskFenced):
            owner.commit_offsets([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata())
        owner.close()
    consumer.close()
