"""The guard of a store's topics. It checks that they are still the topics that were opened, that their configuration
fits and that this store has its permissions.

Owns the times of the check (at an interval, before a take-over, after a fault) and the consequence of each result for
the store. How a log performs the check is the log's affair; closing and stepping down are the core's.

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
    """Checker of one store's topics. It calls `on_fault(error)` when the store cannot continue, `on_refused(error)`
    when the store has no permission to write.
    """

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
        """Check at each interval, until cancelled or until the store cannot continue."""
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
                # With a wrong policy the store reports it and continues: an outage would not keep records from being
                # deleted.
                self._health.note(Part.TOPIC, wrong)
            except (TopicRecreated, NotAuthorized) as error:
                self._on_fault(error)
                return
            else:
                self._health.note(Part.TOPIC, None)
                if refusal is not None:
                    self._on_refused(refusal)

    async def allows_take_over(self) -> bool:
        """Check the topics before a take-over. False when they are other topics; the store closes then.

        Raises `LogUnavailable`, `NotAuthorized`.
        """
        try:
            refusal = await self._log.check()
        except TopicRecreated as error:
            self._on_fault(error)
            return False
        except TopicMisconfigured:  # `run` reports it
            return True
        if refusal is not None:
            raise refusal
        return True

    async def explain(self, fault: StoreClosed | NotAuthorized) -> NotApplied:
        """The cause of a fault, if a check of the topics shows it. Noted as the reason why the store closed."""
        cause = fault
        if type(fault) is StoreClosed:
            try:
                async with asyncio.timeout(self._tuning.close_stage_ms / 1000):
                    await self._log.check()
            except (TopicRecreated, NotAuthorized) as found:
                _logger.error("%s; its cause: %s", fault.reason, found)
                cause = found
            except TopicMisconfigured as found:
                self._health.note(Part.CLOSED, found)
            except (LogUnavailable, TimeoutError) as unclear:
                _logger.info("cannot check whether the topics are the cause: %s", unclear)
        if self._health.trouble(Part.CLOSED) is None:
            self._health.note(Part.CLOSED, cause)
        return cause

    def trouble_of(self, unavailable: LogUnavailable) -> BrokerUnreachable | TakeOverBlocked:
        """Translate an error of the log into an error for the operator."""
        if isinstance(unavailable, LogBlocked):
            return TakeOverBlocked(unavailable.for_what, unavailable.fix)
        return BrokerUnreachable(self._log.settings.bootstrap_servers, str(unavailable))
