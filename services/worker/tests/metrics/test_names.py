"""Every metric that Connect documents is on the page, or listed with the reason why not; docs/reference/metrics.md
agrees.
"""

from __future__ import annotations

from herdmesh.rpc.telemetry import Kind
from herdmesh.worker.metrics.names import ABSENT
from services.worker.tests.metrics.metrics_page import HERDER, ON_THE_WORKER, PAGE, page

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
REBALANCES = "connect-worker-rebalance-metrics"
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


def test_names_follow_the_rule_and_are_unique() -> None:
    definitions = [one for _, _, found in ON_THE_WORKER for one in found]
    names = [one.name for one in definitions]
    assert len(names) == len(set(names))
    assert "kafka_connect_sink_task_metrics_sink_record_read_total" in names
    assert all(one.name.endswith("_total") == (one.kind is Kind.COUNTER) for one in definitions)


def test_the_page_is_generated_from_the_registry() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m services.worker.tests.metrics.metrics_page writes it"


def test_documented_herder_metrics_are_those_it_serves() -> None:
    from herdmesh.herder import metrics

    assert tuple(name.replace("_", "-") for name in metrics.GAUGES) == HERDER
    assert f"kafka_connect_{REBALANCES.replace('-', '_')}_" == metrics.REBALANCE, "the rule of the page"
    assert {*HERDER, "connect-protocol", "leader-name"} == set(REBALANCE_ATTRIBUTES.split())
