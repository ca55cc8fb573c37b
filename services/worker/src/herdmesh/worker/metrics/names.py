"""Names of a worker's metrics, the source of each value, and the metrics of Connect that have no meaning here.

Owns the names. Connect's metrics are named by `herdmesh.rpc.monitoring.connect_names`; their tags are the labels
`connector` and `task`. A text attribute is a series of value 1 with the text as one more label, named after the
attribute's last word. Metrics that Connect does not have are called `herdmesh_...`, by Prometheus' conventions: base
units, `_total` for counters.

`docs/reference/metrics.md` is generated from this file; a test compares them, and both with the list of Connect's
attributes.

Invariants: a value that was not measured is absent, never 0. A description can be read without the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from herdmesh.connect.spi import ConnectorKind, Wait
from herdmesh.engine.runtime import LATENCY_BOUNDS_MS
from herdmesh.rpc.monitoring.connect_names import connect_name
from herdmesh.rpc.monitoring.telemetry import Buckets, Kind
from herdmesh.session.model import RunState
from herdmesh.worker.metrics.connectors import ConnectorMeter, StateCount, WorkerMeter
from herdmesh.worker.metrics.tasks import TaskMeter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A value with additional labels."""

    value: float
    labels: Mapping[str, str]


Value = float | str | Buckets | Labelled | None
"""A text is a label of a series of value 1; None = absent."""


@dataclass(frozen=True)
class Definition(Generic[T]):
    """One metric. `group` is Connect's, empty for one of ours; `of` limits it to tasks of that kind."""

    group: str
    attribute: str
    kind: Kind
    description: str
    read: Callable[[T, float], Value]
    of: ConnectorKind | None = None

    @property
    def name(self) -> str:
        """Name on the page."""
        if not self.group:
            return f"herdmesh_{self.attribute}"
        return connect_name(self.group, self.attribute, self.kind)

    @property
    def text_label(self) -> str:
        """Name of the label that has a text."""
        return self.attribute.rpartition("-")[2]


_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
_SINK, _SOURCE = ConnectorKind.SINK, ConnectorKind.SOURCE
_Task = Definition[TaskMeter]
_TASK_GROUP: Final = "connector-task-metrics"
_SOURCE_GROUP: Final = "source-task-metrics"
_SINK_GROUP: Final = "sink-task-metrics"
_ERROR_GROUP: Final = "task-error-metrics"
_WORKER_GROUP: Final = "connect-worker-metrics"


LATENCY_BOUNDS_S: Final = tuple(bound_ms / 1000 for bound_ms in LATENCY_BOUNDS_MS)


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _latency(task: TaskMeter, _now_s: float) -> Value:
    found = task.latency
    return Buckets(found.buckets, LATENCY_BOUNDS_S, found.total_ms / 1000) if found.buckets else None


def _waiting(wait: Wait | None) -> Value:
    if wait is None or not wait.since_ms:
        return None
    waited_ms = max(0.0, time.time_ns() // 1_000_000 - wait.since_ms)
    return Labelled(waited_ms / 1000, {"waits_for": wait.waits_for})


TASK_METRICS: Final[tuple[Definition[TaskMeter], ...]] = (
    _Task(_TASK_GROUP, "status", _GAUGE, "State of the task, in the label status; the value is 1.",
          lambda t, _: t.state.value.lower()),
    _Task(_TASK_GROUP, "running-ratio", _GAUGE,
          "Share of the task's time on this worker in which it was RUNNING, 0 to 1.",
          lambda t, now: t.ratio(RunState.RUNNING, now)),
    _Task(_TASK_GROUP, "pause-ratio", _GAUGE,
          "Share of the task's time on this worker in which it was PAUSED, 0 to 1.",
          lambda t, now: t.ratio(RunState.PAUSED, now)),
    _Task(_TASK_GROUP, "offset-commit-max-time-ms", _GAUGE,
          "Longest successful offset commit of the task in the last 30 to 60 s.",
          lambda t, now: _seconds(t.commit_ms.largest(now))),
    _Task(_TASK_GROUP, "offset-commit-avg-time-ms", _GAUGE,
          "Mean time of the task's successful offset commits in the last 30 to 60 s.",
          lambda t, now: _seconds(t.commit_ms.mean(now))),
    _Task(_TASK_GROUP, "offset-commit-success-percentage", _GAUGE,
          "Share of the task's offset commits that succeeded in the last 30 to 60 s, 0 to 1.",
          lambda t, now: t.commit_ratio(now, failed=False)),
    _Task(_TASK_GROUP, "offset-commit-failure-percentage", _GAUGE,
          "Share of the task's offset commits that failed in the last 30 to 60 s, 0 to 1.",
          lambda t, now: t.commit_ratio(now, failed=True)),
    _Task(_TASK_GROUP, "batch-size-max", _GAUGE, "Records of the task's largest batch in the last 30 to 60 s.",
          lambda t, now: t.batch_records.largest(now)),
    _Task(_TASK_GROUP, "batch-size-avg", _GAUGE,
          "Mean number of records in the task's batches of the last 30 to 60 s.",
          lambda t, now: t.batch_records.mean(now)),
    _Task(_SOURCE_GROUP, "source-record-poll-rate", _GAUGE, "Records that the source task polled, per second.",
          lambda t, now: t.reads.rate(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-poll-total", _COUNTER, "Records that the source task polled.",
          lambda t, _: t.records_in, _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-write-rate", _GAUGE,
          "Records that the source task wrote to Kafka, per second.",
          lambda t, now: t.sends.rate(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-write-total", _COUNTER, "Records that the source task wrote to Kafka.",
          lambda t, _: t.records_out, _SOURCE),
    _Task(_SOURCE_GROUP, "poll-batch-max-time-ms", _GAUGE,
          "Longest call of the source task's poll that returned records, in the last 30 to 60 s.",
          lambda t, now: _seconds(t.call_ms.largest(now)), _SOURCE),
    _Task(_SOURCE_GROUP, "poll-batch-avg-time-ms", _GAUGE,
          "Mean time of the source task's polls that returned records, in the last 30 to 60 s.",
          lambda t, now: _seconds(t.call_ms.mean(now)), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count", _GAUGE,
          "Records that the source task polled and has not committed yet.",
          lambda t, _: t.active_now, _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count-max", _GAUGE,
          "Largest number of polled, uncommitted records of the source task in the last 30 to 60 s.",
          lambda t, now: t.active_records.largest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count-avg", _GAUGE,
          "Mean number of polled, uncommitted records of the source task, sampled after each batch.",
          lambda t, now: t.active_records.mean(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-min", _GAUGE,
          "Records of the source task's smallest transaction in the last 30 to 60 s.",
          lambda t, now: t.transaction_records.smallest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-max", _GAUGE,
          "Records of the source task's largest transaction in the last 30 to 60 s.",
          lambda t, now: t.transaction_records.largest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-avg", _GAUGE,
          "Mean number of records in the source task's transactions of the last 30 to 60 s.",
          lambda t, now: t.transaction_records.mean(now), _SOURCE),
    _Task(_SINK_GROUP, "sink-record-read-rate", _GAUGE,
          "Records that the sink task read per second, before transformations.",
          lambda t, now: t.reads.rate(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-read-total", _COUNTER, "Records that the sink task read, before transformations.",
          lambda t, _: t.records_in, _SINK),
    _Task(_SINK_GROUP, "sink-record-send-rate", _GAUGE, "Records that the sink task's put accepted, per second.",
          lambda t, now: t.sends.rate(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-send-total", _COUNTER, "Records that the sink task's put accepted.",
          lambda t, _: t.records_out, _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count", _GAUGE,
          "Records that the sink task read and has not committed yet.",
          lambda t, _: t.active_now, _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count-max", _GAUGE,
          "Largest number of read, uncommitted records of the sink task in the last 30 to 60 s.",
          lambda t, now: t.active_records.largest(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count-avg", _GAUGE,
          "Mean number of read, uncommitted records of the sink task, sampled after each batch.",
          lambda t, now: t.active_records.mean(now), _SINK),
    _Task(_SINK_GROUP, "partition-count", _GAUGE, "Partitions assigned to the sink task.",
          lambda t, _: len(t.progress.partitions), _SINK),
    _Task(_SINK_GROUP, "offset-commit-seq-no", _GAUGE, "Number of the sink task's last commit on this worker.",
          lambda t, _: t.commits, _SINK),
    _Task(_SINK_GROUP, "offset-commit-completion-rate", _GAUGE, "Successful commits of the sink task, per second.",
          lambda t, now: t.commit_counts.rate(now), _SINK),
    _Task(_SINK_GROUP, "offset-commit-completion-total", _COUNTER, "Successful commits of the sink task.",
          lambda t, _: t.commits, _SINK),
    _Task(_SINK_GROUP, "put-batch-max-time-ms", _GAUGE,
          "Longest call of the sink task's put in the last 30 to 60 s.",
          lambda t, now: _seconds(t.call_ms.largest(now)), _SINK),
    _Task(_SINK_GROUP, "put-batch-avg-time-ms", _GAUGE,
          "Mean time of the sink task's puts in the last 30 to 60 s.",
          lambda t, now: _seconds(t.call_ms.mean(now)), _SINK),
    _Task(_SINK_GROUP, "sink-record-lag-max", _GAUGE,
          "Read, uncommitted records of the sink task's partition that has the most of them.",
          lambda t, _: t.uncommitted_max(), _SINK),
    _Task(_ERROR_GROUP, "total-record-failures", _COUNTER,
          "Failed attempts of the task to convert, transform or deliver a record, retries included.",
          lambda t, _: t.errors.failures),
    _Task(_ERROR_GROUP, "total-record-errors", _COUNTER,
          "Operations of the task on a record that failed after all retries.", lambda t, _: t.errors.errors),
    _Task(_ERROR_GROUP, "total-records-skipped", _COUNTER,
          "Records that the task skipped because they failed (errors.tolerance=all).", lambda t, _: t.errors.skipped),
    _Task(_ERROR_GROUP, "total-retries", _COUNTER, "Retries of failed operations of the task.",
          lambda t, _: t.errors.retries),
    _Task(_ERROR_GROUP, "total-errors-logged", _COUNTER,
          "Record failures of the task that were written to the log (errors.log.enable).",
          lambda t, _: t.errors.logged),
    _Task(_ERROR_GROUP, "deadletterqueue-produce-requests", _COUNTER,
          "Records that the task sent to its dead letter queue.", lambda t, _: t.errors.dead_letters),
    _Task(_ERROR_GROUP, "deadletterqueue-produce-failures", _COUNTER,
          "Records for the task's dead letter queue that Kafka refused.",
          lambda t, _: t.errors.dead_letters_failed),
    _Task("", "task_dead_letters_cut_total", _COUNTER,
          "Dead letters of the task that were cut because the record was too large for the queue's topic.",
          lambda t, _: t.errors.dead_letters_cut),
    _Task(_ERROR_GROUP, "last-error-timestamp", _GAUGE,
          "Unix time of the task's last record failure; 0 = none.",
          lambda t, _: t.errors.last_error_ms / 1000),
    _Task("", "task_behind_records", _GAUGE,
          "Records that the sink task has not read yet: ends minus positions of all its partitions.",
          lambda t, _: t.behind(), _SINK),
    _Task("", "task_uncommitted_records", _GAUGE,
          "Records that the sink task read and has not committed yet: positions minus committed offsets of all its "
          "partitions.",
          lambda t, _: t.uncommitted(), _SINK),
    _Task("", "task_lag_age_seconds", _GAUGE,
          "Age of herdmesh_task_behind_records and herdmesh_task_uncommitted_records: 0 unless the task is paused or "
          "has failed.",
          lambda t, now: _seconds(t.lag_age_ms(now)), _SINK),
    _Task("", "task_end_to_end_latency_seconds", _HISTOGRAM,
          "Latency of records. Sinks: from a record's timestamp until put returned. Sources: from the end of poll "
          "until Kafka acknowledged. Half of a batch's records count with the age of its first, half with that of its "
          "last.",
          _latency),
    _Task("", "task_records_dropped_total", _COUNTER,
          "Records of the task that a transformation or errors.tolerance dropped.",
          lambda t, _: t.records_dropped),
    _Task("", "task_offset_commit_failures_total", _COUNTER, "Offset commits of the task that failed.",
          lambda t, _: t.commit_failures),
    _Task("", "task_waiting_seconds", _GAUGE,
          "Time for which the task has waited; the label waits_for names the cause. Absent without a wait, and for the "
          "first 5 s of one.", lambda t, _: _waiting(t.wait)),
    _Task("", "task_runs_total", _COUNTER, "Runs (processes) begun for the task on this worker.", lambda t, _: t.runs),
)  # fmt: skip
"""Metrics of each held task, with the labels connector and task."""

_Connector = Definition[ConnectorMeter]
_CONNECTOR_GROUP: Final = "connector-metrics"
CONNECTOR_METRICS: Final[tuple[Definition[ConnectorMeter], ...]] = (
    _Connector(_CONNECTOR_GROUP, "status", _GAUGE, "State of the connector, in the label status; the value is 1.",
               lambda c, _: c.state.value.lower()),
    _Connector(_CONNECTOR_GROUP, "connector-type", _GAUGE,
               "Type of the connector (source, sink or unknown), in the label type; the value is 1.",
               lambda c, _: c.type),
    _Connector(_CONNECTOR_GROUP, "connector-class", _GAUGE,
               "Class of the connector, in the label class; the value is 1.", lambda c, _: c.class_name),
    _Connector(_CONNECTOR_GROUP, "connector-version", _GAUGE,
               "Version of the connector's plugin, in the label version; the value is 1.", lambda c, _: c.version),
    _Connector("", "connector_waiting_seconds", _GAUGE,
               "Time for which the connector's instance has waited; the label waits_for names the cause. Absent "
               "without a wait, and for the first 5 s of one.",
               lambda c, _: _waiting(c.wait)),
)  # fmt: skip
"""Metrics of each connector whose instance the worker holds, with the label connector."""

_States = Definition[StateCount]


def _in_state(state: str) -> Callable[[StateCount, float], Value]:
    return lambda c, _: c.by_state.get(state, 0)


STATE_METRICS: Final[tuple[Definition[StateCount], ...]] = (
    _States(_WORKER_GROUP, "connector-total-task-count", _GAUGE, "Tasks of the connector on this worker.",
            lambda c, _: sum(c.by_state.values())),
    *(
        _States(_WORKER_GROUP, f"connector-{state}-task-count", _GAUGE,
                f"Tasks of the connector on this worker that are {state.upper()}.",
                _in_state(state))
        for state in ("running", "paused", "failed", "unassigned")
    ),
)  # fmt: skip
"""Metrics of each connector of which the worker holds a task, with the label connector."""

_Worker = Definition[WorkerMeter]


def _startups(kind: str) -> tuple[Definition[WorkerMeter], ...]:
    def of(worker: WorkerMeter) -> tuple[int, int, int]:
        found = worker.connector_startups if kind == "connector" else worker.task_startups
        return found.attempts, found.successes, found.failures

    def part(number: int) -> Callable[[WorkerMeter, float], Value]:
        return lambda w, _: of(w)[number] / of(w)[0] if of(w)[0] else None

    return (
        _Worker(_WORKER_GROUP, f"{kind}-startup-attempts-total", _COUNTER,
                f"Starts of a {kind} attempted on this worker.",
                lambda w, _: of(w)[0]),
        _Worker(_WORKER_GROUP, f"{kind}-startup-success-total", _COUNTER,
                f"Starts of a {kind} on this worker that reached RUNNING.",
                lambda w, _: of(w)[1]),
        _Worker(_WORKER_GROUP, f"{kind}-startup-success-percentage", _GAUGE,
                f"Share of the starts of a {kind} on this worker that reached RUNNING, 0 to 1.", part(1)),
        _Worker(_WORKER_GROUP, f"{kind}-startup-failure-total", _COUNTER,
                f"Starts of a {kind} on this worker that failed.",
                lambda w, _: of(w)[2]),
        _Worker(_WORKER_GROUP, f"{kind}-startup-failure-percentage", _GAUGE,
                f"Share of the starts of a {kind} on this worker that failed, 0 to 1.", part(2)),
    )  # fmt: skip


WORKER_METRICS: Final[tuple[Definition[WorkerMeter], ...]] = (
    _Worker(_WORKER_GROUP, "connector-count", _GAUGE, "Connectors whose instance is on this worker.",
            lambda w, _: w.connectors),
    _Worker(_WORKER_GROUP, "task-count", _GAUGE, "Tasks that are on this worker.", lambda w, _: w.tasks),
    *_startups("connector"),
    *_startups("task"),
    _Worker("app-info", "version", _GAUGE, "Version of the worker, in the label version; the value is 1.",
            lambda w, _: w.version),
    _Worker("app-info", "start-time-ms", _GAUGE, "Unix time of the worker's start.", lambda w, _: w.begun_ms / 1000),
    _Worker("", "worker_slots", _GAUGE, "Slots of this worker: the runs (processes of tasks) that it can have at once.",
            lambda w, _: w.slots),
    _Worker("", "worker_slots_used", _GAUGE, "Slots of this worker that a run has.", lambda w, _: w.runs),
    _Worker("", "worker_tasks_waiting_for_slot", _GAUGE,
            "Tasks on this worker that have work and wait for a free slot.", lambda w, _: w.tasks_waiting_for_slot),
)  # fmt: skip
"""Metrics of the worker."""

ABSENT: Final[Mapping[tuple[str, str], str]] = {
    (_SINK_GROUP, "offset-commit-skip-rate"): "no commit is asynchronous here, so none can come too late",
    (_SINK_GROUP, "offset-commit-skip-total"): "no commit is asynchronous here, so none can come too late",
    (_WORKER_GROUP, "connector-destroyed-task-count"): "a status of a deleted connector is deleted, never DESTROYED",
    (
        _WORKER_GROUP,
        "connector-restarting-task-count",
    ): "the herder reports RESTARTING, before a worker has the task",
    ("app-info", "commit-id"): "releases are named by their version alone",
    ("connect-coordinator-metrics", "*"): "there is no group of workers: they hold sessions with the leading herder",
    ("connect-metrics", "*"): "there is no group of workers: they hold sessions with the leading herder",
    ("connect-node-metrics", "*"): "there is no group of workers: they hold sessions with the leading herder",
}
"""Metrics of Connect that are not served, by group and attribute, with the reason."""
