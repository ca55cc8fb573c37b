"""Topic tracking (KIP-558): records which topics connectors use, from the progress that workers report to the leader.

Owns the topics seen and the topics still to be recorded. Only the leader gets progress, so a topic has one recorder. A
topic counts as used once a sink has moved forward in one of its partitions, or a source has committed records to it.
It is recorded if the status store does not have it, and checked again a minute later while it is still used: so a list
that was reset fills again with the topics in use.

Invariant: memory is bounded however many topics come and go; nothing waits for a record, and a failed one is retried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.rpc.errors import HerdmeshError
from herdmesh.session.model import UnitId

INTERVAL_S: Final = 1.0
AGAIN_S: Final = 60.0
KEPT_MAX: Final = 100_000
_TIMEOUT_S: Final = 5.0

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class TopicStore(Protocol):
    """Store of the topics in use; `effects.topics.Topics` implements it."""

    async def of(self, connector: str, timeout_s: float) -> list[str]:
        """The recorded topics."""
        ...

    async def put(self, topics: list[status_pb2.TopicStatus], timeout_s: float) -> None:
        """Record topics."""
        ...


class TopicTracking:
    """Recorder of topics: `seen` takes progress, `run` records. `exists` returns whether a connector still exists,
    `clock` returns seconds that never go back.
    """

    def __init__(
        self,
        store: TopicStore,
        exists: Callable[[str], bool],
        *,
        enabled: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._exists = exists
        self._enabled = enabled
        self._clock = clock
        self._positions: dict[tuple[str, str, int], int] = {}
        self._recorded: dict[tuple[str, str], float] = {}
        self._due: dict[str, dict[str, int]] = {}

    def seen(self, progress: Iterable[task_pb2.TaskProgress]) -> None:
        """Note the topics of tasks that moved."""
        if not self._enabled:
            return
        for task in progress:
            for partition in task.partitions:
                self._read(task, partition)
            for topic in task.produced:
                self._written(task, topic)

    def reset(self, connector: str) -> None:
        """The connector's list was emptied: record its topics again when they are used next."""
        for key in [key for key in self._recorded if key[0] == connector]:
            del self._recorded[key]

    async def run(self) -> None:
        """Record the topics that are due every `INTERVAL_S` until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.record()

    async def record(self) -> None:
        """Record the topics that are due."""
        due, self._due = self._due, {}
        for connector, topics in due.items():
            try:
                stored = set(await self._store.of(connector, _TIMEOUT_S))
                new = [_status(connector, topic, task) for topic, task in topics.items() if topic not in stored]
                if new and self._exists(connector):  # the topics of a connector deleted meanwhile must not come back
                    await self._store.put(new, _TIMEOUT_S)
            except HerdmeshError as error:
                unit = UnitId(connector).log_context
                _log.info("topics_not_recorded", unit=unit, error=f"{error.reason}: {error.message}")
                for topic in topics:
                    self._recorded.pop((connector, topic), None)  # retried when the topic is used next

    def _read(self, task: task_pb2.TaskProgress, partition: task_pb2.PartitionProgress) -> None:
        place, position = (task.task.connector, partition.topic, partition.partition), partition.position
        before = self._moved(place, position)
        used = position > before if before is not None else task.records_in > 0 and position > 0
        self._seen(task, partition.topic, used)

    def _written(self, task: task_pb2.TaskProgress, topic: task_pb2.TopicProgress) -> None:
        # Partitions are 0 or more; negative numbers are the tasks of a source. A task that moved to another worker
        # counts from 0 again.
        place = (task.task.connector, topic.topic, -1 - task.task.task)
        self._seen(task, topic.topic, topic.records_out not in (0, self._moved(place, topic.records_out)))

    def _moved(self, place: tuple[str, str, int], position: int) -> int | None:
        """Store the new position. Returns the previous one, None for a place not seen before."""
        before = self._positions.pop(place, None)
        self._positions[place] = position
        _bound(self._positions)
        return before

    def _seen(self, task: task_pb2.TaskProgress, topic: str, used: bool) -> None:
        connector = task.task.connector
        told_s = self._recorded.get((connector, topic))
        if not used or (told_s is not None and self._clock() - told_s < AGAIN_S):
            return
        self._recorded.pop((connector, topic), None)
        self._recorded[connector, topic] = self._clock()
        _bound(self._recorded)
        self._due.setdefault(connector, {})[topic] = task.task.task


def _bound(table: dict[tuple[str, str, int], int] | dict[tuple[str, str], float]) -> None:
    if len(table) > KEPT_MAX:
        del table[next(iter(table))]  # pyright: ignore[reportArgumentType]  # whichever of the two it is


def _status(connector: str, topic: str, task: int) -> status_pb2.TopicStatus:
    now = Timestamp()
    now.GetCurrentTime()
    return status_pb2.TopicStatus(topic=topic, connector=connector, task=task, discover_time=now)
