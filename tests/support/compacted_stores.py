"""Copies of a config and a status topic as a log cleaner may leave them, and the readings of Java's stores and ours.

Owns the copies and the comparison. `left_of` of `tests/replay/test_compaction_status.py` chooses the remaining records.

Invariant: every record of a copy has its own offset, so that offsets in our manifests stay valid.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.topicstore.contract import KEEP_ALIVE_KEY
from tests.replay.test_compaction_status import left_of
from tests.support.java_stores import JavaStores, Json
from tests.support.our_stores import OurStores, as_java_shows
from tests.support.read_topic import committed_records

_WAIT_S = 60.0
Records = Sequence[tuple[bytes | None, bytes | None]]


async def assert_read_the_same_compacted(
    bootstrap: str,
    topics: tuple[str, str],
    tmp_topic: Callable[[str], str],
    folder: Path,
    chance: random.Random,
    before: dict[str, Json],
    foreign: set[str],
) -> None:
    """Check new stores on compacted topics: connectors last written by us read as before, all others as Java reads
    them.

    Args:
        topics: the config topic and the status topic, of one partition each.
        before: view of every connector before compaction, from either side.
        foreign: the connectors that Java wrote last.
    """
    left = (tmp_topic("configs-left"), tmp_topic("status-left"))
    names = [name for name in before if name not in ("session key", "told")]
    last: dict[bytes | None, bytes | None] = {}
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for topic, copy in zip(topics, left, strict=True):
        records = await asyncio.to_thread(committed_records, bootstrap, topic, _WAIT_S)
        last |= {record.key: record.value for record in records}
        new = NewTopic(copy, 1, 1, config={"cleanup.policy": "compact"})
        await asyncio.to_thread(admin.create_topics([new])[copy].result, _WAIT_S)
        filled: list[tuple[bytes | None, bytes | None]] = [(KEEP_ALIVE_KEY, b"{}")] * (records[-1].offset + 1)
        for record in left_of(records, chance):
            filled[record.offset] = (record.key, record.value)
        await asyncio.to_thread(_produce, bootstrap, copy, filled)
    folder = folder / f"left-{left[0]}"
    folder.mkdir()
    java, ours = JavaStores(bootstrap, *left, folder), OurStores(bootstrap, *left, folder)
    await java.start()
    try:
        await ours.start()
        async with ours.watching():
            mine, theirs = await ours.show(names), await java.show(names)
            mine = as_java_shows(mine, theirs)
    finally:
        await asyncio.gather(java.stop(), ours.stop())
    for name in names:
        said, by_java, said_before = _split(name, mine[name]), _split(name, theirs[name]), _split(name, before[name])
        config = (by_java if name in foreign else said_before).config
        assert said.config == config, f"{name}: {said.config}, not {config}; by Java {by_java.config}"
        for key, status in said.statuses.items():
            expected = said_before if b'"worker_incarnation":' in (last.get(key) or b"") else by_java
            assert status == expected.statuses[key], key
        assert mine[name]["topics"] == theirs[name]["topics"], name
    assert mine["session key"] == theirs["session key"]


class _Said(NamedTuple):
    """View of a connector: its config and task set, and its statuses by the keys of their records."""

    config: Json
    statuses: dict[bytes, Json]


def _split(name: str, shown: Json) -> _Said:
    statuses = {f"status-connector-{name}".encode(): shown["status"]}
    statuses |= {f"status-task-{name}-{task}".encode(): shown["task_statuses"].get(str(task)) for task in range(2)}
    return _Said({key: shown[key] for key in shown if key not in ("status", "task_statuses", "topics")}, statuses)


def _produce(bootstrap: str, topic: str, records: Records) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, key=key, value=value, partition=0)
        producer.poll(0)
    assert producer.flush(_WAIT_S) == 0
