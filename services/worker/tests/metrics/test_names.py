"""Every metric that Connect documents is on the page, or listed with the reason why not; docs/reference/metrics.md
agrees.
"""

from __future__ import annotations

import pytest

from herdmesh.herder.metrics import REBALANCE_GROUP, REBALANCES
from herdmesh.rpc._interceptor import DURATION  # pyright: ignore[reportPrivateUsage] - the one metric of every server
from herdmesh.rpc.monitoring.connect_names import connect_name
from herdmesh.rpc.monitoring.telemetry import PRODUCERS, Kind
from herdmesh.topicstore.metrics import STORE_METRICS
from herdmesh.worker.metrics.names import ABSENT
from services.worker.tests.metrics.metrics_page import ON_THE_WORKER, PAGE, herder_rows, jmx_rows, page
from tests.support.promlint import PageMetric, metrics_of, problems

#: docs/reference/connect/data-model.md, sections 6.2 to 6.9: Connect's attributes by group.
CONNECTS = {
    "connector-metrics": "status connector-type connector-class connector-version",
    "connector-task-metrics": "status running-ratio pause-ratio offset-commit-max-time-ms offset-commit-avg-time-ms "
    "offset-commit-success-percentage offset-commit-failure-percentage batch-size-max batch-size-avg",
    "source-task-metrics": "source-record-poll-rate source-record-poll-total source-record-write-rate "
    "source-record-write-total poll-batch-max-time-ms poll-batch-avg-time-ms source-record-active-count "
    "source-record-active-count-max source-record-active-count-avg transaction-size-min transaction-size-max "
    "transaction-size-avg",
    "sink-task-metrics": "sink-record-read-rate sink-record-read-total sink-record-send-rate sink-record-send-total "
    "sink-record-active-count sink-record-active-count-max sink-record-active-count-avg partition-count "
    "offset-commit-seq-no offset-commit-completion-rate offset-commit-completion-total offset-commit-skip-rate "
    "offset-commit-skip-total put-batch-max-time-ms put-batch-avg-time-ms sink-record-lag-max",
    "connect-worker-metrics": "connector-count task-count connector-startup-attempts-total "
    "connector-startup-success-total connector-startup-success-percentage connector-startup-failure-total "
    "connector-startup-failure-percentage task-startup-attempts-total task-startup-success-total "
    "task-startup-success-percentage task-startup-failure-total task-startup-failure-percentage "
    "connector-total-task-count connector-running-task-count connector-paused-task-count connector-failed-task-count "
    "connector-unassigned-task-count connector-destroyed-task-count connector-restarting-task-count",
    "task-error-metrics": "total-record-failures total-record-errors total-records-skipped total-retries "
    "total-errors-logged deadletterqueue-produce-requests deadletterqueue-produce-failures last-error-timestamp",
    "app-info": "version commit-id start-time-ms",
}
REBALANCE_ATTRIBUTES = (
    "connect-protocol leader-name epoch completed-rebalances-total rebalancing rebalance-max-time-ms "
    "rebalance-avg-time-ms time-since-last-rebalance-ms"
)


def test_every_attribute_of_connect_is_served_or_has_a_reason() -> None:
    wanted = {(group, name) for group, names in CONNECTS.items() for name in names.split()}
    served = {(one.group, one.attribute) for _, _, found in ON_THE_WORKER for one in found if one.group}
    absent = {key for key in ABSENT if key[1] != "*"}
    assert served | absent == wanted
    assert not served & absent
    assert all(why for why in ABSENT.values())


def test_the_table_of_jmx_names_has_every_attribute_that_is_served() -> None:
    wanted = {(group, name) for group, names in CONNECTS.items() for name in names.split()}
    wanted |= {(REBALANCE_GROUP, name) for name in REBALANCE_ATTRIBUTES.split()}
    absent = {key for key in ABSENT if key[1] != "*"}
    absent |= {(REBALANCE_GROUP, "connect-protocol"), (REBALANCE_GROUP, "leader-name")}
    rows = [(group, attribute) for group, attribute, _, _ in jmx_rows()]
    assert sorted(rows) == sorted(wanted - absent)
    text = PAGE.read_text(encoding="utf-8")
    served = {name for _, _, found in ON_THE_WORKER for name in (one.name for one in found)}
    served |= {name for name, *_ in herder_rows()}
    for _, attribute, name, _ in jmx_rows():
        assert name in served, attribute
        assert f"`{attribute}` | `{name}` |" in text


@pytest.mark.parametrize(
    ("attribute", "kind", "name"),
    [
        ("put-batch-max-time-ms", Kind.GAUGE, "put_batch_max_time_seconds"),
        ("last-error-timestamp", Kind.GAUGE, "last_error_timestamp_seconds"),
        ("offset-commit-success-percentage", Kind.GAUGE, "offset_commit_success_ratio"),
        ("total-retries", Kind.COUNTER, "retries_total"),
        ("deadletterqueue-produce-requests", Kind.COUNTER, "deadletterqueue_produce_requests_total"),
        ("sink-record-read-total", Kind.COUNTER, "sink_record_read_total"),
        ("connector-count", Kind.GAUGE, "connectors"),
        ("connector-running-task-count", Kind.GAUGE, "connector_running_tasks"),
        ("sink-record-active-count-max", Kind.GAUGE, "active_sink_records_max"),
        ("batch-size-avg", Kind.GAUGE, "batch_size_avg"),
    ],
)
def test_connects_names_follow_prometheus_conventions(attribute: str, kind: Kind, name: str) -> None:
    assert connect_name("g-metrics", attribute, kind) == f"kafka_connect_g_metrics_{name}"


def test_all_names_and_help_texts_pass_the_check_of_promtool() -> None:
    metrics = [PageMetric(one.name, one.kind.value, one.description) for _, _, found in ON_THE_WORKER for one in found]
    metrics += [
        PageMetric(name, kind.value, what, labels=set(filter(None, labels.split(", "))))
        for name, kind, labels, what in herder_rows()
    ]
    metrics += [PageMetric(name, kind.value, what) for name, (kind, what) in STORE_METRICS.items()]
    metrics.append(PageMetric(DURATION[0], "histogram", DURATION[2]))
    metrics.append(PageMetric(PRODUCERS[0], "gauge", PRODUCERS[1]))
    names = [one.name for one in metrics]
    assert len(names) == len(set(names)) > 80
    assert problems(metrics) == []


BAD_PAGE = """\
# HELP a_duration_ms_milliseconds From a call to its status.
# TYPE a_duration_ms_milliseconds histogram
a_duration_ms_milliseconds_bucket{le="5.0"} 1
a_duration_ms_milliseconds_count 1
# HELP a_reads Reads.
# TYPE a_reads counter
a_reads 1
# HELP a_time_seconds_seconds Their mean.
# TYPE a_time_seconds_seconds gauge
a_time_seconds_seconds{perTask="0"} 1
# HELP a_task_count
# TYPE a_task_count gauge
a_task_count 1
"""


def test_the_check_finds_what_promtool_finds() -> None:
    found = problems(metrics_of(BAD_PAGE))
    assert found == [
        "a_duration_ms_milliseconds: use a base unit instead of milliseconds",
        "a_duration_ms_milliseconds: the name should not contain the abbreviated unit ms",
        "a_reads: a counter should have the suffix _total",
        "a_time_seconds_seconds: the help text cannot be read alone: Their mean.",
        "a_time_seconds_seconds: the unit seconds occurs more than once",
        "a_time_seconds_seconds: camelCase in perTask",
        "a_task_count: no help text",
        "a_task_count: only histograms and summaries should have the suffix _count",
    ]


def test_the_page_is_what_the_registries_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m services.worker.tests.metrics.metrics_page writes it"


def test_the_herders_rebalance_metrics_are_connects() -> None:
    assert {*REBALANCES, "connect-protocol", "leader-name"} == set(REBALANCE_ATTRIBUTES.split())
