"""Creation of a topic unless it exists, for tasks.

Owns the call and the wait until the brokers know the topic. Does not choose settings: its callers do.

Invariant: a topic that this creates takes records when the call returns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.spi import waits
from herdmesh.engine.librdkafka.clients import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, retried
from herdmesh.engine.runtime import TaskFailed, progress_ticks
from herdmesh.kafka.listed_offsets import list_offsets, read_topic_metadata

_LOOK_PAUSE_S = 0.01
_log = logging.getLogger(__name__)


def ensure_topic(
    admin: AdminClient, topic: str, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> bool:
    """Create a topic unless it exists; True = it was created. `partitions`, `replication_factor`: -1 = the broker's
    default.

    Raises:
        ConfigError: the broker refuses the settings.
        KafkaException: any other refusal.
        TaskFailed: RETRIABLE, when the brokers do not have it in time.
    """
    if topic in retried(lambda: admin.list_topics(timeout=CALL_TIMEOUT_S)).topics:
        return False
    new = NewTopic(topic, partitions, replication_factor, config=dict(config))
    try:
        untyped: Any = admin
        untyped.create_topics([new], request_timeout=CALL_TIMEOUT_S)[topic].result()
        _log.info("created topic %s", topic)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() in (KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_REPLICATION_FACTOR):
            raise ConfigError(
                f"Task failed to create new topic {topic}: {cause.str()}", field="topic.creation"
            ) from error
        if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    _until_there(admin, topic)
    return True


def _until_there(admin: AdminClient, topic: str) -> None:
    """Wait until the topic accepts records. Metadata names a partition before its broker has it, and the broker rejects
    records meanwhile. A producer sends those again, except after librdkafka's wrong inference
    (`kafka.checked_producer`), which would end a new run.
    """
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    with waits.on("Kafka", f"the new topic {topic} is not known to it yet"):
        while not retried(partial(_is_there, admin, topic)):
            if time.monotonic() >= deadline_s:
                raise TaskFailed(f"topic {topic} was created, but no broker reports it yet", ErrorClass.RETRIABLE)
            progress_ticks.moved()
            time.sleep(_LOOK_PAUSE_S)


def _is_there(admin: AdminClient, topic: str) -> bool:
    known = read_topic_metadata(admin, [topic], CALL_TIMEOUT_S)
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in known[topic].partitions}
    for answer in list_offsets(admin, asked, timeout_s=CALL_TIMEOUT_S, known=known).values():
        if answer.exception() is not None:
            return False
    return bool(asked)
