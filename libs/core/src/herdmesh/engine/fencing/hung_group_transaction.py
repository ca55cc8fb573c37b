"""Hung transaction of a consumer group: Kafka left it open for ever, and its owner finishes it (ADR 0006).

A broker that dies between deciding a transaction and writing its marker may, when it comes back, take the partition for
deleted and drop the marker: the coordinator calls the transaction complete, the partition holds it open. Nothing but a
marker of the same producer id ends it: the next transaction of the id that touches the partition. This makes one.

Owns that transaction for the offsets of a sink's group (a source's: `hung_offsets_transaction`). Does not decide when
it is due (`partitions`).

Invariant: nothing that a reader of the group's or the connector's offsets can tell apart is written, and only after the
fence was taken: then nothing of its id can be open by right.

Why COMMIT is right for a group's offsets, also where the lost marker was an ABORT: all before an offset is flushed
or staged before its commit begins, no run deletes what it staged when it fails (a later owner does, in `recover`, after
it has read stable offsets), and nobody could read the offsets since. So both are true of the work: it is done up to the
committed offset, and staged files that the manifest names are there. Had it been a commit, as far as anybody was told,
then its files may be published, and going on from the older offset would send their records again.

Not done: a hung transaction in the topic a source writes to. There is no record its readers would not see. The next
commit of the task into the partition ends it; until then its readers wait. Should the process die again within the
transaction made here, before its commit was asked for, its abort ends the hung one too.
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
    """Finishes what hangs of the fence's id where a sink's group keeps its offsets."""

    def __init__(self, spec: RunSpec, overrides: ClientConfig, group: str, fence: Fence, admin: AdminClient) -> None:
        self.group = group
        self._spec = spec
        self._overrides = overrides
        self._fence = fence
        self._admin = admin

    def finish(self, consumer: Consumer, partition: PartitionId) -> None:
        """Have a commit marker written there. `partition`: any of the group's; a login may commit only for those.

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
        """True when the group's offsets can be read by who does not mind open transactions: it is these that are in the
        way then, and no absent broker."""
        try:
            group_offsets(consumer, self._admin, self.group, _LOOK_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def offsets_partition(self, consumer: Consumer) -> int:
        """The partition of `__consumer_offsets` that keeps the group."""
        return partition_of_group(self.group, _partition_count(consumer))

    def _delete(self, scratch: str) -> None:
        """Best effort: a login may lack the right, and the broker forgets a group without members by itself."""
        try:
            find_coordinator(self._admin, scratch, clients.CALL_TIMEOUT_S)
            delete_group(self._admin, scratch, clients.CALL_TIMEOUT_S)
        except KafkaException as error:
            _log.info("the group %s is left for the broker to forget: %s", scratch, error)


def _partition_count(consumer: Consumer) -> int:
    found = clients.retried(lambda: consumer.list_topics(GROUP_OFFSETS_TOPIC, clients.CALL_TIMEOUT_S))
    return len(found.topics[GROUP_OFFSETS_TOPIC].partitions)


def partition_of_group(group: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group."""
    return java_partition(group, partition_count)


def neighbour(group: str, partition_count: int) -> str:
    """A group in the same partition whose name begins as this one's, as rules for access by prefix want."""
    wanted, number = partition_of_group(group, partition_count), 0
    while partition_of_group(f"{group}.unhang-{number}", partition_count) != wanted:
        number += 1
    return f"{group}.unhang-{number}"
