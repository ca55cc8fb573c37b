"""Repeated commits of a sink's run after a failed commit, without a broker (with one: tests/faults, and
`test_delivery`).
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi.connector import PartitionId
from herdmesh.engine import TaskFailed, TaskKind
from herdmesh.engine.sink.consumer_control import ConsumerControl
from herdmesh.engine.sink.refresh_schedule import RefreshSchedule
from herdmesh.engine.sink.sink_commits import SinkCommits
from herdmesh.engine.sink.sink_positions import SinkPositions
from libs.core.tests.engine.harness import make_spec
from libs.core.tests.engine.sinks import PATH, ListSink

FIRST, SECOND = ("t", 0), ("t", 1)


class Fence:
    """Commits, until one commit is refused so that its transaction must be aborted."""

    def __init__(self) -> None:
        self.in_transaction = False
        self.refuses: int | None = None
        self.said = list[Any]()

    def commit_offsets(self, offsets: list[TopicPartition], _group: Any) -> None:
        self.in_transaction = True
        if self.refuses is not None:
            code, self.refuses = self.refuses, None
            cause = KafkaException(KafkaError(code, txn_requires_abort=True))
            raise TaskFailed("refused", ErrorClass.UNREACHABLE) from cause
        self.in_transaction = False
        self.said.append({(one.topic, one.partition): one.offset for one in offsets})

    def abort(self) -> None:
        self.in_transaction = False
        self.said.append("abort")


@pytest.mark.parametrize(("position", "again"), [(3, 3), (9, 7)], ids=["back", "on"])
def test_a_moved_partition_is_committed_again_with_the_others_after_an_abort(position: int, again: int) -> None:
    """A move forward is not committed: the records between were not made durable."""
    fence = Fence()
    positions = SinkPositions()
    commits = commits_of(fence, positions)
    positions.assign({FIRST: 5, SECOND: 7})
    commits.commit()
    positions.read_to(FIRST, 6)
    positions.seek(SECOND, position)
    fence.refuses = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(TaskFailed):
        commits.commit()
    assert fence.said == [{FIRST: 5, SECOND: 7}, "abort", {FIRST: 5, SECOND: again}]


@pytest.mark.parametrize(
    ("deleted", "said"),
    [({SECOND}, ["abort", {FIRST: 5}]), ({FIRST, SECOND}, ["abort"])],
    ids=["one", "all"],
)
def test_a_deleted_topic_does_not_prevent_the_commit_of_the_others(deleted: set[PartitionId], said: list[Any]) -> None:
    """Kafka refuses the whole transaction because of it."""
    fence = Fence()
    positions = SinkPositions()
    commits = commits_of(fence, positions, deleted)
    positions.assign({FIRST: 5, SECOND: 7})
    fence.refuses = KafkaError.UNKNOWN_TOPIC_OR_PART
    commits.commit()
    assert fence.said == said


def test_an_unknown_topic_that_is_not_deleted_ends_the_run() -> None:
    fence = Fence()
    positions = SinkPositions()
    commits = commits_of(fence, positions)
    positions.assign({FIRST: 5})
    fence.refuses = KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(TaskFailed):
        commits.commit()


def commits_of(fence: Any, positions: SinkPositions, deleted: Collection[PartitionId] = ()) -> SinkCommits:
    nothing: Any = SimpleNamespace(
        is_ending=False, wants_commit=False, records_in=0, asks=False, flush_dead_letters=int, raise_swallowed=int,
        commit_failed=int, committed=abs,
    )  # fmt: skip
    spec = make_spec("127.0.0.1:9", "sink", f"{PATH}:ListSink", {"topics": "t"}, kind=TaskKind.SINK)
    settings: Any = SimpleNamespace(flush_interval_ms=60_000, group="connect-sink")
    return SinkCommits(
        spec, settings, task=ListSink(), fence=fence, group=object, missing=lambda of: {*of}.intersection(deleted),
        errors=nothing, meter=nothing, reading=nothing, spans=None, positions=positions,
        control=ConsumerControl(nothing, nothing, nothing, positions), refresh=RefreshSchedule(), report=lambda: None,
    )  # fmt: skip
