"""The standard suite for authors, applied to `SparkStreamSource` with a real Spark, on Kafka's records, and tests of
Kafka's own properties. Only in the soak: Spark 4.3 has no jar of that source yet, and Spark 4.1 is 490 MB.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from herdmesh.connect.errors import ConfigError
from herdmesh.connectors.spark.stream_source.connector import SparkStreamSource
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite
from libs.connectors.tests.broker_worlds import BrokerWorld, OnTheBroker
from libs.connectors.tests.spark.stream_reading import Reader
from libs.core.tests.engine.harness import Kafka
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("spark_for_jars"),
    pytest.mark.skipif(not SOAKING, reason="a Spark of its own, 490 MB: make soak ARGS=lakehouse"),
]


class RecordsWorld(BrokerWorld):
    """A topic whose records are rows."""

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

    def number_of(self, value: bytes) -> int:
        return int(base64.b64decode(json.loads(value)["value"]))


class TestStreamSource(OnTheBroker, SourceSuite):
    connector = SparkStreamSource
    world = RecordsWorld


@pytest.mark.timed  # several Sparks start at the same time
class TestStreamSourceRuns(OnTheBroker, SourceRunSuite):
    connector = SparkStreamSource
    world = RecordsWorld


def test_records_of_several_kafka_partitions_arrive_once_and_in_order(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    """The run is stopped after each poll; a slice ends at the
    limit, and a partition added later is read completely.
    """
    broker = Kafka(kafka_bootstrap)
    topic = broker.create_topic(tmp_topic(), 2)
    reader = Reader(**{
        "spark.format": "kafka", "spark.option.kafka.bootstrap.servers": kafka_bootstrap,
        "spark.option.subscribe": topic, "spark.option.startingOffsets": "earliest",
        "spark.option.maxOffsetsPerTrigger": "8", "batch.max.rows": "3", "key.column": "key",
    })  # fmt: skip
    written = [(partition, number) for number in range(9) for partition in (0, 1)]
    _produce(kafka_bootstrap, topic, written)
    found: list[tuple[int, int]] = []
    while rows := _read(reader, 2):
        found += rows
    assert sorted(found) == sorted(written)
    for partition in (0, 1):
        assert [number for one, number in found if one == partition] == list(range(9))
    assert reader.offset == {"position": json.dumps({topic: {"0": 9, "1": 9}}, separators=(",", ":"))}
    assert reader.run() == []


def test_a_position_deleted_by_kafka_fails_the_task(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    topic = Kafka(kafka_bootstrap).create_topic(tmp_topic(), 1)
    reader = Reader(**{
        "spark.format": "kafka", "spark.option.kafka.bootstrap.servers": kafka_bootstrap,
        "spark.option.subscribe": topic,
    })  # fmt: skip
    reader.offset = {"position": json.dumps({topic: {"0": 7}})}
    with pytest.raises(ConfigError, match="lost") as failed:
        reader.run()
    assert "offsets set" in failed.value.fix


def _produce(bootstrap: str, topic: str, records: list[tuple[int, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for partition, number in records:
        producer.produce(topic, b"%d" % number, b"k", partition)
    assert not producer.flush(20)


def _read(reader: Reader, polls: int) -> list[tuple[int, int]]:
    return [(row["partition"], int(row["value"])) for row in reader.run(polls)]
