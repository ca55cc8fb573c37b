"""Connections of a worker to the herder and the status store.

Owns the session with the herder and the queue of statuses. Invariant: a status is written before its consequences.
"""

from __future__ import annotations

from herdmesh.worker.effects.stores.commands import (
    Commands,
)
from herdmesh.worker.effects.stores.session import (
    HerderSession,
)
from herdmesh.worker.effects.stores.statuses import (
    StatusClient,
)

__all__ = [
    "Commands",
    "HerderSession",
    "StatusClient",
]
