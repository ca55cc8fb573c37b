"""Tests of a development broker's service, with the session's broker: it serves, creates no topic by itself, and
listens on loopback only.
"""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from herdmesh.devstack.broker import Broker

TIMEOUT_S = 45.0


def test_the_session_broker_serves(kafka: Broker, kafka_bootstrap: str) -> None:
    metadata = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=TIMEOUT_S)
    assert list(metadata.brokers) == [1]
    assert kafka.pid is not None


def test_auto_creation_is_off(kafka_bootstrap: str) -> None:
    topics = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics("no-such-topic", timeout=TIMEOUT_S).topics
    error = topics["no-such-topic"].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


async def test_listens_on_loopback_only(kafka: Broker) -> None:
    port = int(kafka.bootstrap.rpartition(":")[2])
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), port, type=socket.SOCK_STREAM):
        if not str(address[0]).startswith(("127.", "::1")):
            with socket.socket(family) as probe, pytest.raises(OSError):
                probe.connect(address)
