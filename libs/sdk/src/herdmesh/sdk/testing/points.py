"""The moments of a run at which its process may die.

Owns counting them, and dying at one. Invariant: a run that is driven with the same world and the same period passes the
same points, so each can be chosen by its number.
"""

from __future__ import annotations


class Died(Exception):
    """The process of a run is gone: nothing of it is called again, `stop` neither."""


class Points:
    """The points of one run."""

    def __init__(self, deadly: int | None = None) -> None:
        """`deadly`: at which the run dies, from 1; None = at none."""
        self._deadly = deadly
        self.passed = 0
        self.last = ""
        """Where the run was last, in words."""

    def at(self, place: str) -> None:
        """The run is here. Raises Died where it is to die."""
        self.passed += 1
        self.last = place
        if self.passed == self._deadly:
            raise Died(place)
