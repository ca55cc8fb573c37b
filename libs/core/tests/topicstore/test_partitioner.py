"""Partition of a key, equal to Java's: computed here, and by the Kafka client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from herdmesh.topicstore import StoreRole, partition_of
from tests.contract.topicstore_harness import KafkaCluster, put, suite_settings, until_role

#: Every key Java Connect 4.3.1 wrote into topics of 5 partitions while it was recorded, with its partition.
_JAVA = [
    (vector["key"].encode(), vector["partition"])
    for line in (Path(__file__).parent / "java_partitions.jsonl").read_text().splitlines()
    for vector in [json.loads(line)]
]


def test_computed_partition_equals_java() -> None:
    assert {key: partition_of(key, 5) for key, _ in _JAVA} == dict(_JAVA)
    assert {len(key) % 4 for key, _ in _JAVA} == {0, 1, 2, 3}


@pytest.mark.kafka
async def test_the_writer_sends_keys_to_the_partitions_of_java(
    kafka_bootstrap: str, tmp_topic: Callable[..., str]
) -> None:
    cluster = KafkaCluster(replace(suite_settings(tmp_topic(), kafka_bootstrap), partitions=5))
    try:
        store = await cluster.open()
        await until_role(store, StoreRole.WRITER)
        await asyncio.gather(*(store.write(put(key, b"v")) for key, _ in _JAVA))
        assert {key: entry.partition for key, entry in store.state.entries.items()} == dict(_JAVA)
    finally:
        await cluster.close()
