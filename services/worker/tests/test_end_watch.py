"""Watch of the ends of partitions whose tasks have work: its queries, and that a failure does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException

from herdmesh.worker.effects.runs.end_watch import EndWatch
from herdmesh.worker.state.events import EndsLearned

WAIT_S = 20.0


async def test_only_partitions_with_work_are_queried_and_a_failure_is_retried() -> None:
    asked: list[set[tuple[str, int]]] = []
    wanted: list[set[tuple[str, int]]] = [set(), {("t", 0)}, {("t", 0)}]
    learned = asyncio.Queue[EndsLearned]()

    def ask(partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        asked.append(set(partitions))
        if len(asked) == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return {("t", 0): 50}

    watch = EndWatch(lambda: wanted.pop(0) if wanted else set(), ask, learned.put, interval_s=0.001)
    watch.start()
    try:
        async with asyncio.timeout(WAIT_S):
            assert await learned.get() == EndsLearned({("t", 0): 50})
    finally:
        await watch.close()
    assert asked == [{("t", 0)}] * 2
