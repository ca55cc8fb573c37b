"""The twin of each path: the same data, through the same mesh, under the same kills, at least once.

Owns their configs, their failpoints for an aimed kill, and whether all their output is there. Judges nothing (`truth`
does).

    sources             herdmesh.delivery.guarantee=at_least_once   -> a topic of its own
    topic-to-postgres   PlainPostgresSink (`plain_sinks`)           -> table target_twin, which has no key of any kind
    topic-to-parquet    PlainParquetSink (`plain_sinks`)            -> folder parquet-twin

Invariant: a record that a twin has twice would be twice in its path, were it not exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from tests.exactly_once.paths import INPUT, OUTPUTS, PATHS, SINKS, TWIN_OUTPUTS, Tail, id_of
from tests.support.mesh import Mesh

TARGET, FOLDER = "target_twin", "parquet-twin"
_AT_LEAST_ONCE = {"herdmesh.delivery.guarantee": "at_least_once", "exactly.once.support": "requested"}


def twin_of(path: str) -> str:
    """The connector's name."""
    return f"{path}-twin"


TWINS = tuple(twin_of(path) for path in PATHS)
#: Where a run is held for an aimed kill: its output is visible, and the commit is not done.
POINTS = {
    **{twin_of(path): "before-offset-commit" for path in OUTPUTS},
    twin_of("topic-to-postgres"): "after-target-commit",
    twin_of("topic-to-parquet"): "after-write",
}


def configs(paths: Mapping[str, Mapping[str, Any]], folder: Path) -> Mapping[str, dict[str, Any]]:
    """Configs by connector, made of those of the paths."""
    own: Mapping[str, dict[str, Any]] = {
        "file-to-topic": {"topic": TWIN_OUTPUTS["file-to-topic"], **_AT_LEAST_ONCE},
        "postgres-to-topic": {"topic.prefix": "twin-", **_AT_LEAST_ONCE},
        # a mirror of its own: it writes about both clusters under their names
        "topic-to-topic": {"source.cluster.alias": "twin", "target.cluster.alias": "twins", **_AT_LEAST_ONCE},
        "topic-to-postgres": {"connector.class": "PlainPostgresSink", "table.name.format": TARGET},
        "topic-to-parquet": {"connector.class": "PlainParquetSink", "directory": str(folder / FOLDER)},
    }
    return {twin_of(path): {**paths[path], "tasks.max": "1", **own[path]} for path in PATHS}


async def until_through(mesh: Mesh, records: int, stall_s: float) -> None:
    """Wait until every twin has written each id below this at least once. No broker is killed meanwhile."""
    tails = {path: _IdTail(mesh.bootstrap, topic) for path, topic in TWIN_OUTPUTS.items()}
    until_s = time.monotonic() + stall_s
    try:
        while missing := {path: records - await asyncio.to_thread(tail.distinct) for path, tail in tails.items()}:
            if not any(missing.values()):
                break
            assert time.monotonic() < until_s, f"these twins have not brought out so many: {missing}"
            await asyncio.sleep(0.05)
    finally:
        for tail in tails.values():
            tail.close()
    for path in SINKS:
        await mesh.until_committed(twin_of(path), INPUT, stall_s)


class _IdTail(Tail):
    """Counts ids, and not records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        self._ids: set[int] = set()

    def distinct(self) -> int:
        """How many there were so far."""
        self.look()
        return len(self._ids)

    def take(self, message: Message) -> None:
        super().take(message)
        self._ids.add(id_of(message.value() or b""))
