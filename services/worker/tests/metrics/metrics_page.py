"""Generator of docs/reference/metrics.md: `python -m services.worker.tests.metrics.metrics_page` writes it.

Owns the page's text. The metrics are defined in `herdmesh.worker.metrics.names`, `herdmesh.herder.metrics`,
`herdmesh.topicstore.metrics` and `herdmesh.rpc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from herdmesh.herder.metrics import MESH_METRICS, REBALANCE_GROUP, REBALANCES, WORK_METRICS
from herdmesh.rpc._interceptor import DURATION  # pyright: ignore[reportPrivateUsage] - the one metric of every server
from herdmesh.rpc.monitoring.connect_names import connect_name
from herdmesh.rpc.monitoring.telemetry import PRODUCERS, Kind
from herdmesh.topicstore.metrics import STORE_METRICS
from herdmesh.worker.metrics.names import (
    ABSENT,
    CONNECTOR_METRICS,
    STATE_METRICS,
    TASK_METRICS,
    WORKER_METRICS,
    Definition,
)

_ROOT = Path(__file__).parents[4]
PAGE = _ROOT / "docs" / "reference" / "metrics.md"
ALERTS = _ROOT / "deploy" / "prometheus" / "herdmesh-alerts.yml"
DASHBOARD = _ROOT / "deploy" / "grafana" / "herdmesh.json"
ON_THE_WORKER: Sequence[tuple[str, str, Sequence[Definition[Any]]]] = (
    ("Of each task", "`connector`, `task`", TASK_METRICS),
    ("Of each connector whose instance the worker holds", "`connector`", CONNECTOR_METRICS),
    ("Of each connector of which the worker holds a task", "`connector`", STATE_METRICS),
    ("Of the worker", "none", WORKER_METRICS),
)
#: Labels of a store's metrics besides `topic`.
_STORE_LABELS = {
    "herdmesh_store_writes_total": "outcome",
    "herdmesh_store_role": "role",
    "herdmesh_store_condition": "condition",
    "herdmesh_store_revision_offset": "partition",
}


def _table(definitions: Sequence[Definition[Any]]) -> Iterator[str]:
    yield "| Name | Kind | What |"
    yield "|---|---|---|"
    for one in definitions:
        only = f" {one.of.value.capitalize()}s only." if one.of is not None else ""
        yield f"| `{one.name}` | {one.kind.value} | {one.description}{only} |"


def _rows(rows: Iterable[tuple[str, Kind, str, str]]) -> Iterator[str]:
    yield "| Name | Kind | Labels | What |"
    yield "|---|---|---|---|"
    for name, kind, labels, what in rows:
        yield f"| `{name}` | {kind.value} | {labels} | {what} |"


def herder_rows() -> Iterator[tuple[str, Kind, str, str]]:
    """Name, kind, labels and description of each metric of the herder."""
    for name, (labels, what) in MESH_METRICS.items():
        yield name, Kind.GAUGE, labels, what
    for name, (kind, labels, what) in WORK_METRICS.items():
        yield name, kind, labels, what
    for attribute, (kind, what) in REBALANCES.items():
        yield connect_name(REBALANCE_GROUP, attribute, kind), kind, "leader_name", what


def store_rows() -> Iterator[tuple[str, Kind, str, str]]:
    """Name, kind, labels and description of each metric of a store."""
    for name, (kind, what) in STORE_METRICS.items():
        yield name, kind, ", ".join(filter(None, ("topic", _STORE_LABELS.get(name)))), what


def labels_by_name() -> dict[str, set[str]]:
    """The labels of each documented metric."""
    found = {name: set(re.findall(r"\w+", labels)) for name, _, labels, _ in (*herder_rows(), *store_rows())}
    for _, labels, definitions in ON_THE_WORKER:
        own = set[str]() if labels == "none" else set(re.findall(r"\w+", labels))
        for one in definitions:
            found[one.name] = {*own, *re.findall(r"\blabel (\w+)", one.description)}
    return {**found, DURATION[0]: {"method", "outcome"}, PRODUCERS[0]: set()}


def alert_rules() -> list[dict[str, Any]]:
    """The rules of deploy/prometheus/herdmesh-alerts.yml."""
    groups: Any = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def jmx_rows() -> Iterator[tuple[str, str, str, str]]:
    """Group, attribute, our name and a note on each of Connect's metrics that is served."""
    for _, _, definitions in ON_THE_WORKER:
        for one in definitions:
            if one.group:
                yield one.group, one.attribute, one.name, _change(one.attribute, one.name)
    for attribute, (kind, _) in REBALANCES.items():
        name = connect_name(REBALANCE_GROUP, attribute, kind)
        yield REBALANCE_GROUP, attribute, name, _change(attribute, name)


def _change(attribute: str, name: str) -> str:
    """The difference of the value from Connect's."""
    if attribute.endswith(("-ms", "timestamp")):
        return "seconds, not ms"
    return "" if name.endswith(attribute.replace("-", "_")) else "other name, same value"


def page() -> str:
    """The text of docs/reference/metrics.md."""
    lines = _HEAD_TEXT.splitlines()
    for title, labels, definitions in ON_THE_WORKER:
        lines += ["", f"### {title}", "", f"Labels: {labels}.", "", *_table(definitions)]
    lines += ["", *_HERDER_TEXT.splitlines(), "", *_rows(herder_rows())]
    lines += ["", *_STORES_TEXT.splitlines(), "", *_rows(store_rows())]
    lines += [
        "",
        *_SERVERS_TEXT.splitlines(),
        "",
        *_rows(
            [
                (DURATION[0], Kind.HISTOGRAM, "method, outcome", DURATION[2]),
                (PRODUCERS[0], Kind.GAUGE, "", PRODUCERS[1]),
            ]
        ),
    ]
    lines += ["", *_JMX_TEXT.splitlines(), "", "| MBean `type` | Attribute | Here | Difference |", "|---|---|---|---|"]
    lines += [f"| `{group}` | `{attribute}` | `{name}` | {note} |" for group, attribute, name, note in jmx_rows()]
    lines += ["", *_ABSENT_TEXT.splitlines(), "", "| MBean `type` | Attribute | Why |", "|---|---|---|"]
    for (group, attribute), why in ABSENT.items():
        lines.append(f"| `{group}` | {'all' if attribute == '*' else f'`{attribute}`'} | {why} |")
    lines.append(_LEADER_ROW)
    lines += ["", *_ALERTS_TEXT.splitlines(), "", "| Alert | After | Severity | Says |", "|---|---|---|---|"]
    for rule in alert_rules():
        says = re.sub(r"\{\{ \$(?:labels\.)?(\w+) \}\}", r"*\1*", rule["annotations"]["summary"])
        lines.append(f"| `{rule['alert']}` | {rule.get('for', 'at once')} | {rule['labels']['severity']} | {says} |")
    lines += ["", *_DASHBOARD_TEXT.splitlines()]
    return "\n".join([*lines, "", *_TAIL_TEXT.splitlines(), ""])


_HEAD_TEXT = """\
# Metrics, health, traces, logs

Written by `python -m services.worker.tests.metrics.metrics_page` from `herdmesh.worker.metrics.names`; a test
compares.

## Where they are

Every service serves `/metrics` for Prometheus on its port + 1000, beside `/healthz` and `/readyz`
([health](#health)). With `OTEL_EXPORTER_OTLP_ENDPOINT` (or
`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`) the same series are exported by OTLP over gRPC every
`OTEL_METRIC_EXPORT_INTERVAL` ms; `OTEL_METRICS_EXPORTER=none` turns that off. Both read one registry.

Metrics and spans of a process have one resource: `service.name` (`herdmesh.configstore`, `herdmesh.statusstore`,
`herdmesh.herder`, `herdmesh.worker`, `herdmesh.standalone`, for a run `herdmesh.worker.run`), `service.version`,
`service.instance.id` (unique for each process), `host.name` and `process.pid`. `OTEL_SERVICE_NAME` and
`OTEL_RESOURCE_ATTRIBUTES` take precedence.

## The names

Names follow Prometheus' conventions: base units (seconds) at the end of a name, `_total` for counters alone, no
`_count` for what is not a histogram. Metrics that Connect does not have begin with `herdmesh_`. Connect's attribute `A`
of the MBean `kafka.connect:type=G` is `kafka_connect_G_A` with each `-` as `_`, and its tags are the labels `connector`
and `task`; where Connect's name breaks a convention, ours differs ([the table](#from-connects-jmx-names) has all). A
text attribute is a series of value 1 with the text as one more label, named after the attribute's last word:
`kafka_connect_connector_task_metrics_status{status="running"} 1`.

Means, maxima and rates are of the last 30 to 60 seconds, as with Connect's defaults. A value that was not measured in
that time is absent, never 0. Connect's percentages are ratios here, as their values always were: fractions of 1.

A task's counts belong to the task, not to its runs: they continue when a run ends, is lost or fails, while the task is
paused or FAILED, and when it is restarted on the same worker. When a task leaves a worker, all its series leave that
worker's page at once. If the task of the same connector returns within 10 minutes, its counts continue; later, or after
the connector was deleted and created again, or on another worker, they begin at 0, which Prometheus' `rate()` and
`increase()` handle. The total of a task is `sum by (connector, task) (increase(...))` over all workers.

## The worker's"""
_HERDER_TEXT = """\
## The herder's

The counts of the mesh are on the page of the leading herder alone; a standby has `herdmesh_herder_leader` 0. They are
counted when the page is read, so a page is never older than its request. A rebalance, in Connect's
`connect-worker-rebalance-metrics`, lasts from the first start or stop command until all units have replied; the label
`leader_name` has the leader's address."""
_STORES_TEXT = """\
## The stores'

Each replica of the config store and the status store serves its own. The label `topic` is the store's topic."""
_SERVERS_TEXT = """\
## Every service's

Beside these, every page has the process' own (`process_...`, `python_...`) and `target_info`, whose labels are the
resource's attributes."""
_JMX_TEXT = """\
## From Connect's JMX names

For dashboards and alerts that were made for Kafka Connect: the JMX exporter's default name of an attribute is
`kafka_connect_G_A`, all in lower case with `_`."""
_ABSENT_TEXT = """\
## Connect's metrics that are not here

All other attributes of Connect's groups are in the table above. These have no meaning here:"""
_ALERTS_TEXT = """\
## Alerts

`deploy/prometheus/herdmesh-alerts.yml` has rules for Prometheus; `herdmesh-alerts.test.yml` beside it tests them
(`promtool test rules herdmesh-alerts.test.yml`). Words in italics are labels of the series, or its value."""
_DASHBOARD_TEXT = """\
## Dashboard

`deploy/grafana/herdmesh.json` is a dashboard for Grafana 10 or newer: connectors and tasks by wanted and actual state,
rates, lag, latency, errors and dead letters, workers with their slots, herders, stores. To import it, choose
*Dashboards*, *New*, *Import*, upload the file, then choose your Prometheus at the top of the dashboard. Or have Grafana
read it from a folder:

```yaml
# /etc/grafana/provisioning/dashboards/herdmesh.yaml
apiVersion: 1
providers:
  - name: herdmesh
    type: file
    options: {path: /var/lib/grafana/dashboards}   # the folder with herdmesh.json
```

Prometheus needs one scrape job for all services, at the port of each + 1000:

```yaml
scrape_configs:
  - job_name: herdmesh
    static_configs:
      - targets: [kc1:8201, kc1:8202, kc1:8203, kc1:8204, kc2:8204]
```

The variable *Connector* narrows the panels of records and errors. With several meshes in one Prometheus, give their
targets a label `mesh` and choose it under *Labels*: Grafana adds it to every expression."""
_LEADER_ROW = (
    "| `connect-worker-rebalance-metrics` | `connect-protocol`, `leader-name` | workers speak no rebalance protocol; "
    "the leader is the label `leader_name` |"
)
_TAIL_TEXT = """\
## Waits

`herdmesh_task_waiting_seconds{waits_for="PostgreSQL db:5432"}` exists while a task waits for longer than 5 s; its value
is the time waited so far. The task's condition WAITING (`herd describe`) has the error and the next attempt as well. An
alert for waits that need an operator: `max by (connector, waits_for) (herdmesh_task_waiting_seconds) > 600`.

## Lag and latency

A sink task's lag is two figures, each over all its partitions. `herdmesh_task_behind_records` counts records that it
has not read yet: ends minus positions. A position moves only when `put` has returned, so records that the client
prefetched count as behind. `herdmesh_task_uncommitted_records` counts records that it has read and whose offsets are
not committed yet: positions minus committed offsets. A task that keeps up is near 0 behind however rarely it commits;
alert on that figure. `kafka_connect_sink_task_metrics_sink_record_lag_max` follows Connect's documentation (Connect
never sets it): how far the task is behind the consumer's position, the second figure of the worst partition. An idle
task is watched and has no lag of either kind; for a paused or failed task the figures keep their last values, and
`herdmesh_task_lag_age_seconds` is their age. After a run that failed, the records that it read and did not commit are
behind again, because the next run reads them. The column LAG of `herd` is the first figure; while the task waits for
its target it is the sum of both, because a queue in the task has not delivered them.

`herdmesh_task_end_to_end_latency_seconds` is a histogram: for a sink from a record's timestamp until `put` returned,
for a source from the end of `poll` until Kafka acknowledged the transaction. It is computed once per batch: half of the
batch's records count with the age of the first one, half with that of the last one. Clocks that differ show as ages of
0.

## Health

`/healthz` and `/readyz` are on the port of `/metrics`; any other path is 404. Both answer JSON.

| Page | 200 | 503 |
|---|---|---|
| `/healthz` | the process' event loop responds | it did not within 2 s: restart the process |
| `/readyz` of a store | a service of the store serves, at least reads | it replays its topic, or stops |
| `/readyz` of a herder | it leads, or it is a standby that knows the leader | no herder leads, as far as it knows |
| `/readyz` of a worker | it has a session with the leading herder, and gets tasks | it has none; tasks that run go on |

`reason` in the answer of `/readyz` is one line for an operator, for instance a store's role and condition; `services`
has the gRPC health of each service. Use `/healthz` for liveness probes and `/readyz` for readiness probes. gRPC health
(`grpc.health.v1.Health`) is served on the service's own port.

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

## Logs

A service writes one JSON object a line to standard output, or text for people with `HERDMESH_LOG_FORMAT=text`
(`--log-format text`); `HERDMESH_LOG_LEVEL` is `debug`, `info`, `warning` or `error`. `herd run` logs to standard error,
because its output is the command's. The lines of a worker include those of its runs and of Spark's JVM (the JVM's are
text).

| Field | Of |
|---|---|
| `timestamp`, `level`, `logger`, `event` | every line; docs/reference/log-events.md explains warnings and errors |
| `service`, `instance` | every line: `service.name` and `service.instance.id` of the process' metrics and spans |
| `unit`, `connector`, `task` | lines about a connector or a task |
| `run_id` | lines of a run |
| `trace_id` | lines of a traced call, of the starts that follow from it, and of their runs |
| `exception` | lines with a stack trace |

Every line about a unit has Connect's context in the field `unit`: `[orders|worker]` for the connector,
`[orders|task-0]` for a task, `[orders|task-0|offsets]` for the commit of its offsets and the reading of a source's.
A run's Kafka clients log through the loggers `librdkafka.consumer`, `librdkafka.producer` and `librdkafka.admin`,
with the same field: `herd set-logger librdkafka DEBUG` shows what they do from the next run on, `herd set-logger
librdkafka ERROR` silences them."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
