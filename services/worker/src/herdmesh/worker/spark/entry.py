"""What a Spark task executes: one run of one task, from hello to its last word.

Owns the order of things in the executor's Python process. Runs after the daemon's fork, so channels and Kafka clients
are made here and never before. Invariant: however the record loop ends, the worker hears it, or this process raises and
Spark's job fails, which the worker hears too.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator

import structlog

from herdmesh import engine
from herdmesh.api.worker.v1 import run_service_pb2
from herdmesh.engine.failure import classify
from herdmesh.rpc.process import configure_logging
from herdmesh.worker import wire
from herdmesh.worker.effects import loggers
from herdmesh.worker.effects.run_link import RunOrder, WorkerLink
from herdmesh.worker.state.model import Failure, UnitId

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def execute_all(orders: Iterable[RunOrder]) -> Iterator[str]:
    """For `mapPartitions`: executes each order and yields its run id."""
    for order in orders:
        execute(order)
        yield order.spec.run_id


def execute(order: RunOrder) -> None:
    """One run. Raises RunLost when the worker does not want it, and nothing else that the worker did not hear of."""
    spec = order.spec
    configure_logging(os.environ.get("HERDMESH_LOG_LEVEL", "info"))
    loggers.apply(order.log_levels)
    unit = str(UnitId(spec.connector, spec.task))
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(unit=unit, run_id=spec.run_id)
    with WorkerLink(order) as link:
        heard = link.last_word(_last_word(order, link))
        if not heard:
            _log.warning("last_word_unheard")


def _last_word(order: RunOrder, link: WorkerLink) -> run_service_pb2.RunRequest:
    try:
        return wire.run_finished_to(engine.run(order.spec, link))
    except Exception as error:  # noqa: BLE001 - a task is an author's code and may raise anything
        message, trace, error_class = classify(error)
        _log.info("run_failed", message=message, error_class=error_class)
        failure = Failure(message, trace or traceback.format_exc(), error_class)
        return run_service_pb2.RunRequest(failed=run_service_pb2.RunFailed(failure=wire.failure_to(failure)))
