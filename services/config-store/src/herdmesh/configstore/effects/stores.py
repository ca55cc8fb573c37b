"""Opening of the config topic's store, in Kafka or in memory.

Owns the choice of engine, and the clock and ids for requests. The engines are in `herdmesh.topicstore`.

Invariant: the Kafka engine checks `ConnectGroup` before each take-over; the memory engine has no group to check.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka import KafkaException

from herdmesh.configstore.effects.connect_group import ConnectGroup
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.configstore.state.changes import Change
from herdmesh.configstore.state.config import ConfigState
from herdmesh.rpc.errors import FieldViolation, InvalidConfig
from herdmesh.topicstore import TopicStore
from herdmesh.topicstore.kafka.kafka_store import KafkaTopicStore
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from herdmesh.topicstore.memory.memory_store import MemoryTopicStore

ConfigTopicStore = TopicStore[ConfigState, Change]


def open_store(settings: ConfigStoreSettings) -> ConfigTopicStore:
    """The store that `settings` name, not started yet. Raises `InvalidConfig` for configs unknown to Kafka clients."""
    topic = settings.topic_settings()
    initial = ConfigState(settings.audit_topic)
    if settings.memory:
        return MemoryTopicStore(MemoryBroker(), topic, initial)
    try:
        group = ConnectGroup(topic, settings.group_id)
        return KafkaTopicStore(topic, initial, may_write=group.is_empty)
    except KafkaException as unknown:
        raise InvalidConfig([FieldViolation("kafka_client_configs", str(unknown))]) from None


def wall_clock_ms() -> int:
    """Epoch milliseconds: the unit of audit records and of the age of request ids."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Monotonic milliseconds, for leases."""
    return time.monotonic_ns() // 1_000_000


def fresh_id() -> str:
    """A unique id, for a connector's incarnation."""
    return uuid.uuid4().hex
