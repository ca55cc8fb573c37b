"""Deletion of single committed offsets of a group, which confluent-kafka does not offer (ADR 0014).

Owns the call and its result; `native_admin` makes it. The caller decides whether offsets may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import native_admin

is_possible = native_admin.is_possible
"""False with an unsupported client."""


def forget(
    admin: AdminClient, group: str, partitions: Iterable[PartitionId], timeout_s: float
) -> dict[PartitionId, KafkaError]:
    """Delete the offsets of these partitions in a group without members: one request, and one write of the broker.
    Call `kafka.groups.find_coordinator` right before.

    Returns:
        The refused partitions with the error; the offsets of all others are deleted.

    Raises:
        KafkaException: the error of the whole request.
        RuntimeError: there is no such call (`is_possible`), or the client is closed.
    """
    told = native_admin.request_group_offsets(
        admin, "DeleteConsumerGroupOffsets", group, sorted(partitions), timeout_s, is_question=False
    )
    return {one.partition: one.error for one in told if one.error is not None}
