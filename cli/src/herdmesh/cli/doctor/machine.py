"""Findings about this machine: the stack of `herd up`, its disks, and Kafka as seen from here.

Owns the queries of processes, disks and brokers, and the judgement. Changes nothing. Invariant: the check of Kafka ends
within its time limit, and creates no topic.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from herdmesh.cli.display.views import Json
from herdmesh.cli.doctor.codes import finding
from herdmesh.devstack.errors import AccessUnusable, KafkaUnusable
from herdmesh.devstack.existing_kafka import ExistingKafka
from herdmesh.devstack.layout import StackState
from herdmesh.devstack.readiness import ClusterHealth, cluster_health

_GIB: Final = 1 << 30
_NAMED_MAX: Final = 5


def stack_findings(stack: StackState | None, data_dir: Path) -> Iterator[Json]:
    """The findings of the processes of `herd up`, by their state file."""
    if stack is None:
        return
    supervised = stack.supervisor is not None and stack.supervisor.alive() is not None
    alive = [one for one in stack.services if one.mark is not None and one.mark.alive() is not None]
    if not supervised:
        if alive:
            names = ", ".join(one.name for one in alive)
            yield finding("SUPERVISOR_GONE", "supervisor", str(data_dir), f"it ended, and these run on: {names}")
        return
    for one in stack.services:
        if one.state in ("failed", "restarting"):
            detail = f": {one.detail}" if one.detail else ""
            message = f"{one.state} after {one.restarts} restarts{detail}"
            step = f"`herd logs service {one.name}` has its last words."
            yield finding("SERVICE_DOWN", "service", one.name, message, step)


def local_disks(stack: StackState | None, data_dir: Path) -> list[Json]:
    """The disk of the stack's folder, which has the broker's data too; none without a stack."""
    if stack is None or not data_dir.exists():
        return []
    used = shutil.disk_usage(data_dir)
    return [{"path": str(data_dir), "total_bytes": used.total, "free_bytes": used.free}]


def disk_findings(name: str, disks: Sequence[Json]) -> Iterator[Json]:
    """The findings of disks with `path`, `total_bytes` and `free_bytes`."""
    for one in disks:
        free, total = one["free_bytes"], max(1, one["total_bytes"])
        message = f"{one['path']}: {free / _GIB:.1f} of {total / _GIB:.1f} GiB are free"
        if free < _GIB and free / total < 0.02:
            yield finding("DISK_FULL", "disk", name, message)
        elif free < 10 * _GIB and free / total < 0.1:
            yield finding("DISK_LOW", "disk", name, message)


def kafka(bootstrap_servers: str, command_config: str, timeout_s: float) -> Json:
    """Kafka's brokers and partitions from this machine's view; `name` is empty when there is no address to query.
    Blocks for up to the time limit. `command_config`: file with the settings of TLS and login; "" = none.
    """
    found: Json = {"part": "kafka", "name": bootstrap_servers, "cluster_id": None, "findings": []}
    if not bootstrap_servers:
        return found
    try:
        cluster = ExistingKafka.of(bootstrap_servers, Path(command_config) if command_config else None)
        health = cluster_health(cluster.bootstrap, cluster.access, timeout_s)
    except (AccessUnusable, KafkaUnusable) as error:
        health = str(error)
    if isinstance(health, str):
        found["findings"] = [finding("KAFKA_UNREACHABLE", "kafka", bootstrap_servers, health)]
        return found
    found["cluster_id"] = health.cluster_id
    found["findings"] = list(_partition_findings(bootstrap_servers, health))
    return found


def _partition_findings(name: str, health: ClusterHealth) -> Iterator[Json]:
    offline, behind = health.offline_partitions, health.under_replicated_partitions
    for code, partitions, lacks in (
        ("KAFKA_PARTITIONS_OFFLINE", offline, "without a leader"),
        ("KAFKA_UNDER_REPLICATED", behind, "with replicas that are not in sync"),
    ):
        if partitions:
            more = f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else ""
            named = ", ".join(sorted(partitions, key=_by_number)[:_NAMED_MAX]) + more
            many = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
            yield finding(code, "kafka", name, f"{many} {lacks}: {named}")


def _by_number(partition: str) -> tuple[str, int]:
    """`orders-10` after `orders-9`."""
    topic, _, number = partition.rpartition("-")
    return (topic, int(number)) if number.isdecimal() else (partition, 0)
