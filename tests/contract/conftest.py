"""The clusters the topic store suite runs on, one per engine.

Owns the fixtures `bootstrap` and `cluster` of `test_topicstore*.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.topicstore_harness import Cluster, KafkaCluster, MemoryCluster, suite_settings


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> str | None:
    """Of the broker to run on; None = the memory engine."""
    return request.getfixturevalue("kafka_bootstrap") if request.param == "kafka" else None


@pytest.fixture
async def cluster(bootstrap: str | None, tmp_topic: Callable[..., str]) -> AsyncIterator[Cluster]:
    made: Cluster
    if bootstrap is None:
        made = MemoryCluster(suite_settings(tmp_topic()))
    else:
        made = KafkaCluster(suite_settings(tmp_topic(), bootstrap))
    try:
        yield made
    finally:
        await made.close()
