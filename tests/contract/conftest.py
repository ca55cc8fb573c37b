"""The clusters the topic store suite runs on, one per engine.

Owns the fixtures `bootstrap` and `cluster` of `test_topicstore*.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.topicstore_harness import KAFKA, MEMORY, Cluster, cluster_on


@pytest.fixture(params=[MEMORY, pytest.param(KAFKA, marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> str | None:
    """Address of the broker to run on; None = the memory engine."""
    return request.getfixturevalue("kafka_bootstrap") if request.param == KAFKA else None


@pytest.fixture
async def cluster(bootstrap: str | None, tmp_topic: Callable[..., str]) -> AsyncIterator[Cluster]:
    async with cluster_on(bootstrap, tmp_topic()) as made:
        yield made
