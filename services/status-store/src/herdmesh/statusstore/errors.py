"""Errors of the status store beyond those of every service (`herdmesh.rpc.errors`, `herdmesh.topicstore.errors`).

    StatusStoreError
    `-- StoreGone        the topic store closed itself; the process ends and its supervisor starts it again

Owns only errors that no caller sees. Invariant: nothing here is raised inside an RPC.
"""

from __future__ import annotations

from herdmesh.topicstore.health import StoreHealth


class StatusStoreError(Exception):
    """Root of the tree above."""


class StoreGone(StatusStoreError):
    """The topic store closed without a request; `health` has the reason."""

    def __init__(self, health: StoreHealth) -> None:
        super().__init__(f"the topic store closed itself: {health.condition.name}: {health.message}")
