"""Notices of a stack about what differs from the usual: a port, the replication factor of its topics.

Owns the texts. Queries the processes of this machine, and nothing of the stack. A notice is shown once the stack runs,
and stays in its state file.
"""

from __future__ import annotations

from pathlib import Path

from herdmesh.devstack.existing_kafka import REPLICATION_FACTOR_MAX
from herdmesh.devstack.ports import is_free, owner_of


def unusual_port(name: str, port: int, usual: int, ports_file: Path) -> str:
    """The notice of a service that listens on another port than its usual one; empty when it does not. Blocks for some
    milliseconds.
    """
    if port == usual:
        return ""
    if not is_free(usual):
        return f"{name} listens on port {port} in place of {usual}, its usual port: {owner_of(usual)}"
    return (
        f"{name} listens on port {port} in place of {usual}, its usual port, which was taken when {port} was chosen "
        f"and is free now: to use it, stop, remove {ports_file} and start again"
    )


def replicas(brokers: int, factor: int) -> str:
    """The notice of a cluster that is too small for Connect's default of three replicas; empty for a larger one."""
    return _small(brokers, factor, "topics that Herdmesh creates for itself, and ")


def dead_letter_replicas(brokers: int, factor: int) -> str:
    """The same for a worker that creates no topics of its own (`herd run`)."""
    return _small(brokers, factor)


def _small(brokers: int, factor: int, topics: str = "") -> str:
    if brokers >= REPLICATION_FACTOR_MAX:
        return ""
    count = "1 broker" if brokers == 1 else f"{brokers} brokers"
    many = "1 replica" if factor == 1 else f"{factor} replicas"
    return (
        f"the cluster has {count}, so {topics}dead letter queues without "
        f"errors.deadletterqueue.topic.replication.factor{',' if topics else ''} have {many}; "
        f"Connect's default is {REPLICATION_FACTOR_MAX}"
    )
