"""Progress counter of a run's loop, by which a watchdog in another thread detects a stuck loop.

Owns the count. Owns no clock and no verdict: the process that executes the run compares (`worker.run.run_watch`). A
process executes one run at a time. Whoever waits for Kafka in turns counts each: Kafka being away is no standstill, and
the wait has an end of its own.

Invariant: one call costs nothing that a loop would notice, and two at once lose at most one of them.
"""

from __future__ import annotations

from itertools import count

_moves = count(1)
_moved = 0


def moved() -> None:
    """The loop looked at its commands, or asked Kafka once more."""
    global _moved
    _moved = next(_moves)


def moves() -> int:
    """How often, so far; only that it differs from an earlier answer means something."""
    return _moved
