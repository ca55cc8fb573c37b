"""Runs of a source's tasks without Kafka: offsets and records in memory, deaths at chosen points.

Owns the order of calls, which is that of `herdmesh.engine.source.source_loop`, and the data that would be in Kafka.
It checks each batch by itself; the suite checks all of them together.

Invariant: records and their offsets become visible together, by a commit; a run that dies leaves only committed records
and offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from herdmesh.connect.chain import chain_config
from herdmesh.connect.errors import RetriableError
from herdmesh.connect.model import Batch, Header, check_value
from herdmesh.connect.spi import RecordMetadata, SourceBatch, SourceConnector, SourceTask, SourceTaskContext
from herdmesh.engine.source import SourceOffsets
from herdmesh.sdk.testing.configs import full_config, new_task, task_configs_of
from herdmesh.sdk.testing.points import Died, Points
from herdmesh.sdk.testing.worlds import JSON_WITHOUT_SCHEMAS, SourceWorld

NAME: Final = "trial"
POLL_RECORDS_MAX: Final = 2
_POLLS_MAX: Final = 10_000
_RETRIES_S: Final = 10.0
_PAUSE_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    """One record in Kafka."""

    source_partition: bytes
    """Its key in the offsets topic."""
    number: int


class SourceTrial:
    """A source connector, its world, and the Kafka it writes to."""

    def __init__(self, connector: type[SourceConnector], world: SourceWorld) -> None:
        self._connector = connector
        self._world = world
        self.offsets = SourceOffsets(NAME)
        self.partitions: dict[bytes, tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]] = {}
        """Source partitions and offsets as the task returned them, by key in the offsets topic."""
        self.sent: list[Sent] = []
        self.task_count = 0
        """Number of tasks of the last run."""
        self._dead: list[SourceTask] = []

    @property
    def numbers(self) -> list[int]:
        """The numbers of all committed records, in order."""
        return [one.number for one in self.sent]

    def run(
        self, *, deadly: int | None = None, every: int = 1, wanted: int = 0, tasks_max: int = 1, fails_at: int = 0
    ) -> Points:
        """Run each task, one after the other, until there are no more records. Return the points passed.

        Args:
            deadly: the point at which the run dies.
            every: polls per transaction.
            wanted: number of records to reach in Kafka; waits for them for the world's `patience_s`. 0 = read only the
                available ones.
            fails_at: the poll after which the run ends with an error, 0 = no error.
        """
        points = Points(deadly)
        configs = task_configs_of(self._connector, full_config(self._connector, self._world, NAME), tasks_max)
        self.task_count = len(configs)
        for number, config in enumerate(configs):
            task = cast("SourceTask", new_task(self._connector))
            run = _Run(self, self._world, task, points, every, wanted, fails_at)
            try:
                run.go(config, number, len(configs))
            except Died:
                self._dead.append(task)
                return points
            except BaseException:
                task.stop()
                raise
            task.stop()
        return points

    def bury(self) -> None:
        """Stop the tasks that died, to release their resources: they are still in this process."""
        for task in self._dead:
            with suppress(Exception):
                task.stop()
        self._dead.clear()

    def numbers_in(self, batch: SourceBatch) -> list[int]:
        """The numbers of the records of a batch, after the chain."""
        converters = {**JSON_WITHOUT_SCHEMAS, **self._connector.default_converters}
        chain = chain_config.source_chain(full_config(self._connector, self._world, NAME), worker=converters)
        given = Batch(
            batch.topic, batch.partition, batch.keys, batch.values, timestamps_ms=batch.timestamps_ms,
            key_schema=batch.key_schema, value_schema=batch.value_schema, headers=batch.headers,
        )  # fmt: skip
        return [self._world.number_of(value) for raw in chain.run(given) for value in raw.values]


class _Run:
    """One run of one task."""

    def __init__(
        self, trial: SourceTrial, world: SourceWorld, task: SourceTask, points: Points, every: int, wanted: int,
        fails_at: int,
    ) -> None:  # fmt: skip
        self._trial = trial
        self._world = world
        self._task = task
        self._points = points
        self._every = every
        self._wanted = wanted
        self._fails_at = fails_at
        self._pending: list[SourceBatch] = []
        self._reached = trial.offsets.items()
        self._polls = 0

    def go(self, config: Mapping[str, str | None], number: int, count: int) -> None:
        """Drive the task from `start` to the last commit; the caller calls `stop`."""
        self._task.start(
            config,
            SourceTaskContext(
                connector=NAME,
                task=number,
                task_count=count,
                run_id=uuid.uuid4().hex,
                committed_offset=self._trial.offsets.committed_offset,
                poll_records_max=lambda: POLL_RECORDS_MAX,
                make_topic=_make_nothing,
            ),
        )
        self._points.at("start")
        while (batch := self._next()) is not None:
            check_batch(batch)
            self._pending.append(batch)
            key, value = self._trial.offsets.record(batch.source_partition, batch.source_offset)
            self._reached[key] = value or b""
            self._polls += 1
            assert self._polls < _POLLS_MAX, f"there is no end of records: {_POLLS_MAX:,} polls"
            self._points.at(f"poll {self._polls}")
            if self._polls == self._fails_at:
                return
            if self._polls % self._every == 0:
                self._commit()
        self._commit()
        assert self._task.wake_after_ms() >= 0, "wake_after_ms is negative"

    def _next(self) -> SourceBatch | None:
        """The next batch, None = there is nothing more. Polled records are committed before the loop waits."""
        world = self._world
        wait_s = world.silence_s if not self._wanted and world.silence_s is not None else world.patience_s
        deadline_s = time.monotonic() + wait_s
        while True:
            batch = self._poll()
            if batch is not None and (len(batch) or self._moves(batch)):
                return batch
            self._commit()
            if time.monotonic() >= deadline_s or 0 < self._wanted <= len(self._trial.sent):
                return None
            time.sleep(_PAUSE_S)

    def _poll(self) -> SourceBatch | None:
        deadline_s = time.monotonic() + _RETRIES_S
        while True:
            try:
                return self._task.poll()
            except RetriableError:
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(_PAUSE_S)

    def _moves(self, batch: SourceBatch) -> bool:
        key, value = self._trial.offsets.record(batch.source_partition, batch.source_offset)
        return self._reached.get(key) != (value or b"")

    def _commit(self) -> None:
        if not self._pending:
            return
        for batch in self._pending:
            key, value = self._trial.offsets.record(batch.source_partition, batch.source_offset)
            self._trial.offsets.apply(key, value)
            self._trial.partitions[key] = (batch.source_partition, batch.source_offset)
            self._trial.sent += [Sent(key, number) for number in self._trial.numbers_in(batch)]
        self._points.at(f"the transaction of poll {self._polls}, before commit()")
        if self._task.wants_metadata():
            for batch in self._pending:
                self._task.commit_batch(batch, [RecordMetadata(batch.topic, 0, 0, 0)] * len(batch))
        self._pending.clear()
        self._task.commit()
        self._points.at(f"commit() of poll {self._polls}")


def check_batch(batch: SourceBatch) -> None:
    """Check that a batch breaks no rule of `SourceBatch`."""
    count = len(batch)
    assert batch.topic or not count, "a batch without a topic"
    columns = {"keys": batch.keys, "timestamps_ms": batch.timestamps_ms, "headers": batch.headers}
    for name, column in columns.items():
        assert len(column) in (0, count), f"{name} has {len(column)} items, values {count}"
    assert batch.partition is None or batch.partition >= 0, f"partition {batch.partition}"
    for time_ms in batch.timestamps_ms:
        assert time_ms is None or time_ms >= 0, f"a timestamp of {time_ms} ms"
    headers = [header for row in batch.headers for header in cast("list[Any]", row)]
    assert all(isinstance(header, Header) for header in headers), "headers are Header objects"
    if batch.value_schema is not None:
        for value in batch.values:
            check_value(batch.value_schema, value)
    if batch.key_schema is not None:
        for key in batch.keys:
            check_value(batch.key_schema, key)


def _make_nothing(_name: str, _partitions: int, _replicas: int, _config: Mapping[str, str]) -> None:
    """Create no topic: there is no Kafka."""
