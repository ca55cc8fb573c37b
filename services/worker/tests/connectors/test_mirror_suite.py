"""The standard suite that authors are given, applied to the mirror: a real broker is its source, and its target too."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld
from herdmesh.worker.connectors.mirror import MirrorSourceConnector
from libs.core.tests.engine.harness import Kafka


class TopicWorld(SourceWorld):
    """A topic of one partition."""

    patience_s = 10.0
    quiet_s = 0.5

    def __init__(self, folder: Path, broker: Kafka) -> None:
        super().__init__(folder)
        self._broker = broker
        broker.create_topic(self.name, 1)

    def config(self) -> dict[str, str]:
        return {
            "source.cluster.alias": "a",
            "target.cluster.alias": "b",
            "source.cluster.bootstrap.servers": self._broker.bootstrap,
            "topics": self.name,
            "replication.factor": "1",
            "refresh.topics.enabled": "false",
        }

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"topics": "("}, "topics"),
            ({"replication.policy.class": "no.such.Policy"}, "replication.policy.class"),
        ]

    def write(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0})
        for number in numbers:
            producer.produce(self.name, b"%d" % number)
        assert not producer.flush(20)

    def number_of(self, value: bytes) -> int:
        return int(value)

    def topics(self) -> list[str]:
        return [f"a.{self.name}"]


class OnTheBroker:
    """The broker that worlds make their topics on."""

    @pytest.fixture
    def outside(self, kafka_bootstrap: str) -> Kafka:
        return Kafka(kafka_bootstrap)


class TestMirror(OnTheBroker, SourceSuite):
    connector = MirrorSourceConnector
    world = TopicWorld


class TestMirrorRuns(OnTheBroker, SourceRunSuite):
    connector = MirrorSourceConnector
    world = TopicWorld
