"""Errors that end a herder's process. Callers get the errors of `herdmesh.rpc.errors`.

    HerderError
    `-- PartEnded     a part that must live as long as the process ended

Owns the tree. Invariant: none of these crosses the wire.
"""

from __future__ import annotations


class HerderError(Exception):
    """Base of this tree."""


class PartEnded(HerderError):
    """A part of the herder ended without an error of its own. This is a bug; the supervisor restarts the process."""
