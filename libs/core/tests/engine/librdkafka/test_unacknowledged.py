"""Wait reason in a task's status while Kafka does not acknowledge its records."""

from __future__ import annotations

from types import SimpleNamespace as Said
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from herdmesh.connect.spi import waits
from herdmesh.engine.fencing.fence import Fence
from herdmesh.engine.librdkafka import unacknowledged
from herdmesh.engine.librdkafka.unacknowledged import Unacknowledged, why


def _topic(*partitions: tuple[int, int, int]) -> Said:
    """A topic with partitions of a leader, replicas, and in-sync replicas each."""
    found = {
        number: Said(leader=leader, replicas=[0] * replicas, isrs=[0] * isrs)
        for number, (leader, replicas, isrs) in enumerate(partitions)
    }
    return Said(error=None, partitions=found)


METADATA = Said(
    topics={
        "well": _topic((1, 2, 2)),
        "headless": _topic((1, 1, 1), (-1, 1, 1)),
        "short": _topic((1, 3, 1), (1, 3, 3)),
        "failing": Said(error="it cannot be told", partitions={}),
    }
)


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        ([], ""),
        (["well"], ""),
        (["gone", "well"], "missing topics: gone"),
        (["failing"], "missing topics: failing"),
        (["headless"], "no leader of headless-1: a broker is down"),
        (["short"], "too few replicas may be in sync for min.insync.replicas: short-0 (1 of 3)"),
        ([f"t{number}" for number in range(5)], "missing topics: t0, t1, t2 and 2 more"),
        (["gone", "headless"], "missing topics: gone; no leader of headless-1: a broker is down"),
    ],
)
def test_the_cause_is_read_from_the_clusters_metadata(topics: list[str], text: str) -> None:
    assert why(METADATA, topics) == text


def test_a_retried_transaction_call_shows_the_brokers_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    seen: list[waits.Wait | None] = []

    class Producer:
        def begin_transaction(self) -> None:
            seen.append(waits.current().shown())
            if len(seen) < 4:
                answer = "Broker: Coordinator not available"
                raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, answer, retriable=True))

    fence = Fence(Producer(), "t", waits_for="Kafka h:1")  # pyright: ignore[reportArgumentType]
    fence.begin()
    assert seen[0] is None
    for tries, shown in enumerate(seen[1:], 1):
        assert shown is not None
        assert (shown.waits_for, shown.tries) == ("Kafka h:1", tries)
        assert shown.message == "beginning a transaction: Broker: Coordinator not available"
    assert waits.current().shown() is None


def test_the_cause_is_queried_only_once_the_wait_is_shown_and_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Said(now_s=100.0), list[float]()

    class Producer:
        throttled_by = ""

        def __len__(self) -> int:
            return 2

        def list_topics(self, timeout: float) -> Any:
            asked.append(timeout)
            return METADATA

    def monotonic() -> float:
        return clock.now_s

    monkeypatch.setattr(unacknowledged.time, "monotonic", monotonic)
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    with Unacknowledged(Producer(), "Kafka h:1", ["gone"]) as left:  # pyright: ignore[reportArgumentType]
        monkeypatch.setattr(left, "_ask_at_s", 104.0)
        left.note()
        shown = waits.current().shown()
        assert shown is not None
        assert (shown.waits_for, shown.message) == ("Kafka h:1", "2 records are not acknowledged")
        for clock.now_s in (104.0, 105.0, 108.9):
            left.note()
        assert len(asked) == 1
        shown = waits.current().shown()
        assert shown is not None
        assert shown.message == "2 records are not acknowledged: missing topics: gone"
        clock.now_s = 109.0
        left.note()
        assert len(asked) == 2
        clock.now_s, Producer.throttled_by = 114.0, "h:1/1"
        left.note()
        shown = waits.current().shown()
        assert shown is not None
        assert shown.message.startswith(
            "2 records are not acknowledged: broker h:1/1 throttles this client, by a quota"
        )
        assert len(asked) == 2, "a client that is throttled has no answers either"
    assert waits.current().shown() is None
