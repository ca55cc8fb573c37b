"""Sticky partitioner: the partition that a whole batch of records without keys goes to.

Owns the choice alone, as librdkafka's partitioner makes it: some partition with a leader, another one after a while. It
is made here for records that are queued as columns, because librdkafka makes it for each record anew (a fifth of what
queueing costs); records with a key are the partitioner's.

Invariant: no partition is chosen that had no leader when the cluster was last asked.
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
"""A partition that is added, or has lost its leader, is noticed after so long."""
_ASK_S = 1.0


@dataclass(slots=True)
class _Known:
    partitions: list[int] = field(default_factory=list[int])
    asked_s: float = -ASKED_AGAIN_S
    chosen: int | None = None
    chosen_s: float = -STICKS_S


class StickyPartitioner:
    """Of one producer. Used from the thread that uses the producer."""

    def __init__(self, producer: Producer, now_s: Callable[[], float] = time.monotonic) -> None:
        self._producer = producer
        self._now_s = now_s
        self._topics: dict[str, _Known] = {}
        self._silent_until_s = -ASKED_AGAIN_S

    def partition(self, topic: str) -> int | None:
        """None = nobody says what there is: the client chooses once it knows. May wait a second for the cluster."""
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
        """Its partitions that have a leader. Brokers that do not answer are left alone for a while, for all topics."""
        if now_s < self._silent_until_s:
            return []
        try:
            found = self._producer.list_topics(topic, _ASK_S).topics[topic]
        except RuntimeError:  # no name of a topic, which queueing tells
            return []
        except KafkaException:
            self._silent_until_s = now_s + ASKED_AGAIN_S
            return []
        finally:
            progress_ticks.moved()
        return [number for number, partition in found.partitions.items() if partition.leader >= 0]
