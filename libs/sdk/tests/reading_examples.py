"""Sinks whose tasks declare committable offsets and control their reading: one correct, others broken."""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.sdk import Config, PartitionId, SinkBatch, TaskContext
from libs.sdk.tests.examples import LinesSink, LinesSinkTask, line_of


class HoldsBack(LinesSinkTask):
    """Writes lines when the next batch has come, or at the second `pre_commit` without one: pauses their partition
    meanwhile, and declares lines that are not written as not committable.
    """

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self.reading = context.reading
        self.waiting: dict[PartitionId, tuple[int, list[bytes]]] = {}
        self.is_new = False

    def put(self, batch: SinkBatch) -> None:
        partition = batch.original_topic, batch.partition
        self.append(self.waiting.pop(partition, (0, []))[1])
        self.waiting[partition] = batch.first_offset, [line_of(value) for value in batch.values]
        self.is_new = True
        self.reading.pause([partition])
        self.reading.request_commit()

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        self.reading.resume(offsets)
        if not self.is_new:
            self.append([line for one in offsets for line in self.waiting.pop(one, (0, []))[1]])
        self.is_new = False
        return {one: self.waiting.get(one, (offset, []))[0] for one, offset in offsets.items()}


class HoldsBackSink(LinesSink):
    """A correct sink that declares its committable offsets."""

    class_name = "test.HoldsBackSink"
    task = "HoldsBack"

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"


class AllowsTooMuch(HoldsBack):
    """A broken task: lets offsets of unwritten records be committed."""

    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        self.reading.resume(offsets)
        return offsets


class AllowsMoreThanThereIs(LinesSinkTask):
    def pre_commit(self, offsets: Mapping[PartitionId, int]) -> Mapping[PartitionId, int]:
        self.flush()
        return {one: offset + 1 for one, offset in offsets.items()}


class GoesBackTwice(LinesSinkTask):
    """A broken task: seeks back to its first record, which it already wrote."""

    def start(self, config: Config, context: TaskContext) -> None:
        super().start(config, context)
        self.reading = context.reading
        self.is_back = False

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        if not self.is_back:
            self.is_back = True
            self.reading.seek({(batch.original_topic, batch.partition): batch.first_offset})
