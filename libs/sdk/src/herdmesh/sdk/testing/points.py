"""The moments of a run at which its process may die.

Owns the count, and the death at one of them. Invariant: a run that is driven with the same world and the same period
passes the same points, so each can be chosen by its number.
"""

from __future__ import annotations


class Died(Exception):
    """The process of a run has died: nothing of it is called again, not even `stop`."""


class Points:
    """The points of one run."""

    def __init__(self, deadly: int | None = None) -> None:
        """`deadly`: number of the point at which the run dies, from 1; None = at none."""
        self._deadly = deadly
        self.passed = 0
        self.last = ""
        """The last point that the run passed, in words."""

    def at(self, place: str) -> None:
        """Pass a point. Raises Died if the run dies here."""
        self.passed += 1
        self.last = place
        if self.passed == self._deadly:
            raise Died(place)
