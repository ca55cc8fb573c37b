"""Groups of tests that wait for most of their time, of several files each, which run side by side (`side_by_side`).

Owns the groups; a file says `together = of_stores.making(...)` with what its own tests are given.
"""

from __future__ import annotations

from tests.support.side_by_side import SideBySide

#: Of those that hold a limit of time (marker `timed`): they wait for a session, a lease or a bound of a stop to end.
#: Their limits are at three times what is promised; four at once start no more processes in a moment than a mesh does.
timed = SideBySide(at_once=4)
#: Of the stores over a real Kafka: for a right to take effect, for the answer of a client that is deaf, for a broker.
of_stores = SideBySide()
