"""Topics that a source task needs before its first record.

Owns creating them and adding partitions. The settings of other sources' topics are in `topic_groups`.

Invariant: a topic never loses a partition, and after `make_topic` the brokers report as many as were requested.
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
    """Ensure that the topic exists with at least `partitions`; only a new topic gets `replication_factor` and `config`.

    Raises:
        ConfigError: the broker refuses the settings.
        KafkaException: any other refusal.
        TaskFailed: RETRIABLE, when the brokers do not report the partitions in time.
    """
    ensure_topic(admin, topic, partitions, replication_factor, config)
    deadline_s = time.monotonic() + RETRY_TIMEOUT_S
    asked = False
    with waits.on("Kafka", f"requesting the {partitions} partitions of topic {topic}"):
        while (found := _partition_count(admin, topic)) < partitions:
            if found and not asked:
                asked = True
                _grow(admin, topic, partitions)
            elif time.monotonic() >= deadline_s:
                message = f"topic {topic} has {found} partitions, although it was increased to {partitions}"
                raise TaskFailed(message, ErrorClass.RETRIABLE)
            else:  # wait: a producer that knows fewer partitions would refuse records of the others
                progress_ticks.moved()
                time.sleep(_LOOK_PAUSE_S)


def _partition_count(admin: AdminClient, topic: str) -> int:
    """The number of partitions in the brokers' metadata; 0 = not known yet."""
    found = retried(lambda: admin.list_topics(topic, timeout=CALL_TIMEOUT_S)).topics[topic]
    return 0 if found.error is not None else len(found.partitions)


def _grow(admin: AdminClient, topic: str, partitions: int) -> None:
    untyped: Any = admin
    futures = untyped.create_partitions([NewPartitions(topic, partitions)], request_timeout=CALL_TIMEOUT_S)
    try:
        futures[topic].result()
        _log.info("topic %s has %d partitions now", topic, partitions)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another task added as many
            raise
