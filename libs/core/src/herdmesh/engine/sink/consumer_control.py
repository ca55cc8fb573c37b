"""Control of a sink run's consumer: its partitions, their offsets, and the paused ones.

Owns every call that assigns, seeks, pauses or resumes, and carries out the requests of the task's context
(`task_requests`). `sink_assignment` decides which partitions the run has, and where they begin.

Invariant: the consumer reads each partition from its position in `SinkPositions`, and a partition that the task paused
stays paused, also after a seek in it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, TopicPartition

from herdmesh.connect.spi import PartitionId
from herdmesh.engine.librdkafka import BatchConsumer
from herdmesh.engine.sink.sink_positions import SinkPositions
from herdmesh.engine.sink.task_requests import SinkTaskRequests

_log = logging.getLogger(__name__)


class ConsumerControl:
    """Control of one run's consumer. Used from the loop's thread only."""

    def __init__(
        self, consumer: Consumer, intake: BatchConsumer, reading: SinkTaskRequests, positions: SinkPositions
    ) -> None:
        self._consumer = consumer
        self._intake = intake
        self._reading = reading
        self._positions = positions

    @property
    def has_paused(self) -> bool:
        """True while the task has a partition paused."""
        return bool(self._reading.paused)

    def assign(self, starts: Mapping[PartitionId, int]) -> None:
        """Read these partitions too, from these offsets."""
        self._intake.follow(starts)
        self._consumer.incremental_assign([TopicPartition(*partition, at) for partition, at in starts.items()])

    def unassign(self, partitions: Collection[PartitionId]) -> None:
        """Stop reading these partitions."""
        self._consumer.incremental_unassign([TopicPartition(*partition) for partition in partitions])
        self._intake.unfollow(partitions)

    def seek(self, partition: PartitionId, start: int) -> None:
        """Continue a partition that was fetched before at this offset."""
        self._consumer.seek(TopicPartition(*partition, start))

    def carry_out_requests(self) -> None:
        """Apply the task's seeks, pauses and resumes since the last call. Cheap without requests."""
        if not self._reading.asks:
            return
        wishes = self._reading.take()
        for partition, offset in wishes.seeks.items():
            _log.info("%s: the task seeks from %d to %d", partition, self._positions[partition], offset)
            self._positions.seek(partition, offset)
        paused = self._reading.paused
        if wishes.seeks:
            # Assign again: a seek fails before the first fetch, and fetched records must be dropped.
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in wishes.seeks])
            self.assign(wishes.seeks)
        pause = {one for one, is_pause in wishes.pauses.items() if is_pause} | (paused & wishes.seeks.keys())
        resume = {one for one, is_pause in wishes.pauses.items() if not is_pause}
        if resume & paused:
            self._consumer.resume([TopicPartition(*partition) for partition in resume & paused])
        paused -= resume
        paused |= pause - resume
        if pause - resume:
            self._consumer.pause([TopicPartition(*partition) for partition in pause - resume])
