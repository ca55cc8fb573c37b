"""Progress counter of a run's loop, by which a watchdog in another thread detects a stuck loop.

Owns the count. Owns no clock and no verdict: the process that executes the run compares (`worker.run.run_watch`). A
process executes one run at a time. A wait loop for Kafka counts each turn: an unreachable Kafka is not a stuck loop,
and the wait has an end of its own.

Invariant: a call costs nothing noticeable, and two concurrent calls lose at most one count.
"""

from __future__ import annotations

from itertools import count

_moves = count(1)
_moved = 0


def moved() -> None:
    """Count a turn: the loop checked its commands, or sent Kafka another request."""
    global _moved
    _moved = next(_moves)


def moves() -> int:
    """The count so far; only a difference from an earlier result has a meaning."""
    return _moved
