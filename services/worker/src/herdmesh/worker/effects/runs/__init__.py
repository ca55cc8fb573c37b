"""Runs of tasks: started, watched and ended on Spark.

Owns the processes of runs, their specs (`specs`), and the watches that detect idle, stuck and ended runs and runs over
their memory limit. Decides nothing: `state` does. Invariant: the end of a run is emitted after all its other messages.
"""

from __future__ import annotations

from herdmesh.worker.effects.runs.applications import (
    Applications,
    SparkApplication,
)
from herdmesh.worker.effects.runs.end_watch import (
    EndWatch,
)
from herdmesh.worker.effects.runs.fencing import (
    fence,
)
from herdmesh.worker.effects.runs.idle_watch import (
    IdleWatch,
)
from herdmesh.worker.effects.runs.memory_watch import (
    MemoryWatch,
)
from herdmesh.worker.effects.runs.processes import (
    LastWord,
    Processes,
    RunLine,
)
from herdmesh.worker.effects.runs.reloads import (
    Reloads,
    Values,
)
from herdmesh.worker.effects.runs.run_executor import (
    Runs,
)
from herdmesh.worker.effects.runs.specs import (
    RunSpecs,
)

__all__ = [
    "Applications",
    "EndWatch",
    "IdleWatch",
    "LastWord",
    "MemoryWatch",
    "Processes",
    "Reloads",
    "RunLine",
    "RunSpecs",
    "Runs",
    "SparkApplication",
    "Values",
    "fence",
]
