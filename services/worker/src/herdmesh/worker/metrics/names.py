"""Names of a worker's metrics, the source of each value, and the metrics of Connect that have no meaning here.

Owns the names. The rule: Connect's attribute A of group G (the MBean `kafka.connect:type=G`) is
`kafka_connect_G_A`, each `-` a `_`, its tags the labels `connector` and `task`; an attribute that is a text is a series
of value 1 with the text as one more label, named as the attribute's last word. A count of Connect whose name does not
end in `-total` is served as a gauge, because Prometheus would add `_total` to a counter's name. Metrics that Connect
does not have are called `herdmesh_...`.

`docs/reference/metrics.md` is generated from this file; a test compares them, and both with the list of Connect's
attributes.

Invariant: a value that was not measured is absent, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from herdmesh.connect.spi import ConnectorKind, Wait
from herdmesh.engine.runtime import LATENCY_BOUNDS_MS
from herdmesh.rpc.telemetry import Buckets, Kind
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
        whole = f"kafka_connect_{self.group}_{self.attribute}" if self.group else f"herdmesh_{self.attribute}"
        return whole.replace("-", "_")

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


def _latency(task: TaskMeter, _now_s: float) -> Value:
    found = task.latency
    return Buckets(found.buckets, LATENCY_BOUNDS_MS, found.total_ms) if found.buckets else None


def _waiting(wait: Wait | None) -> Value:
    if wait is None or not wait.since_ms:
        return None
    return Labelled(max(0.0, time.time_ns() // 1_000_000 - wait.since_ms), {"waits_for": wait.waits_for})


TASK_METRICS: Final[tuple[Definition[TaskMeter], ...]] = (
    _Task(_TASK_GROUP, "status", _GAUGE, "State of the task.", lambda t, _: t.state.value.lower()),
    _Task(_TASK_GROUP, "running-ratio", _GAUGE, "Share of the task's time on this worker in state RUNNING.",
          lambda t, now: t.ratio(RunState.RUNNING, now)),
    _Task(_TASK_GROUP, "pause-ratio", _GAUGE, "Share of the task's time on this worker in state PAUSED.",
          lambda t, now: t.ratio(RunState.PAUSED, now)),
    _Task(_TASK_GROUP, "offset-commit-max-time-ms", _GAUGE, "The longest offset commit that succeeded.",
          lambda t, now: t.commit_ms.largest(now)),
    _Task(_TASK_GROUP, "offset-commit-avg-time-ms", _GAUGE, "Mean time of the offset commits that succeeded.",
          lambda t, now: t.commit_ms.mean(now)),
    _Task(_TASK_GROUP, "offset-commit-success-percentage", _GAUGE,
          "Share of the offset commits that succeeded, 0 to 1.",
          lambda t, now: t.commit_ratio(now, failed=False)),
    _Task(_TASK_GROUP, "offset-commit-failure-percentage", _GAUGE, "Share of the offset commits that failed, 0 to 1.",
          lambda t, now: t.commit_ratio(now, failed=True)),
    _Task(_TASK_GROUP, "batch-size-max", _GAUGE, "Records of the largest batch.",
          lambda t, now: t.batch_records.largest(now)),
    _Task(_TASK_GROUP, "batch-size-avg", _GAUGE, "Mean records of a batch.", lambda t, now: t.batch_records.mean(now)),
    _Task(_SOURCE_GROUP, "source-record-poll-rate", _GAUGE, "Records polled per second.",
          lambda t, now: t.reads.rate(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-poll-total", _COUNTER, "Records polled.", lambda t, _: t.records_in, _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-write-rate", _GAUGE, "Records written to Kafka per second.",
          lambda t, now: t.sends.rate(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-write-total", _COUNTER, "Records written to Kafka.",
          lambda t, _: t.records_out, _SOURCE),
    _Task(_SOURCE_GROUP, "poll-batch-max-time-ms", _GAUGE, "The longest poll that had records.",
          lambda t, now: t.call_ms.largest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "poll-batch-avg-time-ms", _GAUGE, "Mean time of the polls that had records.",
          lambda t, now: t.call_ms.mean(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count", _GAUGE, "Records polled and not committed yet.",
          lambda t, _: t.active_now, _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count-max", _GAUGE,
          "Largest number of records polled and not committed yet.",
          lambda t, now: t.active_records.largest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "source-record-active-count-avg", _GAUGE,
          "Mean number of records polled and not committed yet, sampled after each batch.",
          lambda t, now: t.active_records.mean(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-min", _GAUGE, "Records of the smallest transaction.",
          lambda t, now: t.transaction_records.smallest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-max", _GAUGE, "Records of the largest transaction.",
          lambda t, now: t.transaction_records.largest(now), _SOURCE),
    _Task(_SOURCE_GROUP, "transaction-size-avg", _GAUGE, "Mean records of a transaction.",
          lambda t, now: t.transaction_records.mean(now), _SOURCE),
    _Task(_SINK_GROUP, "sink-record-read-rate", _GAUGE, "Records read per second, before transformations.",
          lambda t, now: t.reads.rate(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-read-total", _COUNTER, "Records read, before transformations.",
          lambda t, _: t.records_in, _SINK),
    _Task(_SINK_GROUP, "sink-record-send-rate", _GAUGE, "Records given to the task's put per second.",
          lambda t, now: t.sends.rate(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-send-total", _COUNTER, "Records given to the task's put.",
          lambda t, _: t.records_out, _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count", _GAUGE, "Records read and not committed yet.",
          lambda t, _: t.active_now, _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count-max", _GAUGE, "Largest number of records read and not committed yet.",
          lambda t, now: t.active_records.largest(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-active-count-avg", _GAUGE,
          "Mean number of records read and not committed yet, sampled after each batch.",
          lambda t, now: t.active_records.mean(now), _SINK),
    _Task(_SINK_GROUP, "partition-count", _GAUGE, "Partitions the task owns.",
          lambda t, _: len(t.progress.partitions), _SINK),
    _Task(_SINK_GROUP, "offset-commit-seq-no", _GAUGE, "How often the task has committed on this worker.",
          lambda t, _: t.commits, _SINK),
    _Task(_SINK_GROUP, "offset-commit-completion-rate", _GAUGE, "Commits that succeeded per second.",
          lambda t, now: t.commit_counts.rate(now), _SINK),
    _Task(_SINK_GROUP, "offset-commit-completion-total", _COUNTER, "Commits that succeeded.",
          lambda t, _: t.commits, _SINK),
    _Task(_SINK_GROUP, "put-batch-max-time-ms", _GAUGE, "The longest put.",
          lambda t, now: t.call_ms.largest(now), _SINK),
    _Task(_SINK_GROUP, "put-batch-avg-time-ms", _GAUGE, "Mean of the puts.",
          lambda t, now: t.call_ms.mean(now), _SINK),
    _Task(_SINK_GROUP, "sink-record-lag-max", _GAUGE,
          "Records read and not committed yet, of the partition that has the most.",
          lambda t, _: t.uncommitted_max(), _SINK),
    _Task(_ERROR_GROUP, "total-record-failures", _GAUGE, "Attempts that failed, retries included.",
          lambda t, _: t.errors.failures),
    _Task(_ERROR_GROUP, "total-record-errors", _GAUGE,
          "Operations that failed after all retries.", lambda t, _: t.errors.errors),
    _Task(_ERROR_GROUP, "total-records-skipped", _GAUGE,
          "Records skipped because they failed.", lambda t, _: t.errors.skipped),
    _Task(_ERROR_GROUP, "total-retries", _GAUGE, "Retries.", lambda t, _: t.errors.retries),
    _Task(_ERROR_GROUP, "total-errors-logged", _GAUGE, "Failures written to the log.", lambda t, _: t.errors.logged),
    _Task(_ERROR_GROUP, "deadletterqueue-produce-requests", _GAUGE, "Records sent to the dead letter queue.",
          lambda t, _: t.errors.dead_letters),
    _Task(_ERROR_GROUP, "deadletterqueue-produce-failures", _GAUGE,
          "Records for the dead letter queue that Kafka refused.",
          lambda t, _: t.errors.dead_letters_failed),
    _Task("", "task_dead_letters_cut_total", _COUNTER,
          "Dead letters that were cut because the record was too large for the queue's topic.",
          lambda t, _: t.errors.dead_letters_cut),
    _Task(_ERROR_GROUP, "last-error-timestamp", _GAUGE, "Epoch time of the last failure in ms, 0 = none.",
          lambda t, _: t.errors.last_error_ms),
    _Task("", "task_behind_records", _GAUGE,
          "Records not read yet, of all partitions: their ends minus the task's positions.",
          lambda t, _: t.behind(), _SINK),
    _Task("", "task_uncommitted_records", _GAUGE,
          "Records read and not committed yet, of all partitions: the task's positions minus the committed offsets.",
          lambda t, _: t.uncommitted(), _SINK),
    _Task("", "task_lag_age_ms", _GAUGE,
          "Age of behind_records and uncommitted_records: 0 unless the task is paused or has failed.",
          lambda t, now: t.lag_age_ms(now), _SINK),
    _Task("", "task_end_to_end_latency_ms", _HISTOGRAM,
          "Sinks: from a record's timestamp until put returned. Sources: from the end of poll until Kafka "
          "acknowledged. Half of a batch's records count with the age of its first, half with that of its last.",
          _latency),
    _Task("", "task_records_dropped_total", _COUNTER, "Records that a transformation or error tolerance dropped.",
          lambda t, _: t.records_dropped),
    _Task("", "task_offset_commit_failures_total", _COUNTER, "Offset commits that failed.",
          lambda t, _: t.commit_failures),
    _Task("", "task_waiting_ms", _GAUGE,
          "How long the task has waited; the label `waits_for` names the cause. Absent without a wait, and for the "
          "first 5 s of one.", lambda t, _: _waiting(t.wait)),
    _Task("", "task_runs_total", _COUNTER, "Runs begun for the task on this worker.", lambda t, _: t.runs),
)  # fmt: skip
"""Metrics of each held task, with the labels connector and task."""

_Connector = Definition[ConnectorMeter]
_CONNECTOR_GROUP: Final = "connector-metrics"
CONNECTOR_METRICS: Final[tuple[Definition[ConnectorMeter], ...]] = (
    _Connector(_CONNECTOR_GROUP, "status", _GAUGE, "State of the connector.", lambda c, _: c.state.value.lower()),
    _Connector(_CONNECTOR_GROUP, "connector-type", _GAUGE, "source, sink or unknown.", lambda c, _: c.type),
    _Connector(_CONNECTOR_GROUP, "connector-class", _GAUGE, "Class of the connector.", lambda c, _: c.class_name),
    _Connector(_CONNECTOR_GROUP, "connector-version", _GAUGE, "Version of its plugin.", lambda c, _: c.version),
    _Connector("", "connector_waiting_ms", _GAUGE, "Like `herdmesh_task_waiting_ms`, for the connector's instance.",
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
        _Worker(_WORKER_GROUP, f"{kind}-startup-success-total", _COUNTER, f"Starts of a {kind} that reached RUNNING.",
                lambda w, _: of(w)[1]),
        _Worker(_WORKER_GROUP, f"{kind}-startup-success-percentage", _GAUGE,
                "Share of starts that succeeded, 0 to 1.", part(1)),
        _Worker(_WORKER_GROUP, f"{kind}-startup-failure-total", _COUNTER, f"Starts of a {kind} that failed.",
                lambda w, _: of(w)[2]),
        _Worker(_WORKER_GROUP, f"{kind}-startup-failure-percentage", _GAUGE,
                "Share of starts that failed, 0 to 1.", part(2)),
    )  # fmt: skip


WORKER_METRICS: Final[tuple[Definition[WorkerMeter], ...]] = (
    _Worker(_WORKER_GROUP, "connector-count", _GAUGE, "Connectors the worker holds.", lambda w, _: w.connectors),
    _Worker(_WORKER_GROUP, "task-count", _GAUGE, "Tasks the worker holds.", lambda w, _: w.tasks),
    *_startups("connector"),
    *_startups("task"),
    _Worker("app-info", "version", _GAUGE, "Version of the worker.", lambda w, _: w.version),
    _Worker("app-info", "start-time-ms", _GAUGE, "Epoch time of the worker's start.", lambda w, _: w.begun_ms),
    _Worker("", "worker_slots", _GAUGE, "Runs the worker can have at once.", lambda w, _: w.slots),
    _Worker("", "worker_runs", _GAUGE, "Runs the worker has.", lambda w, _: w.runs),
)
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
