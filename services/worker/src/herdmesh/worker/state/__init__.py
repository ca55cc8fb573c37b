"""Pure state of a worker: `WorkerState.handle(event, now) -> [Instruction]`.

`machine` dispatches. `tasks` and `connectors` own the units that the worker holds, and ignore an assignment with an
older generation; `run_scheduler` and `slots` decide which tasks have a run, `watchdog` which run is stuck;
`reconfigurations` limits how often a connector requests new task configs, `reloads` how often its references are
looked up again.

No asyncio, gRPC, Kafka, Spark, threads, clock or randomness inside; `machine` has the invariants.
"""

from herdmesh.worker.state.machine import WorkerLimits, WorkerState
from herdmesh.worker.state.task import TaskLimits

__all__ = ["TaskLimits", "WorkerLimits", "WorkerState"]
