"""`FileSink`'s task by the name that task sets of `ParquetSink` have in the config topic.

Owns nothing. Invariant: a task set that was committed before `FileSink` existed goes on as it is.
"""

from __future__ import annotations

from herdmesh.worker.connectors.files.task import FileSinkTask as ParquetSinkTask

__all__ = ["ParquetSinkTask"]
