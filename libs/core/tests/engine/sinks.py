"""Small sink and source tasks for the engine's tests: they record their calls in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from herdmesh.connect.errors import RecordError, RetriableError
from herdmesh.connect.spi.connector import (
    Config,
    PartitionId,
    SinkBatch,
    SinkTask,
    SourceBatch,
    SourceTask,
    SourceTaskContext,
    TaskContext,
)

PATH = __name__


class ListSink(SinkTask):
    """Remembers records and calls of the last run."""

    values: ClassVar[list[Any]] = []
    batches: ClassVar[list[SinkBatch]] = []
    calls: ClassVar[list[str]] = []

    def start(self, config: Config, context: TaskContext) -> None:
        for remembered in (ListSink.values, ListSink.batches, ListSink.calls):
            remembered.clear()
        ListSink.calls.append("start")
        assert context.task < context.task_count

    def open(self, partitions: Sequence[PartitionId]) -> None:
        ListSink.calls.append(f"open {len(partitions)}")

    def put(self, batch: SinkBatch) -> None:
        ListSink.batches.append(batch)
        ListSink.values.extend(batch.values)

    def flush(self) -> None:
        ListSink.calls.append("flush")

    def stop(self) -> None:
        ListSink.calls.append("stop")


class BrokenSink(ListSink):
    """Raises at the first record."""

    def put(self, batch: SinkBatch) -> None:
        raise OSError("no space left")


class BusySink(ListSink):
    """Refuses a batch for the first `refusals` calls."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._refusals = int(str(config["refusals"]))

    def put(self, batch: SinkBatch) -> None:
        ListSink.calls.append("put")
        if self._refusals > 0:
            self._refusals -= 1
            raise RetriableError("the other side is away")
        super().put(batch)


class AwaySink(ListSink):
    """Cannot flush once `AwaySink.away`, nor accept batches where the config says so (`away`: put)."""

    away: ClassVar[bool] = False

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        AwaySink.away = False
        self._takes = config["away"] != "put"

    def put(self, batch: SinkBatch) -> None:
        if not self._takes and ListSink.values:
            AwaySink.away = True
            raise RetriableError("the other side is away")
        super().put(batch)

    def flush(self) -> None:
        super().flush()
        if AwaySink.away:
            raise RetriableError("the other side is away")


class CountingSource(SourceTask):
    """Counts from the committed number to `until`, ten to a batch."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self._topic = str(config["topic"])
        self._until = int(str(config["until"]))
        self._partition: Mapping[str, Any] = {"counter": "a"}
        committed = context.committed_offset(self._partition)
        self._next = 0 if committed is None else int(committed["next"])

    def poll(self) -> SourceBatch | None:
        numbers = list(range(self._next, min(self._next + 10, self._until)))
        if not numbers:
            return None
        self._next = numbers[-1] + 1
        values = [{"n": number} for number in numbers]
        return SourceBatch(
            self._topic, values, self._partition, {"next": self._next}, keys=[str(number) for number in numbers]
        )

    def wake_after_ms(self) -> int:
        return 77


class SnapshotSource(CountingSource):
    """Counts likewise, and has no offset to continue from before it found nothing more."""

    _is_done = False

    def poll(self) -> SourceBatch | None:
        batch = super().poll()
        self._is_done = batch is None
        return batch

    def may_yield(self) -> bool:
        return self._is_done


class PickySink(ListSink):
    """Reports records whose `id` is negative, and may swallow what the report raises (config `swallow`)."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._reporter = context.reporter
        self._swallow = config.get("swallow") == "true"

    def put(self, batch: SinkBatch) -> None:
        assert self._reporter is not None
        kept: list[Any] = []
        for at, value in enumerate(batch.values):
            if value["id"] >= 0:
                kept.append(value)
                continue
            try:
                self._reporter.report(batch, at, ValueError(f"no negative id: {value['id']}"))
            except RecordError:
                if not self._swallow:
                    raise
        ListSink.values.extend(kept)


class MakingSink(ListSink):
    """Reports the self-created records of `MakingSink.made` when it gets a batch."""

    made: ClassVar[list[SinkBatch]] = []

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._reporter = context.reporter

    def put(self, batch: SinkBatch) -> None:
        assert self._reporter is not None
        for made in MakingSink.made:
            self._reporter.report(made, 0, ValueError("cannot be split further"))
        super().put(batch)


class GivenSource(SourceTask):
    """Returns `GivenSource.batches` one by one, from the committed number on. Its first `refusals` polls are
    refused.
    """

    batches: ClassVar[list[SourceBatch]] = []
    commits: ClassVar[list[int]] = []

    def start(self, config: Config, context: SourceTaskContext) -> None:
        GivenSource.commits.clear()
        self._refusals = int(str(config.get("refusals") or 0))
        committed = context.committed_offset({"given": "a"})
        self._next = 0 if committed is None else int(committed["next"])

    def poll(self) -> SourceBatch | None:
        if self._refusals > 0:
            self._refusals -= 1
            raise RetriableError("the other side is away")
        if self._next == len(GivenSource.batches):
            return None
        batch = GivenSource.batches[self._next]
        self._next += 1
        batch.source_partition, batch.source_offset = {"given": "a"}, {"next": self._next}
        return batch

    def commit(self) -> None:
        GivenSource.commits.append(self._next)
