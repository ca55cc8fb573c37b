"""The model of Kafka's log cleaner, compared with a real broker's over random logs, while it works and after.

In `make soak` only: a cleaner takes its time. The models are `left_of` of `test_compaction_status.py` and `Cleaner` of
`tests/support/config_world.py`: of each key the last record stays and any older one stays or goes; a tombstone that is
last goes only when its retention is over and no older record of its key is left.

The broker is stopped (SIGSTOP) again and again while its cleaner works, and its files are read: they hold the records
that a reader beginning now would find. A reader that began earlier finds the records it had read by then, and of the
rest those that are left when it continues.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from herdmesh.devstack.broker import Broker
from tests.support.segments import StoredKey, stored_keys
from tests.support.sizes import SOAKING

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.skipif(not SOAKING, reason="a broker's cleaner takes its time: make soak"),
    pytest.mark.timeout(300),
]

_WAIT_S = 120.0
_PARTITIONS = 6
_RECORDS = 400
_KEYS = 9
#: A batch for each record, a segment of 8 batches and, as its index is full, never two in one group of the cleaner's.
_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.index.bytes": "64",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


@pytest.fixture(scope="module")
def slow_cleaner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "60000"}
    broker = Broker(tmp_path_factory.mktemp("cleaner"), port=0, settings=settings)
    asyncio.run(broker.start())
    yield broker
    asyncio.run(broker.stop())


def _write(bootstrap: str, topic: str, chance: random.Random) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1, "enable.idempotence": True})
    for _ in range(_RECORDS):
        for partition in range(_PARTITIONS):
            value = None if chance.random() < 0.3 else chance.randbytes(40)
            producer.produce(topic, key=b"%d" % chance.randrange(_KEYS), value=value, partition=partition)
        producer.poll(0)
    assert producer.flush(_WAIT_S) == 0


def _stored(broker: Broker, topic: str) -> list[list[StoredKey]] | None:
    """Every record of each partition's files, at one moment; None while a segment is being replaced."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        folders = [broker.data_dir / "kafka" / f"{topic}-{partition}" for partition in range(_PARTITIONS)]
        if any(path.name.endswith(".swap") for folder in folders for path in folder.iterdir()):
            return None
        return [list(stored_keys(folder)) for folder in folders]
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def _by_key(records: Sequence[StoredKey]) -> dict[bytes, list[StoredKey]]:
    found: dict[bytes, list[StoredKey]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return found


def _is_as_modelled(written: Sequence[StoredKey], left: Sequence[StoredKey]) -> bool:
    """Whether the model allows it; `left` are the records that one reader found."""
    kept = _by_key(left)
    for key, records in _by_key(written).items():
        found, last = kept.get(key, []), records[-1]
        if not set(found) <= set(records) or found != sorted(found):
            return False
        if last not in found and (found or not last.is_tombstone):
            return False
    return True


def _leaves_ends_only(written: Sequence[StoredKey], left: Sequence[StoredKey]) -> bool:
    """Whether of each key some of the latest records are left, without a gap."""
    kept = _by_key(left)
    return all(
        records[len(records) - len(kept.get(key, [])) :] == kept.get(key, [])
        for key, records in _by_key(written).items()
        if kept.get(key)
    )


def _is_clean(left: Sequence[StoredKey], segment: int) -> bool:
    """Whether there is one record of each key before the segment in use."""
    old = [record.key for record in left if record.offset < segment]
    return len(set(old)) == len(old)


def _segment_in_use(broker: Broker, topic: str, partition: int) -> int:
    folder: Path = broker.data_dir / "kafka" / f"{topic}-{partition}"
    return max(int(path.stem) for path in folder.glob("*.log"))


@pytest.mark.parametrize("retention_ms", ["0", "86400000"])
async def test_a_real_cleaner_leaves_random_logs_as_the_models_allow(
    slow_cleaner: Broker, tmp_topic: Callable[..., str], retention_ms: str
) -> None:
    topic, chance = tmp_topic("random"), random.Random(25)
    configs = {**_TOPIC_CONFIGS, "delete.retention.ms": retention_ms, "max.compaction.lag.ms": "86400000"}
    admin: Any = AdminClient({"bootstrap.servers": slow_cleaner.bootstrap})
    new = NewTopic(topic, _PARTITIONS, 1, config={**configs, "min.cleanable.dirty.ratio": "1.0"})
    await asyncio.to_thread(admin.create_topics([new])[topic].result, _WAIT_S)
    await asyncio.to_thread(_write, slow_cleaner.bootstrap, topic, chance)
    written = _stored(slow_cleaner, topic)
    assert written is not None
    assert [len(records) for records in written] == [_RECORDS] * _PARTITIONS
    await asyncio.to_thread(_let_it_clean, admin, topic)
    states: list[list[list[StoredKey]]] = [written]
    segments = [_segment_in_use(slow_cleaner, topic, partition) for partition in range(_PARTITIONS)]
    async with asyncio.timeout(_WAIT_S):
        while not all(_is_clean(left, segment) for left, segment in zip(states[-1], segments, strict=True)):
            await asyncio.sleep(0.05)
            left = _stored(slow_cleaner, topic)
            if left is not None and left != states[-1]:
                states.append(left)
    for state in states:
        for records, left in zip(written, state, strict=True):
            assert _is_as_modelled(records, left)
            assert _leaves_ends_only(records, left)
    half_done = [
        left
        for state in states[1:-1]
        for left, before, after in zip(state, written, states[-1], strict=True)
        if left not in (before, after)
    ]
    assert len(half_done) > _PARTITIONS, "the broker was never looked at while its cleaner worked"
    if retention_ms == "0":
        return  # a reader that takes longer than a tombstone's retention may miss it: Kafka promises no more
    with_gaps = 0
    for before, after in pairwise(states):
        for records, first, then in zip(written, before, after, strict=True):
            place = chance.randrange(_RECORDS)
            met = [one for one in first if one.offset < place] + [one for one in then if one.offset >= place]
            assert _is_as_modelled(records, met)
            with_gaps += not _leaves_ends_only(records, met)
    assert with_gaps, "no reader met an older record of a key and missed a younger one"


def _let_it_clean(admin: Any, topic: str) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)
