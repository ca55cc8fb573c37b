"""The search for the leading herder: the next address to try, and how long to wait before.

Owns the addresses, the hint of a NOT_LEADER response and the backoff. Makes no call and keeps no time. Invariant: a
hint is followed at once, but only one between two pauses. So two herders that name each other, or one that names a dead
one, are tried at the pace of the backoff: at most `PAUSE_S_MAX` apart.
"""

from __future__ import annotations

import random
from typing import Final

PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 0.5


class LeaderSearch:
    """`addresses`: any herders of the cluster, host:port, comma separated; one follower is enough.

    `address` is the address to call next. Each method that reports a result returns the seconds to wait before the next
    call. Raises ValueError for no address.
    """

    def __init__(self, addresses: str) -> None:
        self._addresses = [one.strip() for one in addresses.split(",") if one.strip()]
        if not self._addresses:
            raise ValueError("no address of a herder")
        self.address = self._addresses[0]
        self._turn = 0
        self._hinted = False
        self._pause_s = 0.0

    def reached(self) -> None:
        """The leader answered."""
        self._hinted = False
        self._pause_s = 0.0

    def follows(self, leader_address: str) -> float:
        """This herder is a follower and names the leader (empty: it knows none)."""
        if not leader_address or leader_address == self.address:
            return self.unanswered()
        self.address = leader_address
        if self._hinted:
            return self._pause()
        self._hinted = True
        return 0.0

    def unanswered(self) -> float:
        """This herder is unreachable or knows no leader: move to the next address, a different one if there is one."""
        gone = self.address
        for _ in self._addresses:
            self._turn = (self._turn + 1) % len(self._addresses)
            if self._addresses[self._turn] != gone:
                break
        self.address = self._addresses[self._turn]
        self._hinted = False
        return self._pause()

    def again(self) -> float:
        """This herder leads but cannot serve now: keep the address."""
        return self._pause()

    def _pause(self) -> float:
        self._pause_s = min(max(PAUSE_S_FIRST, self._pause_s * 2), PAUSE_S_MAX)
        return random.uniform(self._pause_s / 2, self._pause_s)
