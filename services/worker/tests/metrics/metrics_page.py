"""Generator of docs/reference/metrics.md: `python -m services.worker.tests.metrics.metrics_page` writes it.

Owns the page's text. `herdmesh.worker.metrics.names` defines the worker's metrics; the herder's rebalance metrics
follow `herdmesh.herder.metrics`, which a test checks; those of the stores are in `herdmesh.topicstore.metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from herdmesh.topicstore.metrics import STORE_METRICS
from herdmesh.worker.metrics.names import (
    ABSENT,
    CONNECTOR_METRICS,
    STATE_METRICS,
    TASK_METRICS,
    WORKER_METRICS,
    Definition,
)

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
ON_THE_WORKER: Sequence[tuple[str, str, Sequence[Definition[Any]]]] = (
    ("Of each task", "`connector`, `task`", TASK_METRICS),
    ("Of each connector whose instance the worker holds", "`connector`", CONNECTOR_METRICS),
    ("Of each connector of which the worker holds a task", "`connector`", STATE_METRICS),
    ("Of the worker", "none", WORKER_METRICS),
)
HERDER = (
    *("epoch", "completed-rebalances-total", "rebalancing", "rebalance-max-time-ms", "rebalance-avg-time-ms"),
    "time-since-last-rebalance-ms",
)


def _table(definitions: Sequence[Definition[Any]]) -> Iterator[str]:
    yield "| Name | Kind | What |"
    yield "|---|---|---|"
    for one in definitions:
        only = f" {one.of.value.capitalize()}s only." if one.of is not None else ""
        yield f"| `{one.name}` | {one.kind.value} | {one.description}{only} |"


def page() -> str:
    """The text of docs/reference/metrics.md."""
    lines = _HEAD_TEXT.splitlines()
    for title, labels, definitions in ON_THE_WORKER:
        lines += ["", f"### {title}", "", f"Labels: {labels}.", "", *_table(definitions)]
    lines += ["", *_HERDER_TEXT.splitlines(), ""]
    lines += [f"- `kafka_connect_connect_worker_rebalance_metrics_{name.replace('-', '_')}`" for name in HERDER]
    lines += ["", *_STORES_TEXT.splitlines(), "", "| Name | Kind | What |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind.value} | {what} |" for name, (kind, what) in STORE_METRICS.items()]
    lines += ["", *_ABSENT_TEXT.splitlines(), "", "| Group | Attribute | Why |", "|---|---|---|"]
    for (group, attribute), why in ABSENT.items():
        lines.append(f"| `{group}` | {'all' if attribute == '*' else f'`{attribute}`'} | {why} |")
    lines.append(_LEADER_ROW)
    return "\n".join([*lines, "", *_TAIL_TEXT.splitlines(), ""])


_HEAD_TEXT = """\
# Metrics, traces, log context

Written by `python -m services.worker.tests.metrics.metrics_page` from `herdmesh.worker.metrics.names`; a test
compares.

## Where they are

Every service serves `/metrics` for Prometheus on its port + 1000. With `OTEL_EXPORTER_OTLP_ENDPOINT` (or
`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`) the same series are exported by OTLP over gRPC every
`OTEL_METRIC_EXPORT_INTERVAL` ms; `OTEL_METRICS_EXPORTER=none` turns that off. Both read one registry.

Metrics and spans of a process have one resource: `service.name` (`herdmesh.configstore`, `herdmesh.statusstore`,
`herdmesh.herder`, `herdmesh.worker`, `herdmesh.standalone`, for a run `herdmesh.worker.run`), `service.version`,
`service.instance.id` (unique for each process), `host.name` and `process.pid`. `OTEL_SERVICE_NAME` and
`OTEL_RESOURCE_ATTRIBUTES` take precedence.

## The names

Connect's attribute `A` of group `G`, the MBean `kafka.connect:type=G`, is `kafka_connect_G_A` with each `-` as `_`; its
tags are the labels `connector` and `task`. A text attribute is a series of value 1 with the text as one more label,
named after the attribute's last word: `kafka_connect_connector_task_metrics_status{status="running"} 1`. Connect's
counts whose names lack `-total` are gauges here, because Prometheus would add `_total` to them. Metrics that Connect
does not have begin with `herdmesh_`.

Means, maxima and rates are of the last 30 to 60 seconds, as with Connect's defaults. A value that was not measured in
that time is absent, never 0. Percentages are Connect's: fractions of 1.

A task's counts belong to the task, not to its runs: they continue when a run ends, is lost or fails, while the task is
paused or FAILED, and when it is restarted on the same worker. When a task leaves a worker, all its series leave that
worker's page at once. If the task of the same connector returns within 10 minutes, its counts continue; later, or after
the connector was deleted and created again, or on another worker, they begin at 0, which Prometheus' `rate()` and
`increase()` handle. The total of a task is `sum by (connector, task) (increase(...))` over all workers.

## The worker's"""
_HERDER_TEXT = """\
## The herder's

Connect's `connect-worker-rebalance-metrics`, with the label `leader_name`; a rebalance lasts from the first start or
stop command until all units have answered (docs/how-to/operate-herders-and-workers.md has the herder's own metrics):"""
_STORES_TEXT = """\
## The stores'

Each replica of the config store and the status store serves its own. Labels: `topic`, the store's topic; for writes
also `outcome`."""
_ABSENT_TEXT = """\
## Connect's metrics that are not here

All other attributes of Connect's groups are above. These have no meaning here:"""
_LEADER_ROW = (
    "| `connect-worker-rebalance-metrics` | `connect-protocol`, `leader-name` | workers speak no rebalance protocol; "
    "the leader is the label `leader_name` |"
)
_TAIL_TEXT = """\
## Waits

`herdmesh_task_waiting_ms{waits_for="PostgreSQL db:5432"}` exists while a task waits for longer than 5 s; its value is
the time waited so far. The task's condition WAITING (`herd describe`) has the error and the next attempt as well. An
alert for waits that need an operator: `max by (connector, waits_for) (herdmesh_task_waiting_ms) > 600000`.

## Lag and latency

A sink task's lag is two figures, each over all its partitions. `herdmesh_task_behind_records` counts records that it
has not read yet: ends minus positions. A position moves only when `put` has returned, so records that the client
prefetched count as behind. `herdmesh_task_uncommitted_records` counts records that it has read and whose offsets are
not committed yet: positions minus committed offsets. A task that keeps up is near 0 behind however rarely it commits;
alert on that figure. `kafka_connect_sink_task_metrics_sink_record_lag_max` follows Connect's documentation (Connect
never sets it): how far the task is behind the consumer's position, the second figure of the worst partition. An idle
task is watched and has no lag of either kind; for a paused or failed task the figures keep their last values, and
`herdmesh_task_lag_age_ms` is their age.

`herdmesh_task_end_to_end_latency_ms` is a histogram: for a sink from a record's timestamp until `put` returned, for a
source from the end of `poll` until Kafka acknowledged the transaction. It is computed once per batch: half of the
batch's records count with the age of the first one, half with that of the last one. Clocks that differ show as ages of
0.

## Traces

Tracing is off, and costs nothing, unless `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) is set
and `OTEL_TRACES_EXPORTER` is not `none`. Export is over gRPC; the SDK's other variables (`OTEL_TRACES_SAMPLER`,
`OTEL_BSP_*`, `OTEL_RESOURCE_ATTRIBUTES`) apply. Spans: each RPC of every service; `run`, one run of a task; in it
`batch` and `commit`: the first after a start, then at most one a second. They have the attributes `herdmesh.connector`,
`herdmesh.task`, `herdmesh.generation`, `herdmesh.run_id`.

One trace starts at the call that creates or changes a connector (`traceparent` in its metadata: `herd --trace create
...` begins one and prints its id; with TRACEPARENT in the environment `herd` continues that one). It goes through the
herder and the config store to the starts that follow within a minute, the first run of each task and that run's first
minute. Later samples are traces of their own with a link to the run, and later runs belong to no call. A herder that
took over in between does not know the trace.

## Log context

Every line about a unit has Connect's context in the field `unit`: `[orders|worker]` for the connector,
`[orders|task-0]` for a task, `[orders|task-0|offsets]` for the commit of its offsets and the reading of a source's.
A run's Kafka clients log through the loggers `librdkafka.consumer`, `librdkafka.producer` and `librdkafka.admin`,
with the same field: `herd set-logger librdkafka DEBUG` shows what they do from the next run on, `herd set-logger
librdkafka ERROR` silences them."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
