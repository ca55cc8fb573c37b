"""The worker's side within the process of a run.

Owns the stream to the worker, the watch that tells a stuck loop, spans and log levels. Loads no other effects: each
run's process has these modules. Invariant: what a run says reaches the worker in the order in which it was said.
"""

from __future__ import annotations

from herdmesh.worker.run.loggers import (
    Loggers,
)
from herdmesh.worker.run.run_link import (
    Launch,
    RunOrder,
    WorkerLink,
)
from herdmesh.worker.run.run_spans import (
    RunSpans,
)

__all__ = [
    "Launch",
    "Loggers",
    "RunOrder",
    "RunSpans",
    "WorkerLink",
]
