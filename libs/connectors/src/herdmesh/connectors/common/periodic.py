"""Periodic work of a connector in a background thread: `Repeated`,
and `Lookout`, which discovers a source's partitions.

Owns the threads, logging of failures and reporting of waits. Knows no source. Invariant: a failed attempt never ends
the thread; the failure is logged and the action retried after the interval.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from herdmesh.connect.spi import Standing, Waits, entered
from herdmesh.sdk import ConnectError, ConnectorContext, RetriableError

_log = logging.getLogger(__name__)
Found = TypeVar("Found")


class Repeated:
    """Calls an action at an interval, in a background thread, until it is closed. An exception is logged, and shown as
    a wait of the connector until the action succeeds.
    """

    def __init__(
        self,
        doing: str,
        action: Callable[[], None],
        every_s: float,
        *,
        at_once: bool = False,
        waits: Waits | None = None,
    ) -> None:
        """`doing`: the action's name, for the log. `at_once`: call the action immediately, before the first interval.
        `waits`: the connector's waits.
        """
        self._doing, self._action, self._every_s = doing, action, every_s
        self._waits = waits or Waits()
        self._over = threading.Event()
        threading.Thread(target=self._go, args=(at_once,), name=doing, daemon=True).start()

    def close(self) -> None:
        """Stop calling the action. Does not wait for a call in progress."""
        self._over.set()

    def _go(self, at_once: bool) -> None:
        with entered(self._waits), Standing() as fails:
            while at_once or not self._over.wait(self._every_s):  # waits: for the interval, or for what `fails` reports
                at_once = False
                try:
                    self._action()
                except Exception as error:  # noqa: BLE001 - any other error would end this thread, and with it the action
                    is_odd = not isinstance(error, ConnectError)
                    _log.warning("%s failed and is retried later: %s", self._doing, error, exc_info=is_odd)
                    waits_for = error.waits_for if isinstance(error, RetriableError) else ""
                    message = f"{self._doing} failed: {error}"
                    fails.goes_on(waits_for or self._doing, message, tried=True, next_try_s=self._every_s)
                else:
                    fails.over()


class Lookout(Generic[Found]):
    """Discovery of the things that a connector distributes among its tasks: once at creation,
    and periodically while a worker runs the connector. Requests a task reconfiguration
    when the result changes. An empty result is shown as a wait of the connector.
    """

    found: Sequence[Found]
    """The result of the last discovery."""

    def __init__(
        self,
        what: str,
        look: Callable[[], Sequence[Found]],
        every_s: float | None,
        context: ConnectorContext | None,
        *,
        nothing: str = "",
    ) -> None:
        """Raises what the first discovery raises.

        Args:
            what: the things to discover; for the log.
            every_s: the interval; None = discover once.
            nothing: the settings that select things, named in the wait when nothing is found.
        """
        self._what, self._look, self._context = what, look, context
        self._nothing, self._every_s = nothing, every_s
        self._again: Repeated | None = None
        self._finds_nothing = Standing(None if context is None else context.waits)
        self.found = look()
        if context is not None and every_s is not None:
            self._note()
            self._again = Repeated(f"looking for {what}", self._look_again, every_s, waits=context.waits)

    def close(self) -> None:
        """Stop the discovery. Does not wait for a discovery in progress."""
        self._finds_nothing.over()
        if self._again is not None:
            self._again.close()

    def _look_again(self) -> None:
        found = self._look()
        if found != self.found:
            _log.info("there are %d %s now, %d before", len(found), self._what, len(self.found))
            self.found = found
            if self._context is not None:
                self._context.request_task_reconfiguration()
        self._note()

    def _note(self) -> None:
        if self.found:
            self._finds_nothing.over()
            return
        message = f"nothing was found to read, so there are no tasks: check {self._nothing}"
        self._finds_nothing.goes_on(self._what, message, next_try_s=self._every_s)
