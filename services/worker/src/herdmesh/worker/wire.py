"""Translation of tasks and runs to and from the wire's messages.

Owns the conversions that only a worker needs; `herdmesh.session.wire` has those that it shares with its herder. Decides
nothing.

Invariant: no text that leaves the worker shows a secret that it resolved; configs have references instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import run_service_pb2, task_pb2
from herdmesh.connect.config import redacted
from herdmesh.engine.runtime import ProgressReport, RunEnd, contract
from herdmesh.rpc import commit_scopes
from herdmesh.rpc.enums import WireEnum
from herdmesh.session import wire as session_wire
from herdmesh.session.model import Failure, UnitId
from herdmesh.worker.measures_wire import measures_from, measures_to
from herdmesh.worker.state import events
from herdmesh.worker.state.model import Phase
from herdmesh.worker.state.task import Task

RUN_ENDS = WireEnum(run_service_pb2.RunEnd, RunEnd)
_ACTIVITIES = {
    Phase.NEW: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.QUEUED: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.STARTING: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.WAITING: task_pb2.TASK_ACTIVITY_STARTING,
    Phase.RUNNING: task_pb2.TASK_ACTIVITY_RUNNING,
    Phase.STOPPING: task_pb2.TASK_ACTIVITY_STOPPING,
    Phase.IDLE: task_pb2.TASK_ACTIVITY_IDLE,
    Phase.PAUSED: task_pb2.TASK_ACTIVITY_PAUSED,
    Phase.FAILED: task_pb2.TASK_ACTIVITY_FAILED,
}


def trace_to(failure: Failure | None) -> str | None:
    """Text of a failure for a status: its trace, or its message where there is none."""
    return None if failure is None else redacted(failure.trace or failure.message)


def task_id_to(unit: UnitId) -> connector_pb2.TaskId:
    """The message of a task."""
    return connector_pb2.TaskId(connector=unit.connector, task=unit.task or 0)


def task_progress_to(task: Task) -> task_pb2.TaskProgress:
    """Progress of a held task, with its activity."""
    message = progress_to(replace(task.progress, commit_scope=task.commit_scope))
    message.task.CopyFrom(task_id_to(task.unit))
    message.activity = _ACTIVITIES[task.phase]
    message.run_count = task.run_count
    message.pid = task.run.pid if task.run is not None else 0
    if task.run is None:
        message.records_per_second = 0.0
        message.ClearField("records_rate")
        message.ClearField("bytes_rate")
    return message


def held_tasks(tasks: Iterable[Task]) -> list[Task]:
    """The tasks in the order that ListTasks promises."""
    return sorted(tasks, key=lambda task: (task.unit.connector, task.unit.task or 0))


def progress_to(progress: ProgressReport) -> task_pb2.TaskProgress:
    """Counts of a run or a task; without the task's name and activity."""
    message = task_pb2.TaskProgress(
        records_in=progress.records_in,
        records_out=progress.records_out,
        records_dropped=progress.records_dropped,
        records_per_second=progress.records_per_second,
        commit_scope=commit_scopes.to_proto(progress.commit_scope),
        partitions=[
            task_pb2.PartitionProgress(
                topic=one.topic,
                partition=one.partition,
                committed_offset=one.committed_offset,
                position=one.position,
                end_offset=one.end_offset,
                pending_records=one.pending_records,
            )
            for one in progress.partitions
        ],
        produced=[task_pb2.TopicProgress(topic=topic, records_out=count) for topic, count in progress.produced],
        config_offset=progress.config_offset,
        records_rate=_rate_use_to(progress.records_rate),
        bytes_rate=_rate_use_to(progress.bytes_rate),
        errors=session_wire.errors_to(progress.errors),
        measures=measures_to(progress.measures),
        warm=progress.warm,
    )
    if progress.commit_time_ms is not None:
        message.commit_time.FromMilliseconds(progress.commit_time_ms)
    return message


def progress_from(message: task_pb2.TaskProgress) -> ProgressReport:
    """The inverse of `progress_to`."""
    return ProgressReport(
        records_in=message.records_in,
        records_out=message.records_out,
        records_dropped=message.records_dropped,
        partitions=tuple(
            contract.PartitionProgress(
                one.topic, one.partition, one.committed_offset, one.position, one.end_offset, one.pending_records
            )
            for one in message.partitions
        ),
        records_per_second=message.records_per_second,
        commit_time_ms=message.commit_time.ToMilliseconds() if message.HasField("commit_time") else None,
        commit_scope=commit_scopes.from_proto(message.commit_scope) if message.HasField("commit_scope") else None,
        produced=tuple((one.topic, one.records_out) for one in message.produced),
        config_offset=message.config_offset if message.HasField("config_offset") else None,
        records_rate=_rate_use_from(message.records_rate) if message.HasField("records_rate") else None,
        bytes_rate=_rate_use_from(message.bytes_rate) if message.HasField("bytes_rate") else None,
        errors=session_wire.errors_from(message.errors),
        measures=measures_from(message.measures),
        warm=message.warm,
    )


def _rate_use_to(use: contract.RateUse | None) -> task_pb2.RateUse | None:
    if use is None:
        return None
    return task_pb2.RateUse(
        limit_per_second=use.limit_per_second, used_per_second=use.used_per_second, wants_more=use.wants_more
    )


def _rate_use_from(message: task_pb2.RateUse) -> contract.RateUse:
    return contract.RateUse(message.limit_per_second, message.used_per_second, message.wants_more)


def run_log_to(lines: Iterable[tuple[int, str]], omitted: int) -> run_service_pb2.RunRequest:
    """Log lines of a run, as (time in ms, text)."""
    log = run_service_pb2.RunLog(omitted=omitted)
    for time_ms, text in lines:
        log.lines.add(text=text).time.FromMilliseconds(time_ms)
    return run_service_pb2.RunRequest(log=log)


def run_event_from(run_id: str, request: run_service_pb2.RunRequest) -> events.Event | None:
    """The event of a run's message after hello; None for one that is newer than this worker knows."""
    match request.WhichOneof("message"):
        case "progress":
            return events.RunProgress(run_id, progress_from(request.progress))
        case "pulse":
            moved_ms = request.pulse.moved_time.ToMilliseconds()
            wait = session_wire.wait_from(request.pulse.wait) if request.pulse.HasField("wait") else None
            return events.RunLiveness(run_id, request.pulse.silent_ms, moved_ms, wait)
        case "failed":
            return events.RunFailed(run_id, session_wire.failure_from(request.failed.failure))
        case "finished":
            finished = request.finished
            # YIELDED is the safe default: the task runs again, and that run reports if there is nothing to do.
            reason = RUN_ENDS.enum_from(finished.reason, RunEnd.YIELDED)
            return events.RunFinished(run_id, reason, progress_from(finished.progress), finished.wake_after_ms)
        case _:
            return None


def run_finished_to(outcome: contract.RunOutcome) -> run_service_pb2.RunRequest:
    """Last word of a run without an error."""
    finished = run_service_pb2.RunFinished(
        reason=RUN_ENDS.to_wire(outcome.reason),
        progress=progress_to(outcome.progress),
        wake_after_ms=outcome.wake_after_ms,
    )
    return run_service_pb2.RunRequest(finished=finished)
