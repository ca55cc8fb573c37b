"""Runs of a sink's tasks without Kafka: a topic, offsets and manifests in memory, deaths at chosen points.

Owns the order of calls, which is that of `herdmesh.engine.sink.sink_loop`, and the data that would be in Kafka. It
checks the visible output at each commit itself; the suite checks the output of all runs together.

Invariant: offsets are committed only after `flush`, `stage` or `advance`, and a manifest is published only after its
commit.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from herdmesh.connect.errors import RetriableError
from herdmesh.connect.model import OPTIONAL_STRING, Schema, Struct
from herdmesh.connect.spi import PartitionId, SinkBatch, SinkConnector, SinkTask, StagingSinkTask, TaskContext
from herdmesh.engine.sink import LedgerSinkTask, SinkTaskRequests
from herdmesh.sdk.testing.configs import full_config, new_task, task_configs_of
from herdmesh.sdk.testing.points import Died, Points
from herdmesh.sdk.testing.worlds import RecordForm, SinkWorld

NAME: Final = "trial"
TOPIC: Final = "records"
PARTITIONS: Final = 2
BATCH_RECORDS_MAX: Final = 2
_RETRIES_S: Final = 10.0
_PAUSE_S: Final = 0.01
_TIME_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One record in the topic. `is_dropped`: a transformation filters it, so that the task only sees its offset."""

    number: int | None
    """None = a tombstone."""
    value: Any = None
    schema: Schema | None = None
    is_dropped: bool = False


class SinkTrial:
    """A sink connector, its world, and the Kafka it reads from."""

    def __init__(self, connector: type[SinkConnector], world: SinkWorld, form: RecordForm | None = None) -> None:
        """`form`: of the values; None = the first that the world takes."""
        self._connector = connector
        self._config: dict[str, str | None] = {**full_config(connector, world, NAME), "topics": TOPIC}
        self._form = form or world.forms[0]
        self.world = world
        task = new_task(connector)
        self.is_staging = isinstance(task, StagingSinkTask)
        self.keeps_ledger = isinstance(task, LedgerSinkTask)
        self.topic: dict[PartitionId, list[Entry]] = {(TOPIC, number): [] for number in range(PARTITIONS)}
        self.committed = dict.fromkeys(self.topic, 0)
        self.manifests = dict.fromkeys(self.topic, "")
        """Manifest of the last commit of each partition."""
        self.dead: list[SinkTask] = []
        self.reported: list[tuple[PartitionId, int]] = []
        """Partition and offset of each record that the task reported as failed."""

    def write(self, numbers: Iterable[int], *, changed: bool = False) -> None:
        """Append records, distributed over the partitions; after each, one that a transformation filters."""
        for number in numbers:
            value, schema = self.world.record(number, self._form, changed=changed)
            self.topic[TOPIC, number % PARTITIONS] += [Entry(number, value, schema), Entry(None, is_dropped=True)]

    def write_tombstone(self) -> None:
        """Append a record with a key of its own and no value."""
        self.topic[TOPIC, 0].append(Entry(None))

    def write_unfit(self, number: int) -> tuple[PartitionId, int]:
        """Append a struct whose last field has a value of another class than its schema's; return its partition and
        offset.
        """
        value, schema = self.world.record(number, RecordForm.STRUCT, changed=False)
        assert schema is not None
        last = schema.fields[-1].schema
        unfit = Struct(schema, [*value.values[:-1], 5 if last.type == "STRING" else "no such value"])
        entries = self.topic[TOPIC, 0]
        entries.append(Entry(None, unfit, schema))
        return (TOPIC, 0), len(entries) - 1

    def rewind(self) -> None:
        """Let the next run read everything again, as after `herd offsets reset`."""
        self.committed = dict.fromkeys(self.topic, 0)
        self.manifests = dict.fromkeys(self.topic, "")

    def run(
        self,
        *,
        deadly: int | None = None,
        every: int = 1,
        tasks_max: int = 1,
        fails_at: int = 0,
        tolerated: bool = False,
    ) -> Points:
        """Run each task, one after the other, until all records are read. Return the points passed.

        Args:
            deadly: the point at which the run dies.
            every: batches per commit.
            fails_at: the batch after which the run ends with an error, 0 = no error.
            tolerated: records may fail, as with `errors.tolerance=all`; they are `reported`.
        """
        points = Points(deadly)
        configs = task_configs_of(self._connector, self._config, tasks_max)
        for number, config in enumerate(configs):
            task = self.new_task()
            owned = [one for one in self.topic if one[1] % len(configs) == number]
            run = _Run(self, task, owned, points, every, fails_at)
            try:
                context = replace(context_of(number, len(configs)), reading=run.reading)
                if tolerated:
                    context = replace(context, errant=_Reporter(self.reported), tolerates_errors=True)
                run.go(config, context)
            except Died:
                self.dead.append(task)
                return points
            except BaseException:
                task.stop()
                raise
            task.stop()
        return points

    def new_task(self) -> SinkTask:
        """A task that is not started."""
        return cast("SinkTask", new_task(self._connector))

    def take_over(self) -> StagingSinkTask:
        """A new staging task, started and opened, after `recover` with the manifests of the last commit."""
        task = cast("StagingSinkTask", self.new_task())
        (config,) = task_configs_of(self._connector, self._config, 1)
        task.start(config, context_of(0, 1))
        task.open(list(self.topic))
        task.recover(dict(self.manifests))
        return task

    def bury(self) -> None:
        """Stop the tasks that died, to release their resources: they are still in this process."""
        for task in self.dead:
            with suppress(Exception):
                task.stop()
        self.dead.clear()

    def numbers(self, positions: Mapping[PartitionId, int] | None = None) -> set[int]:
        """The numbers of the records before these positions; None = of all records."""
        found: set[int] = set()
        for partition, entries in self.topic.items():
            end = len(entries) if positions is None else positions.get(partition, self.committed[partition])
            found |= {one.number for one in entries[:end] if one.number is not None}
        return found

    def check_found(self, what: str, *, exactly: bool) -> None:
        """Check that all records of the topic are outside. Raises AssertionError that names the missing ones."""
        counted = Counter(self.world.found())
        wanted = self.numbers()
        lost = sorted(wanted - counted.keys())
        assert not lost, f"{what}: records {lost} are lost"
        foreign = sorted(counted.keys() - wanted)
        assert not foreign, f"{what}: records {foreign} were never written"
        twice = sorted(number for number, count in counted.items() if count > 1)
        assert not (exactly and twice), f"{what}: records {twice} are there more than once"


def context_of(task: int, task_count: int) -> TaskContext:
    """A context as a new run has it."""
    return TaskContext(NAME, task, task_count, f"connect-{NAME}", uuid.uuid4().hex)


class _Reporter:
    """Reporter of errant records."""

    def __init__(self, reported: list[tuple[PartitionId, int]]) -> None:
        self._reported = reported

    def report(self, batch: SinkBatch, index: int, error: BaseException) -> None:
        self._reported.append(((batch.original_topic, batch.partition), batch.offsets[index]))

    def flush_dead_letters(self) -> None:
        return


class _Run:
    """One run of one task."""

    def __init__(
        self, trial: SinkTrial, task: SinkTask, owned: list[PartitionId], points: Points, every: int, fails_at: int
    ) -> None:
        self._trial = trial
        self._task = task
        self._staging = task if isinstance(task, StagingSinkTask) else None
        self._ledger = task if isinstance(task, LedgerSinkTask) else None
        self._owned = owned
        self._points = points
        self._every = every
        self._fails_at = fails_at
        self._positions = {one: trial.committed[one] for one in owned}
        self.reading = SinkTaskRequests(task)

    def go(self, config: Mapping[str, str | None], context: TaskContext) -> None:
        """Drive the task from `start` to the last commit; the caller calls `stop`."""
        self._task.start(config, context)
        self._points.at("start")
        if self._ledger is not None:
            self._positions.update(self._ledger.claim(self._owned))
            self._points.at("claim")
        self.reading.assign(self._owned)
        self._task.open(self._owned)
        if self._staging is not None:
            self._staging.recover({one: self._trial.manifests[one] for one in self._owned})
            self._points.at("recover")
            self._commit()  # as in the loop: commit the starting positions of this run
        if self._ledger is not None:
            self._ledger.begin(dict(self._positions))
            self._points.at("begin")
            self._commit()
        puts = 0
        while (batch := self._next() or self._next_once_committed()) is not None:
            self._put(batch)
            self._positions[batch.original_topic, batch.partition] = batch.last_offset + 1
            puts += 1
            if self._ledger is not None:
                self._check_there("put()")
            self._points.at(f"put {puts}")
            if puts == self._fails_at:
                return
            is_due = self.reading.wants_commit or (self._staging is not None and self._staging.commit_due())
            if puts % self._every == 0 or is_due:
                self._commit()
        self._commit()
        self._task.close(self._owned)

    def _heed(self) -> None:
        """Apply the task's seeks and pauses, as the loop does before it reads and when it commits."""
        wishes = self.reading.take()
        self._positions.update(wishes.seeks)
        for partition, is_pause in wishes.pauses.items():
            (self.reading.paused.add if is_pause else self.reading.paused.discard)(partition)

    def _next_once_committed(self) -> SinkBatch | None:
        """A commit, then the next batch, if the task paused a partition: it may resume the partition in
        `pre_commit`."""
        if not self.reading.paused:
            return None
        self._commit()
        return self._next()

    def _next(self) -> SinkBatch | None:
        """The next records of the partition that is furthest behind; None = all is read, or the task wants no more."""
        self._heed()
        ready = [one for one in self._owned if one not in self.reading.paused]
        behind = [one for one in ready if self._positions[one] < len(self._trial.topic[one])]
        if not behind:
            return None
        partition = min(behind, key=lambda one: self._positions[one])
        entries, begin = self._trial.topic[partition], self._positions[partition]
        end, rows = begin, list[tuple[int, Entry]]()
        schema = next((one.schema for one in entries[begin:] if not one.is_dropped), None)
        for offset in range(begin, len(entries)):
            entry = entries[offset]
            if not entry.is_dropped and (len(rows) == BATCH_RECORDS_MAX or entry.schema is not schema):
                break
            end = offset + 1
            if not entry.is_dropped:
                rows.append((offset, entry))
        return self._batch(partition, begin, end - 1, rows, schema)

    def _batch(
        self, partition: PartitionId, first: int, last: int, rows: list[tuple[int, Entry]], schema: Schema | None
    ) -> SinkBatch:
        topic, number = partition
        names = ["tombstone" if one.number is None else str(one.number) for _, one in rows]
        keys: list[Any] = names if self._task.uses_keys else [name.encode() for name in names]
        return SinkBatch(
            topic, number, first, last, [one.value for _, one in rows], keys, [offset for offset, _ in rows],
            [_TIME_MS + offset for offset, _ in rows], key_schema=OPTIONAL_STRING if self._task.uses_keys else None,
            value_schema=schema, original_topic=topic,
        )  # fmt: skip

    def _put(self, batch: SinkBatch) -> None:
        deadline_s = time.monotonic() + _RETRIES_S
        while True:
            try:
                self._task.put(batch)
            except RetriableError:
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _commit(self) -> None:
        trial = self._trial
        self._heed()
        self.reading.wants_commit = False
        if self._staging is None:
            allowed = dict(self._positions)
            if self._ledger is not None:
                self._ledger.advance(dict(self._positions))
            else:
                allowed = self._allowed()
            what = "flush" if self._ledger is None else "advance"
            self._check_there(f"{what}()", allowed)
            self._points.at(what)
            trial.committed.update(allowed)
            self._points.at(f"the commit after {what}")
            return
        before = Counter(trial.world.found())
        manifests = self._staging.stage()
        self._check_staged(before, manifests)
        self._points.at("stage")
        trial.committed.update(self._positions)
        trial.manifests.update({one: manifests.get(one, "") for one in self._owned})
        self._points.at("the commit after stage")
        if manifests:
            self._staging.publish(manifests)
            self._points.at("publish")

    def _allowed(self) -> dict[PartitionId, int]:
        """The offsets that the task allows to commit (`pre_commit`), checked."""
        asked = dict(self._positions)
        allowed = self._task.pre_commit(dict(asked))
        self._heed()
        wrong = {one: offset for one, offset in allowed.items() if not 0 <= offset <= asked.get(one, -1)}
        assert not wrong, f"pre_commit() allows offsets {wrong}, and was given {asked}"
        return {one: min(offset, self._positions[one]) for one, offset in allowed.items()}

    def _check_there(self, what: str, positions: Mapping[PartitionId, int] | None = None) -> None:
        allowed = self._positions if positions is None else positions
        missing = sorted(self._trial.numbers(allowed) - set(self._trial.world.found()))
        assert not missing, f"{what} returned, and records {missing} that were put are not there"

    def _check_staged(self, before: Counter[int], manifests: Mapping[PartitionId, str]) -> None:
        foreign = sorted(set(manifests) - set(self._owned))
        assert not foreign, f"stage() names partitions that the task does not own: {foreign}"
        for partition, text in manifests.items():
            size = len(text.encode())
            most = StagingSinkTask.MANIFEST_BYTES_MAX
            assert size <= most, f"the manifest of {partition} has {size} bytes, at most {most}"
        seen = Counter(self._trial.world.found())
        early = sorted((seen - before).elements())
        assert not early, f"stage() shows records {early} before they are committed"
