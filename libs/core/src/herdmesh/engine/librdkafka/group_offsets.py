"""Query for all committed offsets of a group that does not crash the process.

A broker that is no longer the group's coordinator answers NOT_COORDINATOR, as after a restart of others.
`AdminClient.list_consumer_group_offsets` then makes librdkafka look for the coordinator of the client's own group,
which an admin client does not have: the process dies of SIGSEGV (2.15 and 2.16.1, `rd_kafka_handle_OffsetFetch`;
docs/internals/bugs.md). A consumer has a group. So a consumer sends the request, by librdkafka's own call (ADR 0014).

Owns that rule. Invariant: nothing else in this project calls `AdminClient.list_consumer_group_offsets` (tests/tidy
checks it).
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from herdmesh.engine.librdkafka import native_admin
from herdmesh.engine.librdkafka.native_admin import PartitionResult


def group_offsets(consumer: Consumer, admin: AdminClient, group: str, timeout_s: float) -> list[PartitionResult]:
    """The committed offsets, regardless of open transactions; omits partitions without an offset. A missing group has
    none. Blocks.

    Args:
        consumer: of any group, and open.
        admin: used in its place with an unsupported version of the client.

    Raises:
        KafkaException: the broker's error; NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE are worth a retry.
    """
    if native_admin.is_possible():
        told = native_admin.request_group_offsets(
            consumer, "ListConsumerGroupOffsets", group, None, timeout_s, is_question=True
        )
    else:
        told = _of_admin(admin, group, timeout_s)
    for one in told:
        if one.error is not None:
            raise KafkaException(one.error)
    return [one for one in told if one.offset >= 0]


def _of_admin(admin: AdminClient, group: str, timeout_s: float) -> list[PartitionResult]:
    untyped: Any = admin
    asked = untyped.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s)
    return [
        PartitionResult((one.topic, one.partition), one.offset, one.metadata or "", one.error)
        for one in asked[group].result().topic_partitions
    ]
