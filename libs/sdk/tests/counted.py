"""Sources without an outside system, for the tests of the standard suite: one correct source whose tasks each generate
all records, and broken variants.

Owns no test. The name of a broken variant says how it differs from the correct one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from herdmesh.sdk import Config, ConfigDef, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.sdk.testing import SourceWorld, json_number
from libs.sdk.tests.examples import SIZE, TOPIC, LinesSource


class CountedSource(LinesSource):
    """A correct source."""

    class_name = "test.CountedSource"
    task = "CountedTask"
    _keys = ConfigDef(TOPIC, SIZE)

    def task_class(self) -> str:
        return f"{__name__}:{self.task}"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        return [{**self.config, "task": str(number)} for number in range(max_tasks)]


class CountedTask(SourceTask):
    """Sends numbers up to `batch.size`."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        self.topic, self.count = str(config["topic"]), int(config["batch.size"] or 0)
        self.partition = self.partition_of(config)
        self.next = int((context.committed_offset(self.partition) or {"next": 0})["next"])

    def partition_of(self, config: Config) -> Mapping[str, Any]:
        return {"task": config["task"]}

    def poll(self) -> SourceBatch | None:
        if self.next >= self.count:
            return None
        self.next += 1
        return SourceBatch(self.topic, [self.next - 1], self.partition, {"next": self.next})


class CountedWorld(SourceWorld):
    """The config holds the number of records. `numbers`: the id of each value, supplied from outside."""

    records_min = 1
    each_task_has_all = True

    def __init__(self, folder: Path, numbers: Mapping[bytes, int] | None = None) -> None:
        super().__init__(folder)
        self.count, self.numbers = 0, numbers

    def config(self) -> dict[str, str]:
        return {"topic": self.name, "batch.size": str(self.count)}

    def write(self, numbers: range) -> None:
        self.count += len(numbers)

    def number_of(self, value: bytes) -> int:
        return json_number(value) if self.numbers is None else self.numbers[value]


class OnlyTheFirst(CountedTask):
    """A broken source: tasks other than the first send nothing."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self.count *= config["task"] == "0"


class OnePartition(CountedTask):
    """A broken source: all tasks use one source partition, so each takes the offsets of another for its own."""

    def partition_of(self, config: Config) -> Mapping[str, Any]:
        return {}


class OneMore(CountedTask):
    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self.count += 1
