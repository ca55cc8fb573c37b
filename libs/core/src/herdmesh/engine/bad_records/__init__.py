"""Errors of single records: tolerance, retries, reports and the dead letter queue.

Owns the handling of a record that a converter, a transformation or a task refuses. Knows neither loop.
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
