"""Names of Kafka Connect's metrics on a Prometheus page: the one rule for all services.

Owns the rule. Connect's attribute A of group G (the MBean `kafka.connect:type=G`) is `kafka_connect_G_A` with each `-`
as `_`, as the JMX exporter spells it. Where Prometheus' conventions differ from Connect's, the name follows Prometheus:
seconds, not milliseconds; ratios, not percentages; `_total` for counters alone; no `_count` for what is not a
histogram. Does not own which metrics a service has.
"""

from __future__ import annotations

import re

from herdmesh.rpc.monitoring.telemetry import Kind

_UNITS = (("-ms", "-seconds"), ("-timestamp", "-timestamp-seconds"), ("-percentage", "-ratio"))


def connect_name(group: str, attribute: str, kind: Kind) -> str:
    """Name of Connect's attribute. The caller serves its value in the unit of the name: seconds for milliseconds.

    `put-batch-max-time-ms` ends in `put_batch_max_time_seconds`, the counter `total-retries` in `retries_total`, the
    gauge `connector-count` in `connectors`, `sink-record-active-count-max` in `active_sink_records_max`.
    """
    return f"kafka_connect_{group}_{_served(attribute, kind)}".replace("-", "_")


def _served(attribute: str, kind: Kind) -> str:
    if kind is Kind.COUNTER:
        return attribute if attribute.endswith("-total") else f"{attribute.removeprefix('total-')}-total"
    for old, new in _UNITS:
        if attribute.endswith(old):
            return attribute.removesuffix(old) + new
    active = re.fullmatch(r"(.+)-active-count(-max|-avg)?", attribute)
    if active is not None:
        return f"active-{active[1]}s{active[2] or ''}"
    return re.sub(r"-count$", "s", attribute)
