"""Hand-over of a mirror between two unrelated Kafka clusters from Java's MirrorMaker connectors to ours and
back, while records keep coming and a group reads at the source; at the end the group moves to the target.

The promises, with their reasons:

- no record is lost, and each partition's records stay in order, however Java ends;
- a clean stop commits on both sides, so each record is in the copy once; after kill -9 of Java only records behind its
  last offset commit are there twice, and with exactly-once support none is (for readers of committed records);
- checkpoints are the same to Java's `RemoteClusterUtils` and to our reader, whoever wrote them, and continue from one
  side to the other; a group is never put behind a record that it has not read.

Full size only: two brokers, a worker of Java's and a mesh for three stages each are about a minute a case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from herdmesh.devstack.broker import QUICK_JVM, Broker
from libs.connectors.tests.mirror.test_mirror import specs_of
from libs.core.tests.engine.harness import Kafka, run_here
from tests.support import tally
from tests.support.java_connect import EXACTLY_ONCE, MIRROR_JARS, QUICK_CLIENTS, JavaConnect, until_left
from tests.support.mesh import Mesh, running_mesh
from tests.support.mirror_clusters import (
    COPY,
    LIVE,
    PARKED,
    PARTITIONS,
    SOURCE,
    TARGET,
    TOPIC,
    Clusters,
    Place,
    Shop,
    doubled,
    moved_house,
)
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAKING, reason="two brokers, Java Connect and a mesh take a minute each (HERDMESH_SOAK=1)"),
]

STAGE_RECORDS = 20_000
"""Records that each side must copy before the next hand-over."""
UNREAD_RECORDS = 3_000
"""Minimum of records that come after the group stops reading."""
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_STAGE_S = 150.0


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncGenerator[Clusters]:
    quick = {"group.min.session.timeout.ms": "1000"}
    brokers = [Broker(tmp_path / name, port=0, settings=quick, jvm=QUICK_JVM) for name in ("source", "target")]
    try:
        await asyncio.gather(*(one.start() for one in brokers))
        source, target = (Kafka(one.bootstrap) for one in brokers)
        (tmp_path / "classes").mkdir()
        yield Clusters(source, target, brokers[1], tmp_path / "classes")
    finally:
        await asyncio.gather(*(one.stop() for one in brokers))


@pytest.mark.parametrize(
    ("mode", "end"),
    [("plain", "stop"), ("plain", "kill"), ("exactly-once", "kill")],
    ids=["plain", "plain-kill-9", "exactly-once-kill-9"],
)
async def test_a_mirror_is_handed_over_from_java_to_us_and_back(
    mode: str, end: str, clusters: Clusters, tmp_path: Path
) -> None:
    group = "connect-us"
    source, target = clusters.source, clusters.target
    source.create_topic(TOPIC, PARTITIONS)
    await asyncio.to_thread(_beat, source)
    settings = _settings(exactly_once=mode == "exactly-once")
    java = JavaConnect(target.bootstrap, tmp_path / "java", group=group, settings=settings, jars=MIRROR_JARS)
    shop = Shop(source)
    shop.open()
    try:
        async with _java(java):
            for name, config in _configs(source.bootstrap, target.bootstrap).items():
                await asyncio.to_thread(java.create, name, config)
            await _stage(clusters, {})
            stopped = await asyncio.to_thread(java.stop if end == "stop" else java.kill)
        cut = await asyncio.to_thread(clusters.cut, "mirror", group)
        by_java = await _agreed(clusters, shop)
        await asyncio.to_thread(_park, source, 5_000)
        await until_left(target.bootstrap, group)  # our stores refuse to write beside a live member, by name
        (tmp_path / "mesh").mkdir()
        async with running_mesh(tmp_path / "mesh", clusters.broker, workers=1, group=group) as mesh:
            await _running(mesh)
            await _stage(clusters, by_java[LIVE])
            await _until_told(clusters, PARKED)
        by_us = await _agreed(clusters, shop)
        async with _java(java):
            await _stage(clusters, by_us[LIVE])
            await asyncio.to_thread(shop.move_house)
            read = shop.written
            await _until(lambda: shop.written > read + UNREAD_RECORDS, lambda: "nothing more is written")
            written = await asyncio.to_thread(shop.close)
            await _until_all(clusters, written)
            at = await _until_moved(clusters)
            await asyncio.to_thread(java.stop)
    finally:
        await asyncio.to_thread(shop.close)
    again = await _agreed(clusters, shop)
    assert again[PARKED] == by_us[PARKED], "Java makes something else of the same sync"
    copy = await asyncio.to_thread(clusters.in_copy)
    twice = doubled(copy, written, cut, is_once=bool(stopped and end == "stop") or mode == "exactly-once")
    read_again = await asyncio.to_thread(moved_house, target, copy, shop.committed, at)
    clusters_seen, _ = await asyncio.to_thread(clusters.java_says)
    assert clusters_seen == [f"{SOURCE} 1"], "Java sees the source by its heartbeats"
    print(f"{mode}, {end}: {written} records, {twice} doubled, {read_again} read again after the move, cut {cut}")
    tally.note(f"mirror {mode} {end}", runs=1, operations=written, faults={end: 1})


def _settings(*, exactly_once: bool) -> dict[str, str]:
    return {
        **QUICK_CLIENTS,
        "offset.flush.interval.ms": "500",
        # a setting that a Java cluster sharing topics with a mesh must have (docs/reference/guarantees.md)
        "isolation.level": "read_committed",
        "consumer.isolation.level": "read_committed",
        # the shortest the broker allows by default: a killed worker is out of its group soon
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1500",
        "task.shutdown.graceful.timeout.ms": "12000",
        # the broker must abort a killed worker's open transaction; until then nobody sees later records
        **({**EXACTLY_ONCE, "producer.transaction.timeout.ms": "10000"} if exactly_once else {}),
    }


def _configs(source: str, target: str) -> dict[str, dict[str, str]]:
    """One config for both sides."""
    common = {
        "source.cluster.alias": SOURCE,
        "target.cluster.alias": TARGET,
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "topics": TOPIC,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,  # Java's worker would write them as text
    }
    mirror = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "5",
        "sync.topic.acls.enabled": "false",
    }
    checkpoints = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "tasks.max": "1",
        "groups": f"{LIVE},{PARKED}",
        "checkpoints.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    return {"mirror": {**common, **mirror}, "checkpoints": {**common, **checkpoints}}


@asynccontextmanager
async def _java(java: JavaConnect) -> AsyncGenerator[None]:
    """A running worker that is ended whatever happens."""
    try:
        await asyncio.to_thread(java.start)
        yield
    finally:
        await asyncio.to_thread(java.stop)


async def _running(mesh: Mesh) -> None:
    await asyncio.gather(mesh.until_running("mirror", 2), mesh.until_running("checkpoints", 1))


async def _stage(clusters: Clusters, before: Mapping[Place, int]) -> None:
    """Wait until so many more records are copied, and the reading group's checkpoint is further than before."""
    begun = await asyncio.to_thread(clusters.copied)

    def is_done() -> bool:
        at = clusters.we_say(LIVE)[LIVE]
        moved = len(at) == PARTITIONS and all(offset > before.get(place, -1) for place, offset in at.items())
        return moved and clusters.copied() >= begun + STAGE_RECORDS

    await _until(is_done, lambda: f"copied {clusters.copied() - begun}, group {clusters.we_say(LIVE)}, from {before}")


async def _until_told(clusters: Clusters, group: str) -> None:
    await _until(lambda: bool(clusters.we_say(group)[group]), lambda: f"{group} is not told of")


async def _until_all(clusters: Clusters, written: int) -> None:
    """Wait until the last record of each partition is there."""
    lasts = {written - 1, written - 2}
    await _until(lambda: lasts == {one[-1][1] for one in clusters.in_copy()}, lambda: "the last records do not come")


async def _until_moved(clusters: Clusters) -> dict[Place, int]:
    """Wait until the group that stopped reading is at its checkpoints at the target; returns its offsets."""
    places = [(COPY, number) for number in range(PARTITIONS)]

    def at() -> list[int]:
        return clusters.target.committed(LIVE, *places)

    def is_set() -> bool:
        told = clusters.we_say(LIVE)[LIVE]
        return at() == [told.get(place) for place in places]

    await _until(is_set, lambda: f"set at {at()}, told {clusters.we_say(LIVE)}")
    return dict(zip(places, await asyncio.to_thread(at), strict=True))


async def _until(condition: Callable[[], bool], seen: Callable[[], str]) -> None:
    try:
        async with asyncio.timeout(_STAGE_S):
            is_met = await asyncio.to_thread(condition)
            while not is_met:
                await asyncio.sleep(0.2)
                is_met = await asyncio.to_thread(condition)
    except TimeoutError:
        raise AssertionError(await asyncio.to_thread(seen)) from None


async def _agreed(clusters: Clusters, shop: Shop) -> dict[str, dict[Place, int]]:
    """The checkpoints in both readers' views, while nobody writes any; no group is put behind a record that it has not
    read.
    """
    ours = await asyncio.to_thread(clusters.we_say, LIVE, PARKED)
    _, theirs = await asyncio.to_thread(clusters.java_says, LIVE, PARKED)
    assert ours == theirs
    copy = await asyncio.to_thread(clusters.in_copy)
    for (_, partition), offset in ours[LIVE].items():
        passed = [number for at, number in copy[partition] if at < offset]
        assert all(number // PARTITIONS < shop.committed[partition] for number in passed), "skipped"
    return ours


def _beat(source: Kafka) -> None:
    """One run of the heartbeat connector on the source's side."""
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "source.cluster.alias": SOURCE,
        "target.cluster.alias": TARGET,
        "heartbeats.topic.replication.factor": "1",
    }
    (spec,) = specs_of(source, "beats", config)
    run_here(spec)


def _park(source: Kafka, offset: int) -> None:
    """A group with a committed offset and no member."""
    consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": PARKED})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()
