"""The development broker on a real JVM: start, remember, refuse, survive."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from herdmesh.devstack.broker import Broker


@pytest.mark.kafka
def test_session_broker_serves(kafka: Broker, kafka_bootstrap: str) -> None:
    metadata = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=5)
    assert list(metadata.brokers) == [1]
    assert kafka.pid is not None
