"""What can end a herder's process. What callers see are the errors of `herdmesh.rpc.errors`.

    HerderError
    `-- LoopStopped     the loop that owns the state ended, and nothing can be decided any more

Owns the tree. Invariant: none of these crosses the wire.
"""

from __future__ import annotations


class HerderError(Exception):
    """Root."""


class LoopStopped(HerderError):
    """The loop ended while somebody still posted events."""
