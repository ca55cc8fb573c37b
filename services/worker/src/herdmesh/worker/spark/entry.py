"""Entry point of a Spark task: a process that waits for an order and executes that run to its last message, and then
waits for the next order if its runs allow it (ADR 0021).

Owns the sequence of steps in the executor's Python process. Runs after the daemon's fork, so its channels and Kafka
clients are created here; those of the daemon's rehearsal were closed before, with their threads. Invariant: however the
record loop ends, the worker is informed, or this process raises and Spark's job fails, which informs the worker too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import structlog
from pyspark import TaskContext

from herdmesh import engine
from herdmesh.api.worker.v1 import run_service_pb2
from herdmesh.connect.config import hide_in_output
from herdmesh.engine.runtime import classify, log_context
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.monitoring.resource import name_process
from herdmesh.rpc.process import configure_logging, log_identity, log_with
from herdmesh.session import wire as session_wire
from herdmesh.session.model import Failure
from herdmesh.worker import wire
from herdmesh.worker.log_lines import CopiedStream, copied_handlers
from herdmesh.worker.output_limit import LimitedLoggers, LimitedStream, OutputLimit
from herdmesh.worker.run import Launch, RunOrder, RunSpans, WorkerLink, channel_to, loggers
from herdmesh.worker.spark.deaths import say_begun
from herdmesh.worker.spark.process_reuse import ProcessState

#: Property of a job that has its process' launch (`Launch.to_text`).
LAUNCH_PROPERTY: Final = "herdmesh.launch"
#: Process names in `ps` and `top`: of a process that waits for its order, and of one that has it.
STANDBY_NAME: Final = "herd-standby"
RUN_NAME: Final = "herd-run"
#: Of 1000: the share of the machine's memory that the kernel adds to the process' own when it selects a victim.
OOM_SCORE: Final = 500
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def execute_in_partition(_rows: Any) -> Iterator[None]:
    """For `mapPartitions`: executes the launch in the job's properties, if any, and yields nothing."""
    context = TaskContext.get()
    launch = None if context is None else context.getLocalProperty(LAUNCH_PROPERTY)
    if launch is not None:
        order = Launch.from_text(launch)
        say_begun(order.process_id)
        execute(order)
    return iter(())


def execute(launch: Launch) -> None:
    """Wait for an order and execute it; then for further ones, as long as the runs allow it (`RunSpec.process_reuse`)
    and leave nothing behind.

    Raises RunLost when the worker refuses this process; all other errors are reported to the worker instead.
    """
    name_process("herdmesh.worker.run")
    configure_logging(os.environ.get("HERDMESH_LOG_LEVEL", "info"))
    log_identity()
    hide_in_output()
    with channel_to(launch) as channel:
        state = ProcessState()
        while _executed_one(launch, channel):
            if unfit := state.renew():
                _log.info("process_not_reused", reason=unfit)
                return


def _executed_one(launch: Launch, channel: grpc.Channel) -> bool:
    """Wait for an order and execute it. True when the process may execute another one."""
    _show_as(STANDBY_NAME)
    with WorkerLink(launch, channel) as link:
        order = link.order()
        if order is None:
            return False
        _show_as(RUN_NAME)
        _go_first()
        log_with(unit=log_context.unit_of(order.spec), run_id=order.spec.run_id)
        if trace_id := tracing.trace_id_of(order.spec.traceparent):
            log_with(trace_id=trace_id)
        spans = RunSpans(order.spec) if tracing.wanted() else None
        with spans or contextlib.nullcontext():
            with (
                loggers.applied(order.log_levels),
                _limited_output(f"the task {log_context.unit_of(order.spec)}", link.log.add),
            ):
                word = _last_word(order, link, spans)
            heard = link.last_word(word)
        if not heard:
            _log.warning("run_end_not_reported")
        return heard and order.spec.process_reuse and word.WhichOneof("message") == "finished"


@contextlib.contextmanager
def _limited_output(whose: str, copy: Callable[[str], None]) -> Generator[None]:
    """Limit the task's output and the log lines of loggers other than Herdmesh's, which go to the worker's log, by
    `OutputLimit`; `copy` gets every line that is written.
    """
    limit, streams, root = OutputLimit(whose), (sys.stdout, sys.stderr), logging.getLogger()
    of_loggers, handlers = OutputLimit(f"the loggers of {whose}"), [*root.handlers]
    sys.stdout, sys.stderr = (LimitedStream(CopiedStream(stream, copy), limit) for stream in streams)
    root.handlers[:] = [LimitedLoggers(one, of_loggers) for one in handlers]
    try:
        with copied_handlers(handlers, copy):
            yield
    finally:
        root.handlers[:] = handlers
        sys.stdout, sys.stderr = streams
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the task has closed it
            sys.stderr.write(limit.rest() + of_loggers.rest())


def _show_as(name: str) -> None:
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/comm").write_text(name, encoding="ascii")


def _go_first() -> None:
    """Have the kernel kill this process when memory runs out, and not the JVM that all runs need, or the worker."""
    with contextlib.suppress(OSError, ValueError):  # not Linux
        if int(_OOM_SCORE.read_text(encoding="ascii")) < OOM_SCORE:
            _OOM_SCORE.write_text(str(OOM_SCORE), encoding="ascii")


def _last_word(order: RunOrder, link: WorkerLink, spans: RunSpans | None) -> run_service_pb2.RunRequest:
    try:
        return wire.run_finished_to(engine.run(order.spec, link, spans))
    except Exception as error:  # noqa: BLE001 - a task is an author's code and may raise anything
        message, trace, error_class = classify(error)
        if spans is not None:
            spans.failed(message)
        _log.error("run_failed", message=message, error_class=error_class)
        failure = Failure(message, trace or traceback.format_exc(), error_class)
        return run_service_pb2.RunRequest(failed=run_service_pb2.RunFailed(failure=session_wire.failure_to(failure)))
