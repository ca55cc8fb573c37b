"""Dead letter queues on a user's request: listed, read and sent again.

Owns the log of what was sent again. Invariant: a record is sent again once for each request, also after a crash.
"""

from __future__ import annotations

from herdmesh.worker.effects.dead_letters.requests import (
    DeadLetters,
)

__all__ = [
    "DeadLetters",
]
