"""Counts of tasks over all their starts: what a worker reported last, for the next start and for the connector's sum.

Owns the memory of the counts (`Connector.counts`). The worker adds: it gets the counts of earlier starts with the start
command, and its progress continues them. So a new leader knows the counts of each task that runs, and loses those of
tasks that no worker has at that moment.

Invariant: counts of an earlier incarnation of the name are never continued.
"""

from __future__ import annotations

from herdmesh.connect.task_counts import NO_COUNTS, TaskCounts
from herdmesh.herder.state.memory import Connector, Placement, Unit
from herdmesh.herder.state.model import ConnectorEntry


def note(connector: Connector, unit: Unit, hold: Placement, counts: TaskCounts | None) -> None:
    """Keep the counts that the holder of a task reported."""
    entry, task = connector.stored, unit.id.task
    if counts is None or entry is None or task is None or hold.assignment.incarnation != entry.incarnation:
        return
    if connector.counts_of != entry.incarnation:
        connector.counts, connector.counts_of = {}, entry.incarnation
    connector.counts[task] = counts


def before(connector: Connector, entry: ConnectorEntry, task: int) -> TaskCounts:
    """The counts of a task's earlier starts."""
    return connector.counts.get(task, NO_COUNTS) if connector.counts_of == entry.incarnation else NO_COUNTS


def total(connector: Connector, entry: ConnectorEntry) -> TaskCounts:
    """The counts of all tasks that the connector has, or had."""
    if connector.counts_of != entry.incarnation:
        return NO_COUNTS
    return sum(connector.counts.values(), NO_COUNTS)
