"""Hung transaction of a consumer group: Kafka left it open forever, and its owner finishes it (ADR 0006).

A broker that dies between deciding a transaction and writing its marker may, when it comes back, take the partition for
deleted and drop the marker. The coordinator then considers the transaction complete, but the partition keeps it open.
Only a marker of the same producer id ends it: the next transaction of the id that touches the partition. This module
makes one.

Owns that transaction for the offsets of a sink's group (a source's: `hung_offsets_transaction`). `partitions` decides
when it is due.

Invariant: it writes nothing that a reader of the group's or the connector's offsets can distinguish, and only after the
fence was taken: then no transaction of its id can be open legitimately.

Why COMMIT is right for a group's offsets, even if the lost marker was an ABORT: everything before an offset is flushed
or staged before its commit begins, no failing run deletes its staged files (a later owner does, in `recover`, after
it has read stable offsets), and nobody could read the offsets since. So both hold: the work is done up to the
committed offset, and the staged files that the manifest names exist. If it was a commit, its files may be published,
and a start from the older offset would send their records again.

Not done: a hung transaction in the topic that a source writes to. There is no record that its readers would not see.
The next commit of the task into the partition ends it; until then its readers wait. If the process dies again within
the transaction made here, before its commit request, its abort ends the hung one too.
"""

from __future__ import annotations

import logging

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from herdmesh.connect.spi import PartitionId
from herdmesh.connect.topics import java_partition
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import clients, group_offsets
from herdmesh.engine.runtime import ClientConfig, RunSpec
from herdmesh.kafka.groups import delete_group, find_coordinator

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
_LOOK_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)


class GroupFinisher:
    """Finishes hung transactions of the fence's id in the partition with a sink's group offsets."""

    def __init__(self, spec: RunSpec, overrides: ClientConfig, group: str, fence: Fence, admin: AdminClient) -> None:
        self.group = group
        self._spec = spec
        self._overrides = overrides
        self._fence = fence
        self._admin = admin

    def finish(self, consumer: Consumer, partition: PartitionId) -> None:
        """Write a commit marker there. `partition`: any of the group's; a login may be allowed to commit only those.

        Raises:
            TaskFenced: another owner took over.
            TaskFailed: as `Fence.commit`.
        """
        count = _partition_count(consumer)
        scratch = neighbour(self.group, count)
        _log.warning(
            "an earlier transaction of the task is still open in %s-%d, decided and without a marker (a broker died at "
            "that moment, docs/internals/bugs.md): finishing it by a commit for group %s",
            GROUP_OFFSETS_TOPIC, partition_of_group(self.group, count), scratch,
        )  # fmt: skip
        member = clients.consumer(self._spec, scratch, self._overrides)
        try:
            self._fence.commit_offsets([TopicPartition(*partition, 0)], member.consumer_group_metadata())
        finally:
            member.close()
        self._delete(scratch)

    def is_readable_unstable(self, consumer: Consumer) -> bool:
        """True when the group's offsets can be read without regard to open transactions: then an open transaction is
        the obstacle, not an unreachable broker.
        """
        try:
            group_offsets(consumer, self._admin, self.group, _LOOK_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def offsets_partition(self, consumer: Consumer) -> int:
        """The partition of `__consumer_offsets` that has the group."""
        return partition_of_group(self.group, _partition_count(consumer))

    def _delete(self, scratch: str) -> None:
        """Delete the scratch group, best effort: a login may lack the permission, and the broker expires a group
        without members by itself.
        """
        try:
            find_coordinator(self._admin, scratch, clients.CALL_TIMEOUT_S)
            delete_group(self._admin, scratch, clients.CALL_TIMEOUT_S)
        except KafkaException as error:
            _log.info("cannot delete the group %s, the broker will expire it: %s", scratch, error)


def _partition_count(consumer: Consumer) -> int:
    found = clients.retried(lambda: consumer.list_topics(GROUP_OFFSETS_TOPIC, clients.CALL_TIMEOUT_S))
    return len(found.topics[GROUP_OFFSETS_TOPIC].partitions)


def partition_of_group(group: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that has a group."""
    return java_partition(group, partition_count)


def neighbour(group: str, partition_count: int) -> str:
    """A group in the same partition whose name begins with this one's, for access rules by prefix."""
    wanted, number = partition_of_group(group, partition_count), 0
    while partition_of_group(f"{group}.unhang-{number}", partition_count) != wanted:
        number += 1
    return f"{group}.unhang-{number}"
