"""Reload of config references whose time to live has expired, and the check whether a unit runs with other values than
it would get now.

Owns the lookup, and which keys of a config matter for which unit. The state decides when to look up and what to restart
(`state/reloads.py`). With `config.action.reload=none` values never expire.

Invariant: values are compared and never shown; a failed lookup changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from herdmesh.connect.config_providers import Resolved
from herdmesh.engine.runtime import Properties, message_of
from herdmesh.session.model import UnitId
from herdmesh.worker.state import events, instructions
from herdmesh.worker.threads import in_thread

ACTION = "config.action.reload"
#: Keys of the connector's config that a run reads itself; everything else it knows only from its task config.
_READ_BY_RUNS: Final = (
    *("key.converter", "value.converter", "header.converter", "transforms", "predicates", "errors.", "topics"),
    *("producer.override.", "consumer.override.", "admin.override.", "topic.creation.", "offsets.storage.topic"),
    *("transaction.boundary", "herdmesh."),
)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Values:
    """Configs that a unit was given, each resolved."""

    configs: tuple[Resolved, ...]
    """A connector's own config; or for a task, its connector's and its own."""
    complete: bool = True
    """False = the lookup failed, the unit got no values, and `configs` are unresolved."""

    @property
    def secrets(self) -> frozenset[str]:
        """Secrets, which no text may show."""
        return frozenset[str]().union(*(one.secrets for one in self.configs))

    @property
    def ttl_ms(self) -> int | None:
        """Time to live; None = unlimited, also because the user set it so."""
        if (self.configs[0].config.get(ACTION) or "").strip().upper() == "NONE":
            return None
        return min((one.ttl_ms for one in self.configs if one.ttl_ms is not None), default=None)

    def differ(self, now: Values) -> bool:
        """True when the unit would get different values now, or got none before."""
        if not self.complete:
            return True
        *of_connector, own = (one.config for one in self.configs)
        *of_connector_now, own_now = (one.config for one in now.configs)
        return own != own_now or [*map(_of_runs, of_connector)] != [*map(_of_runs, of_connector_now)]


class Reloads:
    """Looks values up when the state requests it."""

    def __init__(
        self,
        given: Callable[[UnitId], Values | None],
        resolve: Callable[[Values], Values],
        emit: Callable[[events.Event], Awaitable[None]],
    ) -> None:
        """`given` returns the values that a unit got last; `resolve` queries the providers again, in a thread."""
        self._given = given
        self._resolve = resolve
        self._emit = emit
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, instruction: instructions.CheckValues) -> None:
        """Look up, then emit ValuesChecked or ValuesUnknown."""
        task = asyncio.create_task(self._check(instruction.unit, instruction.made_by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel pending lookups."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _check(self, unit: UnitId, made_by: str) -> None:
        given = self._given(unit)
        if given is None:
            await self._emit(events.ValuesUnknown(unit, made_by))
            return
        try:
            now = await in_thread(f"values of {unit.log_context}", lambda: self._resolve(given))
        except Exception as error:  # noqa: BLE001 - an author's provider may raise anything
            _log.warning("values_lookup_failed", unit=unit.log_context, error=message_of(error))
            await self._emit(events.ValuesUnknown(unit, made_by))
            return
        changed = given.differ(now)
        if changed:
            _log.info("values_changed", unit=unit.log_context)
        await self._emit(events.ValuesChecked(unit, made_by, changed, now.ttl_ms))


def _of_runs(config: Properties) -> dict[str, str | None]:
    return {name: value for name, value in config.items() if name.startswith(_READ_BY_RUNS)}
