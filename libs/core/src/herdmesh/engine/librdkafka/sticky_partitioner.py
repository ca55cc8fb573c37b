"""Sticky partitioner: chooses the partition for a whole batch of records without keys.

Owns the choice alone, as librdkafka's partitioner makes it: some partition with a leader, another one after a while. It
is made here for records that are queued as columns, because librdkafka would choose again for each record (a fifth of
the cost of queueing). For records with a key librdkafka's partitioner chooses.

Invariant: no partition is chosen that had no leader at the last metadata request.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer

from herdmesh.engine.runtime import progress_ticks

STICKS_S = 0.01
"""librdkafka's `sticky.partitioning.linger.ms`: long enough to fill a request, too short for one partition to lag."""
ASKED_AGAIN_S = 10.0
"""Interval after which an added partition, or a lost leader, is noticed."""
_ASK_S = 1.0


@dataclass(slots=True)
class _Known:
    partitions: list[int] = field(default_factory=list[int])
    asked_s: float = -ASKED_AGAIN_S
    chosen: int | None = None
    chosen_s: float = -STICKS_S


class StickyPartitioner:
    """Partitioner of one producer. Use it in the thread that uses the producer."""

    def __init__(self, producer: Producer, now_s: Callable[[], float] = time.monotonic) -> None:
        self._producer = producer
        self._now_s = now_s
        self._topics: dict[str, _Known] = {}
        self._silent_until_s = -ASKED_AGAIN_S

    def partition(self, topic: str) -> int | None:
        """The partition; None = the partitions are unknown, so the client chooses once it knows them. May wait a second
        for the cluster.
        """
        known = self._topics.setdefault(topic, _Known())
        now_s = self._now_s()
        if now_s - known.asked_s >= ASKED_AGAIN_S:
            known.asked_s, known.chosen = now_s, None
            known.partitions = self._led(topic, now_s)
        elif now_s - known.chosen_s >= STICKS_S:
            known.chosen = None
        if known.chosen is None and known.partitions:
            known.chosen, known.chosen_s = random.choice(known.partitions), now_s
        return known.chosen

    def _led(self, topic: str, now_s: float) -> list[int]:
        """The partitions that have a leader. If no broker answers, the metadata request is not repeated for a while,
        for any topic.
        """
        if now_s < self._silent_until_s:
            return []
        try:
            found = self._producer.list_topics(topic, _ASK_S).topics[topic]
        except RuntimeError:  # invalid topic name; queueing will report it
            return []
        except KafkaException:
            self._silent_until_s = now_s + ASKED_AGAIN_S
            return []
        finally:
            progress_ticks.moved()
        return [number for number, partition in found.partitions.items() if partition.leader >= 0]
