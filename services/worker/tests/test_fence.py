"""Fencing for a herder: earlier owners of the ids are fenced, and no id waits for the client's slow retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from herdmesh.engine.fencing import fence as engine_fence
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime.errors import TaskFenced
from herdmesh.kafka.checked_producer import CheckedProducer
from herdmesh.worker.effects.runs import fencing


@pytest.mark.kafka
async def test_fencing_takes_every_id_from_its_owner(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = tmp_topic()
    broker: dict[str, Any] = {"bootstrap.servers": kafka_bootstrap}
    ids = [f"{topic}-{task}" for task in range(2)]
    owners = [
        Fence(clients.opened(CheckedProducer, "producer", {**broker, "transactional.id": one}), one) for one in ids
    ]
    consumer = Consumer({**broker, "group.id": topic})
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


async def test_an_unreachable_broker_gives_an_error_and_no_other_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client without a logger writes a line to standard error for each failed connection."""
    monkeypatch.setattr(engine_fence, "CALL_TIMEOUT_S", 0.3)
    monkeypatch.setattr(clients, "RETRY_TIMEOUT_S", 0.1)
    with pytest.raises(KafkaException):
        await fencing.fence("127.0.0.1:1", {}, ["of-nobody"])
    assert "|FAIL|" not in capfd.readouterr().err
