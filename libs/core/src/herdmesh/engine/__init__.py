"""The record loop: read a range or poll a source, convert, transform, write, commit.

Public: `run(spec, link)`, and the types of `contract`. Plain Python: runs in a Spark executor's process, in a test, or
in a command alike. Knows Kafka; knows no Spark, no gRPC, no herder.
"""

from __future__ import annotations

from herdmesh.engine.run import run
from herdmesh.engine.runtime import (
    Command,
    EndWarmRun,
    PartitionProgress,
    ProgressReport,
    Rate,
    RunEnd,
    RunLink,
    RunOutcome,
    RunSpec,
    Share,
    Stop,
    TaskFailed,
    TaskFenced,
    TaskKind,
)

__all__ = [
    "Command",
    "EndWarmRun",
    "PartitionProgress",
    "ProgressReport",
    "Rate",
    "RunEnd",
    "RunLink",
    "RunOutcome",
    "RunSpec",
    "Share",
    "Stop",
    "TaskFailed",
    "TaskFenced",
    "TaskKind",
    "run",
]
