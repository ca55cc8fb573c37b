"""Errors of single records: tolerance, retries, reports and the dead letter queue.

Owns the handling of a record that a converter, a transformation or a task refuses: retries with backoff and
`errors.tolerance` (`tolerance`), the log line and the `__connect.errors.*` headers (`error_reports`), the dead letter
queue (`dead_letters`), records that a task reports itself (`errant_records`), all of it for one task
(`record_errors`). Knows neither loop.
Invariant: a skipped record was reported before, if the config names a place for reports.
"""

from __future__ import annotations

from herdmesh.engine.bad_records.record_errors import (
    SinkErrors,
    SourceErrors,
)
from herdmesh.engine.bad_records.tolerance import (
    KAFKA_PRODUCE,
    RetryStopped,
)

__all__ = [
    "KAFKA_PRODUCE",
    "RetryStopped",
    "SinkErrors",
    "SourceErrors",
]
