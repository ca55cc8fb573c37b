"""Groups of tests that wait for most of their time, of several files each, which run side by side (`side_by_side`).

Owns the groups; a file says `together = of_stores.making(...)` with what its own tests are given.
"""

from __future__ import annotations

from tests.support.side_by_side import SideBySide

#: Of those that hold a limit of time (marker `timed`): they wait for a session, a lease or a bound of a stop to end.
#: Their limits are at three times what is promised. Two at once: with four, a whole run on a slow machine had two clean
#: stops of 9 and 13 s, which alone take 0.5; that their processes' starts were in the way is likely, and not shown.
timed = SideBySide(at_once=2)
#: Of the stores over a real Kafka: for a right to take effect, for the answer of a client that is deaf, for a broker.
of_stores = SideBySide()
