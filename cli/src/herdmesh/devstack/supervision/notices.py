"""Notices of a stack about what differs from the usual: a port, the replication factor of its topics.

Owns the texts. Queries the processes of this machine, and nothing of the stack. A notice is shown once the stack runs,
and stays in its state file.
"""

from __future__ import annotations

from pathlib import Path

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
    if brokers >= 3:
        return ""
    count = "1 broker" if brokers == 1 else f"{brokers} brokers"
    many = "1 replica" if factor == 1 else f"{factor} replicas"
    return (
        f"the cluster has {count}, so topics that Herdmesh creates for itself, and dead letter queues without "
        f"errors.deadletterqueue.topic.replication.factor, have {many}; Connect's default is 3"
    )
