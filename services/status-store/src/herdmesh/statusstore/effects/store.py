"""The topic store of this service, built from its settings.

Owns the choice of engine. Invariant: both engines get the same settings and the same empty state.
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from herdmesh.rpc.errors import FieldViolation, InvalidConfig
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.statusstore.state.statuses import Change, StatusState
from herdmesh.topicstore.contract import TopicStore
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore

Store = TopicStore[StatusState, Change]


def make_store(settings: StatusStoreSettings, broker: MemoryBroker | None = None) -> Store:
    """The store, not started. `broker` joins replicas of the memory engine; the Kafka engine ignores it.

    Raises `InvalidConfig` for configs unknown to Kafka clients.
    """
    if settings.memory:
        return MemoryTopicStore(broker or MemoryBroker(), settings.topic_settings(), StatusState())
    try:
        return KafkaTopicStore(settings.topic_settings(), StatusState())
    except KafkaException as unknown:
        raise InvalidConfig([FieldViolation("kafka_client_configs", str(unknown))]) from None
