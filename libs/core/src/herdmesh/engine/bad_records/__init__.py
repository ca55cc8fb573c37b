"""Errors of single records: tolerance, retries, reports and the dead letter queue.

Owns what happens to a record that a converter, a transformation or a task refuses. Knows neither loop.
Invariant: a record that is left out was reported first, where the config names a place for reports.
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
