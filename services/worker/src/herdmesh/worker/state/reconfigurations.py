"""Rate limit of a connector's requests for new task configs (Java: `requestTaskReconfiguration`).

Owns the rate of one instance. Each request may lead to a new task set in the config topic and a restart of all its
tasks, so a connector that requests in a loop would write at that rate and never let its tasks run.

The first `BURST` requests are executed at once; each later one not before a wait after the previous one, which doubles
from `WAIT_S_FIRST` to `WAIT_S_MAX`. After `QUIET_S` without a request the count begins again. Requests made while one
waits are merged with it: when its time comes, the connector gives the task configs as of then.

Invariant: a request is executed at the latest `WAIT_S_MAX` after the one before it, and none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from herdmesh.session.model import Condition

BURST: Final = 5
WAIT_S_FIRST: Final = 0.5
WAIT_S_MAX: Final = 30.0
QUIET_S: Final = 60.0
LIMITED: Final = "RECONFIGURATION_LIMITED"


@dataclass(slots=True)
class Reconfigurations:
    """Requests of one instance. Times in seconds of a monotonic clock."""

    carried_out: int = 0
    """Number of requests in a row."""
    last_at: float = 0.0
    """Time of the last executed request."""
    due_at: float | None = None
    """Time of the next one; None = no request waits."""
    limited: bool = False
    """True when its status has the condition."""

    def requested(self, now: float) -> bool:
        """Record a request. True when it must be executed now; otherwise it waits."""
        if self.due_at is not None:
            return False
        if now - self.last_at >= QUIET_S:
            self.carried_out = 0
        due_at = self.last_at + self._wait_s() if self.carried_out else now
        if due_at <= now:
            self._carry_out(now)
            return True
        self.due_at = due_at
        return False

    def tick(self, now: float) -> bool:
        """True when the waiting request must be executed now."""
        if self.due_at is None or self.due_at > now:
            return False
        self._carry_out(now)
        return True

    def deadline(self) -> float | None:
        """Time of the next check: a request is due, or the limit ends."""
        if self.due_at is not None:
            return self.due_at
        return self.last_at + QUIET_S if self.limited else None

    def is_limited(self, now: float) -> bool:
        """True while it requests more often than its requests are executed."""
        return self.due_at is not None or (self.limited and now - self.last_at < QUIET_S)

    def condition(self) -> Condition:
        """Condition of the connector's status while it is limited."""
        message = (
            f"the connector requested new task configs {self.carried_out + 1} times in a row: its requests are "
            f"executed once in {self._wait_s():g} s now, so that its tasks can run between their restarts; nothing is "
            f"lost, the last request counts. The limit ends {QUIET_S:g} s after its last request. Check why the "
            "connector requests them: requestTaskReconfiguration is for changes of its source"
        )
        return Condition(LIMITED, message)

    def _wait_s(self) -> float:
        beyond = self.carried_out - BURST
        return 0.0 if beyond < 0 else min(WAIT_S_FIRST * 2.0 ** min(beyond, 20), WAIT_S_MAX)

    def _carry_out(self, now: float) -> None:
        self.last_at, self.due_at = now, None
        self.carried_out += 1
