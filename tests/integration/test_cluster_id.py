"""The Kafka cluster's id on its way from a real broker through config store and herder to the caller of GetCluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_pb
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1.connector_service_pb2_grpc import ConnectorServiceStub
from herdmesh.devstack.ports import HOST, free_port
from herdmesh.herder.__main__ import serve
from herdmesh.herder.settings import HerderSettings
from herdmesh.rpc.client import connect, retrying
from tests.support.configstore_process import ConfigStoreProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WAIT_S = 60.0


async def test_get_cluster_returns_the_id_of_the_kafka_cluster(
    kafka_bootstrap: str, tmp_topic: Callable[[str], str], tmp_path: Path
) -> None:
    """A herder that starts before the config store: it answers at once with no id, then with the broker's."""
    broker: Any = AdminClient({"bootstrap.servers": kafka_bootstrap})
    expected = (await asyncio.to_thread(broker.list_topics, timeout=WAIT_S)).cluster_id
    assert expected
    store = ConfigStoreProcess(kafka_bootstrap, tmp_topic("configs"), tmp_path / "config.log")
    address, config_store, status_store = (f"{HOST}:{free_port()}" for _ in range(3))
    settings = HerderSettings(listen=address, config_store=config_store, status_store=status_store, metrics=False)
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    channel = connect(address)
    herder: Any = ConnectorServiceStub(channel)
    request = admin_pb.GetClusterRequest()
    try:
        assert not (await retrying(lambda: herder.GetCluster(request), WAIT_S)).cluster_id
        await store.start(config_store)
        async with asyncio.timeout(WAIT_S):
            while not (told := (await herder.GetCluster(request)).cluster_id):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.05)
        assert told == expected
        assert (await store.read.GetStoreStatus(config_pb.GetStoreStatusRequest())).status.cluster_id == expected
    finally:
        stop.set()
        await serving
        await channel.close()
        await store.kill()
