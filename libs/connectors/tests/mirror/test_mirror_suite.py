"""The standard suite for authors, applied to the mirror's
connectors: a real broker is their source and target.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from herdmesh.connectors.mirror.checkpoint.connector import MirrorCheckpointConnector
from herdmesh.connectors.mirror.offset_translation import OffsetSync
from herdmesh.connectors.mirror.source.connector import MirrorSourceConnector
from herdmesh.sdk.testing import BadConfig, SourceRunSuite, SourceSuite
from libs.connectors.tests.broker_worlds import BrokerWorld, OnTheBroker
from libs.core.tests.engine.harness import Kafka


class TopicWorld(BrokerWorld):
    """A topic that is copied."""

    patience_s = 10.0
    silence_s = 0.5

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

    def number_of(self, value: bytes) -> int:
        return int(value)

    def topics(self) -> list[str]:
        return [f"a.{self.name}"]


class GroupsWorld(BrokerWorld):
    """A record is a consumer group at that offset of a topic whose first offset is known at the target."""

    patience_s = 2.0
    silence_s = 0.5

    def __init__(self, folder: Path, broker: Kafka) -> None:
        super().__init__(folder, broker)
        syncs = broker.create_topic(f"mm2-offset-syncs.{self.name}-b.internal", 1)
        sync = OffsetSync((self.name, 0), 0, 0)
        broker.produce(syncs, [sync.value()], key=sync.key(), partition=0)

    def config(self) -> dict[str, str]:
        return {
            "source.cluster.alias": f"{self.name}-a",
            "target.cluster.alias": f"{self.name}-b",
            "source.cluster.bootstrap.servers": self._broker.bootstrap,
            "topics": self.name,
            "groups": f"{self.name}-.*",
            "checkpoints.topic.replication.factor": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.groups.enabled": "false",
        }

    def bad_configs(self) -> list[BadConfig]:
        return [
            ({"groups": "("}, "groups"),
            ({"sync.group.offsets.enabled": "true"}, "target.cluster.bootstrap.servers"),
        ]

    def write(self, numbers: range) -> None:
        left = {f"{self.name}-{number:02}": [TopicPartition(self.name, 0, number)] for number in numbers}
        while left:  # a broker that has just started does not list its groups yet
            asked = [ConsumerGroupTopicPartitions(*one) for one in left.items()]
            answers = [self._broker.admin.alter_consumer_group_offsets([one]) for one in asked]
            for one, answer in zip(asked, answers, strict=True):
                if answer[one.group_id].result(20).topic_partitions[0].error is None:
                    del left[one.group_id]

    def number_of(self, value: bytes) -> int:
        return int.from_bytes(value[2:10])

    def topics(self) -> list[str]:
        return [f"{self.name}-a.checkpoints.internal"]


class TestMirror(OnTheBroker, SourceSuite):
    connector = MirrorSourceConnector
    world = TopicWorld


class TestMirrorRuns(OnTheBroker, SourceRunSuite):
    connector = MirrorSourceConnector
    world = TopicWorld


class TestCheckpoints(OnTheBroker, SourceSuite):
    connector = MirrorCheckpointConnector
    world = GroupsWorld


class TestCheckpointRuns(OnTheBroker, SourceRunSuite):
    connector = MirrorCheckpointConnector
    world = GroupsWorld
