"""Listing, reading and replay of dead letter queues, on request.

Owns the log of replayed dead letters. Invariant: each request replays a record once, also after a crash.
"""

from __future__ import annotations

from herdmesh.worker.effects.dead_letters.requests import (
    DeadLetters,
)

__all__ = [
    "DeadLetters",
]
