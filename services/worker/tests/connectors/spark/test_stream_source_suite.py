"""The standard suite that authors are given, applied to `SparkStreamSource` with a real Spark, on Kafka's records."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite, SourceWorld
from herdmesh.worker.connectors.spark.stream import SparkStreamSource
from libs.core.tests.engine.harness import Kafka
from tests.support.sizes import SOAKING

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.usefixtures("spark")]


class RecordsWorld(SourceWorld):
    """A topic of one partition."""

    def __init__(self, folder: Path, broker: Kafka) -> None:
        super().__init__(folder)
        self._broker = broker
        broker.create_topic(self.name, 1)

    def config(self) -> dict[str, str]:
        return {
            "spark.format": "kafka", "spark.option.kafka.bootstrap.servers": self._broker.bootstrap,
            "spark.option.subscribe": self.name, "spark.option.startingOffsets": "earliest",
            "topic": f"out-{self.name}", "poll.interval.ms": "1",
        }  # fmt: skip

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"spark.format": "parquet"}, "spark.format"),
            ({"spark.option.subscribe": None}, "spark.option.subscribe"),
            ({"spark.option.minPartitions": "3"}, "spark.option.minPartitions"),
            ({"spark.memory": "1k"}, "spark.memory"),
        ]

    def write(self, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0})
        for number in numbers:
            producer.produce(self.name, b"%d" % number)
        assert not producer.flush(20)

    def number_of(self, value: bytes) -> int:
        return int(base64.b64decode(json.loads(value)["value"]))


class OnTheBroker:
    """The broker that worlds make their topics on."""

    @pytest.fixture
    def outside(self, kafka_bootstrap: str) -> Kafka:
        return Kafka(kafka_bootstrap)


class TestStreamSource(OnTheBroker, SourceSuite):
    connector = SparkStreamSource
    world = RecordsWorld


@pytest.mark.timed  # several Sparks start at once
class TestStreamSourceRuns(OnTheBroker, SourceRunSuite):
    connector = SparkStreamSource
    world = RecordsWorld
