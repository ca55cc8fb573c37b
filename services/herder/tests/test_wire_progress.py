"""Progress of tasks on the wire: lag only where it is known."""

from __future__ import annotations

import pytest

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.herder.wire.session import progress

TASK = connector_pb2.TaskId(connector="c", task=0)


def partition(committed: int, position: int, end: int, pending: int = 0) -> task_pb2.PartitionProgress:
    return task_pb2.PartitionProgress(
        topic="t", committed_offset=committed, position=position, end_offset=end, pending_records=pending
    )


@pytest.mark.parametrize(
    ("activity", "partitions", "behind", "uncommitted"),
    [
        (task_pb2.TASK_ACTIVITY_RUNNING, [partition(5, 7, 10), partition(0, 3, 4)], 4, 5),
        (task_pb2.TASK_ACTIVITY_RUNNING, [partition(5, 7, 10), partition(-1, 3, 4, 3)], 4, 5),
        (task_pb2.TASK_ACTIVITY_RUNNING, [partition(5, 7, 10), partition(-1, -1, 4)], None, None),
        (task_pb2.TASK_ACTIVITY_RUNNING, [partition(5, 7, -1)], None, 2),
        (task_pb2.TASK_ACTIVITY_RUNNING, [partition(7, 5, 10)], 5, 0),
        (task_pb2.TASK_ACTIVITY_IDLE, [], 0, 0),
        (task_pb2.TASK_ACTIVITY_FAILED, [partition(5, 7, 10)], 3, 2),
        (task_pb2.TASK_ACTIVITY_FAILED, [], None, None),
    ],
)
def test_lag(
    activity: task_pb2.TaskActivity.ValueType,
    partitions: list[task_pb2.PartitionProgress],
    behind: int | None,
    uncommitted: int | None,
) -> None:
    found = progress(task_pb2.TaskProgress(task=TASK, activity=activity, partitions=partitions))
    assert (found.lag.behind, found.lag.uncommitted) == (behind, uncommitted)
