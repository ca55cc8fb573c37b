"""Groups of tests that mostly wait, of several files each, which run side by side (`side_by_side`).

Owns the groups; a file says `together = of_stores.making(...)` with the makers of its own tests' parameters.
"""

from __future__ import annotations

from tests.support.side_by_side import SideBySide

#: Tests that check a time limit (marker `timed`): they wait for the end of a session, a lease or a stop's bound.
#: Their limits are three times the promised ones. Two at once: with four, a whole run on a slow machine had two clean
#: stops of 9 and 13 s, which alone take 0.5; that their processes' starts were in the way is likely, and not shown.
timed = SideBySide(at_once=2)
#: Tests of the stores over a real Kafka: they wait for a right to take effect, for a client that lost its brokers, or
#: for a broker.
of_stores = SideBySide()
