"""Topic tracking: topics are recorded once a connector uses them, again after a reset, and in bounded memory."""

from __future__ import annotations

import pytest

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.herder.effects import topic_tracking
from herdmesh.herder.effects.topic_tracking import AGAIN_S, TopicTracking
from herdmesh.herder.effects.topics import Topics
from herdmesh.rpc.errors import TopicTrackingDisabled, Unreachable


class Store:
    """Topics by connector; `away` = it is unreachable."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, status_pb2.TopicStatus]] = {}
        self.puts = 0
        self.asked = 0
        self.away = False

    async def of(self, connector: str, timeout_s: float) -> list[str]:
        self.asked += 1
        if self.away:
            raise Unreachable("no answer")
        return sorted(self.topics.get(connector, {}))

    async def put(self, topics: list[status_pb2.TopicStatus], timeout_s: float) -> None:
        self.puts += 1
        for topic in topics:
            self.topics.setdefault(topic.connector, {})[topic.topic] = topic


class Tracked:
    """A tracking with its own clock, over a store in memory."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.store = Store()
        self.now = 0.0
        self.deleted: set[str] = set()
        self.tracking = TopicTracking(
            self.store, lambda name: name not in self.deleted, enabled=enabled, clock=lambda: self.now
        )

    async def at(self, topic: str, position: int, *, partition: int = 0, task: int = 0, records: int = 0) -> None:
        """Report the position of a task of connector `a`."""
        place = task_pb2.PartitionProgress(topic=topic, partition=partition, position=position)
        of = connector_pb2.TaskId(connector="a", task=task)
        self.tracking.seen([task_pb2.TaskProgress(task=of, partitions=[place], records_in=records)])
        await self.tracking.record()

    async def produced(self, topic: str, records: int, *, task: int = 0) -> None:
        """Report how many records a source task of connector `a` has committed to a topic on its worker."""
        of = connector_pb2.TaskId(connector="a", task=task)
        written = task_pb2.TopicProgress(topic=topic, records_out=records)
        self.tracking.seen([task_pb2.TaskProgress(task=of, produced=[written])])
        await self.tracking.record()

    @property
    def recorded(self) -> list[str]:
        return sorted(self.store.topics.get("a", {}))


async def test_a_topic_is_recorded_once_a_sink_moves_in_it() -> None:
    tracked = Tracked()
    await tracked.at("t", 100)
    assert tracked.recorded == [], "where a task begins is no use yet"
    await tracked.at("t", 101, task=3)
    assert tracked.recorded == ["t"]
    stored = tracked.store.topics["a"]["t"]
    assert (stored.task, stored.HasField("discover_time")) == (3, True)
    await tracked.at("t", 102)
    await tracked.at("u", 1, records=1)
    assert (tracked.recorded, tracked.store.puts) == (["t", "u"], 2), (
        "told once, and what was read before we looked counts"
    )


async def test_a_topic_is_recorded_once_a_source_has_committed_records_to_it() -> None:
    tracked = Tracked()
    await tracked.produced("t", 0)
    assert tracked.recorded == []
    await tracked.produced("t", 5, task=2)
    await tracked.produced("t", 9, task=2)
    await tracked.produced("t", 4, task=1)
    await tracked.produced("u", 1)
    assert (tracked.recorded, tracked.store.puts) == (["t", "u"], 2)
    assert tracked.store.topics["a"]["t"].task == 2


async def test_a_reset_list_has_only_topics_that_a_source_writes_afterwards() -> None:
    tracked = Tracked()
    await tracked.produced("t", 5)
    await tracked.produced("u", 5)
    tracked.store.topics.clear()
    tracked.tracking.reset("a")
    await tracked.produced("t", 5)
    await tracked.produced("u", 2)  # the task moved, and its new worker counts from 0
    assert tracked.recorded == ["u"]


async def test_a_stored_topic_keeps_its_discover_time() -> None:
    tracked = Tracked()
    tracked.store.topics["a"] = {"t": status_pb2.TopicStatus(topic="t", connector="a", task=9)}
    await tracked.at("t", 5, records=5)
    assert tracked.store.puts == 0
    assert tracked.store.topics["a"]["t"].task == 9


async def test_a_reset_list_fills_with_topics_still_in_use() -> None:
    tracked = Tracked()
    await tracked.at("t", 5, records=5)
    await tracked.at("u", 5, records=5)
    tracked.store.topics.clear()
    tracked.tracking.reset("a")
    await tracked.at("t", 6)
    await tracked.at("u", 5)
    assert tracked.recorded == ["t"]
    tracked.store.topics.clear()  # by another herder, or with a deleted connector of that name
    await tracked.at("t", 7)
    assert tracked.recorded == []
    tracked.now += AGAIN_S
    await tracked.at("t", 8)
    assert tracked.recorded == ["t"]


async def test_an_unreachable_store_is_retried_when_the_topic_moves() -> None:
    tracked = Tracked()
    tracked.store.away = True
    await tracked.at("t", 5, records=5)
    tracked.store.away = False
    await tracked.at("t", 5)
    assert tracked.recorded == []
    await tracked.at("t", 6)
    assert tracked.recorded == ["t"]


async def test_a_deleted_connector_gets_no_topics_back() -> None:
    tracked = Tracked()
    tracked.deleted.add("a")
    await tracked.at("t", 5, records=5)
    assert tracked.store.topics == {}


async def test_a_disabled_tracking_remembers_nothing() -> None:
    tracked = Tracked(enabled=False)
    await tracked.at("t", 5, records=5)
    assert tracked.store.asked == 0


async def test_memory_of_topic_tracking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tracking, "KEPT_MAX", 10)
    tracked = Tracked()
    for number in range(100):
        await tracked.at(f"t{number}", 1, records=1)
    assert len(tracked.recorded) == 100
    kept = (tracked.tracking._positions, tracked.tracking._recorded)  # pyright: ignore[reportPrivateUsage]
    assert [len(table) for table in kept] == [10, 10]


@pytest.mark.parametrize(
    ("enabled", "resettable", "setting"),
    [
        (False, True, "HERDMESH_TOPIC_TRACKING_ENABLE"),
        (True, False, "HERDMESH_TOPIC_TRACKING_ALLOW_RESET"),
    ],
)
async def test_topic_tracking_is_switched_off_by_settings(enabled: bool, resettable: bool, setting: str) -> None:
    topics = Topics("127.0.0.1:1", enabled=enabled, resettable=resettable)
    with pytest.raises(TopicTrackingDisabled, match=setting):
        await topics.reset("a", "", 1.0)
    if not enabled:
        with pytest.raises(TopicTrackingDisabled, match=setting):
            await topics.of("a", 1.0)
    await topics.close()
