"""Fixtures with config stores in this process: `cluster` creates replicas of one store, `writer` is a replica that
writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from herdmesh.configstore.effects.stores import wall_clock_ms
from herdmesh.configstore.service.roles import LEADERSHIP_SERVICE
from herdmesh.topicstore.memory.memory_broker import MemoryBroker
from tests.support.configstore_replica import Cluster, Replica, Replicas


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Yield a factory of replicas of one store."""
    replicas = Replicas(MemoryBroker(), wall_clock_ms)
    yield replicas.add
    await replicas.close()


@pytest.fixture
async def writer(cluster: Cluster) -> Replica:
    """Return one replica that writes and runs the election."""
    one = await cluster()
    await one.until_serving(LEADERSHIP_SERVICE)
    return one
