"""Errors of the status store beyond those every service has (`herdmesh.rpc.errors`, `herdmesh.topicstore.errors`).

    StatusStoreError
    `-- StoreGone        the topic store closed itself; the process ends and its supervisor starts it anew

Owns only what never meets a caller. Invariant: nothing here is raised inside an RPC.
"""

from __future__ import annotations


class StatusStoreError(Exception):
    """Root of the tree above."""


class StoreGone(StatusStoreError):
    """The topic store closed although nobody asked it to; its own log line says why."""

    def __init__(self) -> None:
        super().__init__("the topic store closed itself")
