"""The guard of a store's topics: are they still the topics that were opened, configured as needed, and open to this
store?

Owns the times of the check (at an interval, before a take-over, after a fault) and the consequence of each answer for
the store. How a log finds out is the log's affair; closing and stepping down are the core's.

Invariant: a state is never served for longer than the check interval on a topic that replaced the original one, however
similar it looks: ids are compared, never offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from herdmesh.topicstore.errors import (
    BrokerUnreachable,
    NotApplied,
    NotAuthorized,
    StoreClosed,
    TakeOverBlocked,
    TopicMisconfigured,
    TopicRecreated,
)
from herdmesh.topicstore.health import HealthBook, Part
from herdmesh.topicstore.log import Log, LogBlocked, LogUnavailable
from herdmesh.topicstore.settings import StoreTuning

_logger = logging.getLogger(__name__)


class Guard:
    """`on_fault(error)`: the store cannot go on. `on_refused(error)`: it may not write (any more)."""

    def __init__(
        self,
        log: Log,
        health: HealthBook,
        tuning: StoreTuning,
        on_fault: Callable[[StoreClosed | NotAuthorized], None],
        on_refused: Callable[[NotAuthorized], None],
    ) -> None:
        self._log = log
        self._health = health
        self._tuning = tuning
        self._on_fault = on_fault
        self._on_refused = on_refused

    async def run(self) -> None:
        """Look every now and then, until cancelled or the store cannot go on."""
        while True:
            await asyncio.sleep(self._tuning.topic_check_interval_ms / 1000)
            try:
                refusal = await self._log.check()
            except LogUnavailable as unavailable:
                self._health.note(Part.TOPIC, self.trouble_of(unavailable))
            except TopicMisconfigured as wrong:
                if wrong.setting == "partitions":
                    self._health.note(Part.CLOSED, wrong)
                    self._on_fault(StoreClosed(str(wrong)))
                    return
                # A wrong policy is told and served on: an outage would keep no record from being deleted.
                self._health.note(Part.TOPIC, wrong)
            except (TopicRecreated, NotAuthorized) as error:
                self._on_fault(error)
                return
            else:
                self._health.note(Part.TOPIC, None)
                if refusal is not None:
                    self._on_refused(refusal)

    async def allows_take_over(self) -> bool:
        """False when the topics are others, and the store closes. Raises `LogUnavailable`, `NotAuthorized`."""
        try:
            refusal = await self._log.check()
        except TopicRecreated as error:
            self._on_fault(error)
            return False
        except TopicMisconfigured:  # for `run` to tell
            return True
        if refusal is not None:
            raise refusal
        return True

    async def explain(self, fault: StoreClosed | NotAuthorized) -> NotApplied:
        """What a fault comes from, if the topics tell; noted as what closed the store."""
        cause = fault
        if type(fault) is StoreClosed:
            try:
                async with asyncio.timeout(self._tuning.close_stage_ms / 1000):
                    await self._log.check()
            except (TopicRecreated, NotAuthorized) as found:
                _logger.error("%s, and this explains it: %s", fault.reason, found)
                cause = found
            except TopicMisconfigured as found:
                self._health.note(Part.CLOSED, found)
            except (LogUnavailable, TimeoutError) as unclear:
                _logger.info("whether the topics explain it cannot be seen: %s", unclear)
        if self._health.trouble(Part.CLOSED) is None:
            self._health.note(Part.CLOSED, cause)
        return cause

    def trouble_of(self, unavailable: LogUnavailable) -> BrokerUnreachable | TakeOverBlocked:
        """The log's word for it in an operator's."""
        if isinstance(unavailable, LogBlocked):
            return TakeOverBlocked(unavailable.for_what, unavailable.fix)
        return BrokerUnreachable(self._log.settings.bootstrap_servers, str(unavailable))
