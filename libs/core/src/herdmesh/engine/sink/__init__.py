"""The loop of a sink task: read, convert, put, commit.

Owns the assignment, positions and commits of a sink task, and the ledgers and staged files of exactly-once sinks.
`ownership` says which partitions a task reads, `positions` from which offset it starts, `sink_assignment` what happens
when partitions appear, or a topic is deleted and created again. `sink_loop` decides when a run without work ends.
Invariant: a position moves past a record only after the task took the record or the error policy skipped it.
"""

from __future__ import annotations

from herdmesh.engine.sink.ledger import (
    LedgerSinkTask,
)
from herdmesh.engine.sink.ownership import (
    owns,
)
from herdmesh.engine.sink.partitions import (
    answered_ids,
)
from herdmesh.engine.sink.positions import (
    earlier_topics_note,
    no_offset,
)
from herdmesh.engine.sink.sink_loop import (
    SinkLoop,
)
from herdmesh.engine.sink.sql_ledger import (
    NOBODY,
    SqlLedger,
)
from herdmesh.engine.sink.staging import (
    Manifest,
    StagingFolder,
    publish,
    short_topic,
)
from herdmesh.engine.sink.staging_folder import (
    Files,
    LocalFiles,
    OpenFiles,
)
from herdmesh.engine.sink.task_requests import (
    SinkTaskRequests,
)

__all__ = [
    "NOBODY",
    "Files",
    "LedgerSinkTask",
    "LocalFiles",
    "Manifest",
    "OpenFiles",
    "SinkLoop",
    "SinkTaskRequests",
    "SqlLedger",
    "StagingFolder",
    "answered_ids",
    "earlier_topics_note",
    "no_offset",
    "owns",
    "publish",
    "short_topic",
]
