"""Deletion of single committed offsets of a group, which confluent-kafka does not offer (ADR 0014).

Owns the call and what it says; how it is made is `native_admin`'s. Whether offsets may be forgotten is for who calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import native_admin

is_possible = native_admin.is_possible
"""False with a client that it was not tried with."""


def forget(
    admin: AdminClient, group: str, partitions: Iterable[PartitionId], timeout_s: float
) -> dict[PartitionId, KafkaError]:
    """Forget the offsets of these partitions in a group without members: one request, and one write of the broker's,
    just after `kafka.groups.find_coordinator`.

    Returns:
        The partitions that were refused, and why; all others' offsets are forgotten.

    Raises:
        KafkaException: of the request as a whole.
        RuntimeError: there is no such call (`is_possible`), or the client is closed.
    """
    told = native_admin.asked(
        admin, "DeleteConsumerGroupOffsets", group, sorted(partitions), timeout_s, is_question=False
    )
    return {one.partition: one.error for one in told if one.error is not None}
