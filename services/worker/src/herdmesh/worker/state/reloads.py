"""Schedule for looking up config references again (KIP-297's ttl, docs/reference/connect/configs.md, section 8.3).

Owns the times, one for each unit that runs with values that expire, or FAILED with them. Looks nothing up, and restarts
nothing (`tasks`, `connectors`).

Invariant: a unit has at most one lookup in progress, and at most one per second, whatever ttl its provider gives. The
values of a run or an instance that is gone are never looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herdmesh.session.model import UnitId
from herdmesh.worker.state.instructions import CheckValues

_TTL_MS_MIN = 1_000
_RETRY_MS_MAX = 60_000
"""After a failed lookup, the next one comes after the ttl, or this time if shorter."""


@dataclass(slots=True)
class _Values:
    made_by: str
    ttl_ms: int
    due: float | None
    """None = a lookup is in progress."""


class Reloads:
    """Lookup times of the units' values."""

    def __init__(self) -> None:
        self._values: dict[UnitId, _Values] = {}

    def next_deadline(self) -> float | None:
        """Time of the next work for `tick`."""
        return min([one.due for one in self._values.values() if one.due is not None], default=None)

    def resolved(self, unit: UnitId, made_by: str, ttl_ms: int, now: float) -> None:
        """Record the time to live of the values that the unit's run or instance `made_by` got."""
        ttl_ms = max(ttl_ms, _TTL_MS_MIN)
        self._values[unit] = _Values(made_by, ttl_ms, now + ttl_ms / 1000)

    def tick(self, now: float, in_use: Callable[[UnitId, str], bool]) -> list[CheckValues]:
        """Look up due values. `in_use` returns whether a unit still runs as the run or instance of that time."""
        out: list[CheckValues] = []
        for unit, one in list(self._values.items()):
            if one.due is None or one.due > now:
                continue
            if in_use(unit, one.made_by):
                one.due = None
                out.append(CheckValues(unit, one.made_by))
            else:
                del self._values[unit]
        return out

    def checked(self, unit: UnitId, made_by: str, ttl_ms: int | None, now: float) -> None:
        """Record a lookup and the new time to live, None = the values do not expire."""
        one = self._values.get(unit)
        if one is None or one.made_by != made_by:
            return
        if ttl_ms is None:
            del self._values[unit]
        else:
            self.resolved(unit, made_by, ttl_ms, now)

    def unknown(self, unit: UnitId, made_by: str, now: float) -> None:
        """Record a failed lookup: try again."""
        one = self._values.get(unit)
        if one is not None and one.made_by == made_by:
            one.due = now + min(one.ttl_ms, _RETRY_MS_MAX) / 1000
