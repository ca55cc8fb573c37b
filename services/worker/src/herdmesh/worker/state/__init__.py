"""Pure state of a worker: `WorkerState.handle(event, now) -> [Instruction]`.

No asyncio, gRPC, Kafka, Spark, threads, clock or randomness inside; `machine` has the invariants.
"""

from herdmesh.worker.state.machine import WorkerLimits, WorkerState
from herdmesh.worker.state.task import TaskLimits

__all__ = ["TaskLimits", "WorkerLimits", "WorkerState"]
