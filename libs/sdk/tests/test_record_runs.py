"""Tasks of single records in the real loop: each call in a transaction of its own, and offsets without records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from herdmesh.engine import RunEnd, TaskKind
from herdmesh.sdk import AsyncSourceTask, Config, RecordSourceTask, SourceOffset, SourceRecord, SourceTaskContext
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

pytestmark = pytest.mark.kafka
HERE, THERE = {"file": "a"}, {"file": "b"}
Given = SourceRecord | SourceOffset


class Script:
    """Records to return, call by call, the recorded commit notifications, and the partitions' offsets at the start of
    the run.
    """

    calls: ClassVar[list[Sequence[Given]]] = []
    commits: ClassVar[list[int]] = []
    begun: ClassVar[list[Mapping[str, Any] | None]] = []

    def __init__(self, context: SourceTaskContext) -> None:
        self.left = list(Script.calls)
        Script.commits, Script.begun = [], [context.committed_offset(one) for one in (HERE, THERE)]

    def next(self) -> Sequence[Given]:
        return self.left.pop(0) if self.left else []

    def committed(self, records: Sequence[SourceRecord]) -> None:
        assert not any(isinstance(one, SourceOffset) for one in list[Given](records)), "of these alone"
        Script.commits.append(len(Script.calls) - len(self.left))


class Scripted(RecordSourceTask):
    """Returns the script as lists."""

    def start(self, config: Config, context: SourceTaskContext) -> None:
        super().start(config, context)
        self.script = Script(context)

    def poll_records(self) -> Sequence[Given]:
        return self.script.next()

    def commit_records(self, records: Sequence[SourceRecord]) -> None:
        self.script.committed(records)


class Awaited(AsyncSourceTask):
    """The same in coroutines."""

    async def start_async(self, config: Config, context: SourceTaskContext) -> None:
        self.script = Script(context)

    async def poll_async(self) -> Sequence[Given]:
        return self.script.next()

    async def commit_async(self, records: Sequence[SourceRecord]) -> None:
        self.script.committed(records)


@pytest.mark.parametrize(("task", "heard"), [(Scripted, [1, 3]), (Awaited, [1, 2, 3])])
def test_offsets_without_records_are_committed_in_order(
    kafka_bootstrap: str,
    tmp_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    task: type[Any],
    heard: list[int],
) -> None:
    """With the records of the same call, or alone; the task is notified only of records."""
    kafka, name = Kafka(kafka_bootstrap), tmp_topic("source")
    topic, other = (kafka.create_topic(tmp_topic(), 1) for _ in range(2))
    calls: list[Sequence[Given]] = [
        [
            SourceRecord(topic, 1, HERE, {"line": 1}), SourceOffset(HERE, {"line": 5}),
            SourceOffset(THERE, {"line": 1}), SourceRecord(other, 2, HERE, {"line": 6}),
            SourceOffset(THERE, {"line": 2}),
        ],
        [SourceOffset(HERE, {"line": 7}), SourceOffset(HERE, {"line": 9})],
        [SourceRecord(topic, 3, THERE, {"line": 3}), SourceOffset(THERE, {"line": 3})],
    ]  # fmt: skip
    monkeypatch.setattr(Script, "calls", calls)
    spec = make_spec(
        kafka_bootstrap, name, f"{__name__}:{task.__name__}", {"transaction.boundary": "poll"},
        kind=TaskKind.SOURCE, offset_storage_topic=f"{name}-offsets",
    )  # fmt: skip
    outcome = run_here(spec)
    assert (outcome.reason, outcome.progress.records_in, Script.commits) == (RunEnd.QUIET, 3, heard)
    assert [[value for _, value in kafka.records(one, 1)] for one in (topic, other)] == [[b"1", b"3"], [b"2"]]
    stored = kafka.records(f"{name}-offsets", 2)
    for partition, lines in ((HERE, (6, 9)), (THERE, (2, 3))):
        key = f'["{name}",{{"file":"{partition["file"]}"}}]'.encode()
        assert [value for found, value in stored if found == key] == [b'{"line":%d}' % line for line in lines]
    monkeypatch.setattr(Script, "calls", [])
    run_here(spec)
    assert Script.begun == [{"line": 9}, {"line": 3}]
