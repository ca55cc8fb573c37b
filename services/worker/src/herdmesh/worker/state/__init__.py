"""The pure state of a worker: `WorkerState.handle(event, now) -> [Instruction]`.

No asyncio, gRPC, Kafka, Spark, threads, clock or randomness inside; see `machine` for the invariants.
"""

from herdmesh.worker.state.held import TaskLimits
from herdmesh.worker.state.machine import Limits, WorkerState

__all__ = ["Limits", "TaskLimits", "WorkerState"]
