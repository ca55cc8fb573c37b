"""Ownership of partitions: the rule that assigns each partition to a task of a sink connector.

Owns one rule (docs/design/worker.md, section 3), used by the run and by the worker's offset watcher, so that both
always agree.

Invariant: for every partition exactly one task in `range(task_count)` owns it, whatever else exists in the cluster.
"""

from __future__ import annotations

from zlib import crc32


def owner(topic: str, partition: int, task_count: int) -> int:
    """The number of the task that owns the partition."""
    return (crc32(topic.encode()) + partition) % task_count


def owns(topic: str, partition: int, task: int, task_count: int) -> bool:
    """True when task number `task` of `task_count` owns the partition."""
    return owner(topic, partition, task_count) == task
