"""The worker's side within the process of a run.

Owns the stream to the worker, the watchdog that reports a stuck loop, spans and log levels. Imports no other effects,
because each run's process loads these modules. Invariant: messages of a run reach the worker in the order in which they
were sent.
"""

from __future__ import annotations

from herdmesh.worker.run.loggers import (
    Loggers,
)
from herdmesh.worker.run.run_link import (
    Launch,
    RunOrder,
    WorkerLink,
    channel_to,
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
    "channel_to",
]
