"""Comparison of the status store's state with the oracle's.

Owns the comparison only. Invariant: equal means that every status and every topic status are equal.
"""

from __future__ import annotations

from herdmesh.connect.topics.status_topic import TopicStatus
from herdmesh.statusstore.state.statuses import StatusState, StoredStatus
from tests.support.java_status_rules import JavaStatuses, Status


def reads_as_java(state: StatusState, java: JavaStatuses) -> bool:
    """True when the whole state equals the oracle's for the same records in the same order."""
    mine = {(one.status.connector, one.task): _status(one) for one in state.statuses()}
    connectors = {(name, None): status for name, status in java.connectors.items()}
    tasks = {(name, task): status for name, known in java.tasks.items() for task, status in known.items()}
    used = {(name, topic): _topic(status) for name, known in state.topics.items() for topic, status in known.items()}
    seen = {(name, topic): said for name, known in java.topics.items() for topic, said in known.items()}
    return mine == {**connectors, **tasks} and used == seen


def _status(stored: StoredStatus) -> Status:
    one = stored.status
    return Status(
        one.state.value, one.worker_id, one.generation, one.trace, one.version, one.worker_incarnation,
        stored.timestamp_ms, stored.partition,
    )  # fmt: skip


def _topic(status: TopicStatus) -> tuple[str, str, int, int]:
    return (
        status.topic if status.named_topic is None else status.named_topic,
        status.connector if status.named_connector is None else status.named_connector,
        status.task,
        status.discover_timestamp_ms,
    )
