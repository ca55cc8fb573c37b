"""Fencing of earlier runs of the same task, and of their transactions that hang.

Owns transactional ids, the commit of offsets in a transaction, and the check of a task's claim to its task set.
Invariant: after a fence is taken, no earlier run of the task commits anything.
"""

from __future__ import annotations

from herdmesh.engine.fencing.fence import (
    TRANSACTIONS_TOPIC,
    Fence,
    connect,
    held,
)
from herdmesh.engine.fencing.hung_group_transaction import (
    GROUP_OFFSETS_TOPIC,
    GroupFinisher,
)
from herdmesh.engine.fencing.hung_offsets_transaction import (
    OffsetsFinisher,
)

__all__ = [
    "GROUP_OFFSETS_TOPIC",
    "TRANSACTIONS_TOPIC",
    "Fence",
    "GroupFinisher",
    "OffsetsFinisher",
    "connect",
    "held",
]
