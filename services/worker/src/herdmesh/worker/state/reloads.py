"""Schedule for looking up config references again (KIP-297's ttl, docs/reference/connect/configs.md, section 8.3).

Owns the times, one for each unit that runs with values of limited life, or FAILED with them. Looks nothing up, and
restarts nothing (`tasks`, `connectors`).

Invariant: a unit has at most one look-up under way, and none more often than once a second, whatever ttl its provider
gives; what a run or an instance that is gone was made with is never looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herdmesh.session.model import UnitId
from herdmesh.worker.state.instructions import CheckValues

_TTL_MS_MIN = 1_000
_RETRY_MS_MAX = 60_000
"""A provider that could not be asked is asked again after the ttl, or so soon."""


@dataclass(slots=True)
class _Values:
    made_by: str
    ttl_ms: int
    due: float | None
    """None = they are being looked up."""


class Reloads:
    """Times of the units' values."""

    def __init__(self) -> None:
        self._values: dict[UnitId, _Values] = {}

    def next_deadline(self) -> float | None:
        """When `tick` next has something to do."""
        return min([one.due for one in self._values.values() if one.due is not None], default=None)

    def resolved(self, unit: UnitId, made_by: str, ttl_ms: int, now: float) -> None:
        """The unit's run or instance `made_by` was given values that are good for so long."""
        ttl_ms = max(ttl_ms, _TTL_MS_MIN)
        self._values[unit] = _Values(made_by, ttl_ms, now + ttl_ms / 1000)

    def tick(self, now: float, in_use: Callable[[UnitId, str], bool]) -> list[CheckValues]:
        """Look up what is due. `in_use` tells whether a unit still runs as what was made then."""
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
        """They were looked up: good for so long from now, None = for ever."""
        one = self._values.get(unit)
        if one is None or one.made_by != made_by:
            return
        if ttl_ms is None:
            del self._values[unit]
        else:
            self.resolved(unit, made_by, ttl_ms, now)

    def unknown(self, unit: UnitId, made_by: str, now: float) -> None:
        """They could not be looked up: try again."""
        one = self._values.get(unit)
        if one is not None and one.made_by == made_by:
            one.due = now + min(one.ttl_ms, _RETRY_MS_MAX) / 1000
