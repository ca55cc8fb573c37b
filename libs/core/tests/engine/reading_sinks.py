"""Sink tasks that control their reading and their committable offsets, for `test_sink_reading.py`."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import ClassVar

from herdmesh.connect.errors import RecordError, RetriableError
from herdmesh.connect.spi.connector import Config, PartitionId, SinkBatch, TaskContext
from herdmesh.connect.spi.sink_requests import NO_READING, SinkReading
from libs.core.tests.engine.sinks import ListSink

PATH = __name__


class ReadingSink(ListSink):
    """Remembers its other calls, and keeps its reading control."""

    reading: ClassVar[SinkReading] = NO_READING
    asked: ClassVar[list[dict[PartitionId, int]]] = []
    """Arguments of `pre_commit`."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        ReadingSink.reading = context.reading
        ReadingSink.asked.clear()

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        ReadingSink.asked.append(dict(offsets))
        return super().pre_commit(offsets)

    def close(self, partitions: Sequence[PartitionId]) -> None:
        ListSink.calls.append(f"close {len(partitions)}")

    def ids(self) -> list[int]:
        return [value["id"] for value in ListSink.values]


class BrokenReadingSink(ReadingSink):
    """Raises at the first record, and when it is closed."""

    def put(self, batch: SinkBatch) -> None:
        raise OSError("no space left")

    def close(self, partitions: Sequence[PartitionId]) -> None:
        super().close(partitions)
        raise ValueError("still no space left")


class HoldingSink(ReadingSink):
    """Allows the commit of offset `hold` once it has `all` records, and nothing until then; kills its process at the
    second call.
    """

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._hold, self._all = int(str(config["hold"])), int(str(config["all"]))
        self._times = 0

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        if sum(offsets.values()) < self._all:
            return {}
        self._times += 1
        if self._times == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return dict.fromkeys(offsets, self._hold)


class LateSink(ReadingSink):
    """Allows no commit before `LateSink.times` calls with all records; returns invalid offsets until then."""

    times: ClassVar[int] = 3

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        super().pre_commit(offsets)
        if sum(one == offsets for one in ReadingSink.asked) >= self.times and sum(offsets.values()) == 10:
            return offsets
        return {partition: offset + 1 for partition, offset in offsets.items()} | {("another", 0): 1}


class SeekingSink(ReadingSink):
    """Seeks back to `back` when it has ten records, once; seeks to `begin` at the start if it is set."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._back, self._begin = int(str(config["back"])), int(str(config["begin"]))
        self._is_back = False

    def open(self, partitions: Sequence[PartitionId]) -> None:
        super().open(partitions)
        assert ReadingSink.reading.assignment() == set(partitions)
        if self._begin > 0:
            ReadingSink.reading.seek(dict.fromkeys(partitions, self._begin))

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        if batch.last_offset == 9 and not self._is_back:
            self._is_back = True
            ListSink.calls.append("seek")
            ReadingSink.reading.seek({(batch.original_topic, batch.partition): self._back})


class SeekingInFlushSink(SeekingSink):
    """Seeks back within `flush`."""

    def put(self, batch: SinkBatch) -> None:
        ReadingSink.put(self, batch)

    def flush(self) -> None:
        super().flush()
        if len(ListSink.values) == 10 and not self._is_back:
            self._is_back = True
            (partition,) = ReadingSink.reading.assignment()
            ReadingSink.reading.seek({partition: self._back})


class PausingSink(ReadingSink):
    """Pauses partition 1."""

    def open(self, partitions: Sequence[PartitionId]) -> None:
        super().open(partitions)
        ReadingSink.reading.pause([one for one in partitions if one[1] == 1])


class CommittingSink(ReadingSink):
    """Requests a commit after each batch."""

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        ReadingSink.reading.request_commit()


class ImpatientSink(ReadingSink):
    """Refuses a batch at first, with a retry time: 7 ms, then none."""

    def put(self, batch: SinkBatch) -> None:
        ListSink.calls.append("put")
        if ListSink.calls.count("put") == 1:
            ReadingSink.reading.retry_after(7)
        if ListSink.calls.count("put") < 3:
            raise RetriableError("the other side is away")
        super().put(batch)


class LateReportingSink(ReadingSink):
    """Writes in `flush`, and clears its buffer before that: reports ids below 0 then, and may swallow what the report
    raises (config `swallow`).
    """

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self._reporter, self._swallow = context.reporter, config.get("swallow") == "true"
        self._held: list[SinkBatch] = []

    def put(self, batch: SinkBatch) -> None:
        self._held.append(batch)

    def flush(self) -> None:
        super().flush()
        held, self._held = self._held, []
        for batch in held:
            for at, value in enumerate(batch.values):
                if value["id"] >= 0:
                    ListSink.values.append(value)
                    continue
                assert self._reporter is not None
                try:
                    self._reporter.report(batch, at, ValueError(f"no negative id: {value['id']}"))
                except RecordError:
                    if not self._swallow:
                        raise


class ForgetfulSink(ReadingSink):
    """Its author forgot to return the offsets."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        super().pre_commit(offsets)
        return None  # pyright: ignore[reportReturnType]


class UnsureSink(ReadingSink):
    """Cannot tell what is durable once it has got records."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        if ListSink.values:
            raise RetriableError("the other side is away")
        return super().pre_commit(offsets)
