"""Topics that a source task wants to exist before its first record.

Owns making them and giving them more partitions. What other sources' topics are made with is `topic_groups`'s.

Invariant: a topic never loses a partition, and after `make_topic` the brokers tell of as many as were asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import waits
from herdmesh.engine.librdkafka import CALL_TIMEOUT_S, RETRY_TIMEOUT_S, ensure_topic, retried
from herdmesh.engine.runtime import TaskFailed, progress_ticks

_LOOK_PAUSE_S = 0.05
_log = logging.getLogger(__name__)


def make_topic(
    admin: AdminClient, topic: str, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> None:
    """The topic exists with at least so many partitions; only one that is made takes `replication_factor` and `config`.

    Raises:
        ConfigError: the broker refuses the settings.
        KafkaException: any other refusal.
        TaskFailed: RETRIABLE, when the brokers do not tell of the partitions in time.
    """
    ensure_topic(admin, topic, partitions, replication_factor, config)
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    asked = False
    with waits.on("Kafka", f"to tell of {partitions} partitions of topic {topic}"):
        while (found := _partition_count(admin, topic)) < partitions:
            if found and not asked:
                asked = True
                _grow(admin, topic, partitions)
            elif time.monotonic() >= deadline_s:
                message = f"topic {topic} has {found} partitions, and not {partitions} though it was given them"
                raise TaskFailed(message, ErrorClass.RETRIABLE)
            else:  # a producer that knew of fewer would refuse the records of the others
                progress_ticks.moved()
                time.sleep(_LOOK_PAUSE_S)


def _partition_count(admin: AdminClient, topic: str) -> int:
    """As the brokers tell; 0 = not known yet."""
    found = retried(lambda: admin.list_topics(topic, timeout=CALL_TIMEOUT_S)).topics[topic]
    return 0 if found.error is not None else len(found.partitions)


def _grow(admin: AdminClient, topic: str, partitions: int) -> None:
    untyped: Any = admin
    futures = untyped.create_partitions([NewPartitions(topic, partitions)], request_timeout=CALL_TIMEOUT_S)
    try:
        futures[topic].result()
        _log.info("topic %s has %d partitions now", topic, partitions)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another task gave it as many
            raise
