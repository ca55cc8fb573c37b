"""Pure state of a worker: `WorkerState.handle(event, now) -> [Instruction]`.

No asyncio, gRPC, Kafka, Spark, threads, clock or randomness inside; `machine` has the invariants.
"""

from herdmesh.worker.state.machine import Limits, WorkerState
from herdmesh.worker.state.task import TaskLimits

__all__ = ["Limits", "TaskLimits", "WorkerState"]
