"""Change signs of sources, asked of authors' code that may not return.

Owns how long a sign is waited for. What a sign is, `SourceConnector.sign` says; what follows from one, `idle_watch`.

Invariant: of each task no more than one call is under way, and nobody waits for it longer than `SIGN_MAX_S`: what is
not known by then is None, as of a source whose tasks only can tell.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import structlog

from herdmesh.connect.errors import RetriableError
from herdmesh.engine.runtime import as_exceptions
from herdmesh.session.model import UnitId
from herdmesh.worker.state.model import TaskSpec
from herdmesh.worker.threads import in_thread

SIGN_MAX_S: Final = 10.0
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Signs:
    """Of the tasks of a worker; used from any thread."""

    def __init__(self, ask: Callable[[UnitId, TaskSpec], str | None]) -> None:
        """`ask` as `RunSpecs.sign`."""
        self._ask = ask
        self._lock = threading.Lock()
        self._asking: set[UnitId] = set()

    async def now(self, unit: UnitId, spec: TaskSpec) -> str | None:
        """The sign, None = it is not known. Raises RetriableError while the source is away."""
        try:
            async with asyncio.timeout(SIGN_MAX_S):
                return await in_thread(f"sign of {unit.log_context}", lambda: self._asked(unit, spec))
        except TimeoutError:
            return self._late(unit)

    def before_run(self, unit: UnitId, spec: TaskSpec) -> str | None:
        """As `now`, for a caller in a thread. Blocks."""
        done, found = threading.Event(), list[str | RetriableError | None]()

        def ask() -> None:
            try:
                found.append(self._asked(unit, spec))
            except RetriableError as error:
                found.append(error)
            finally:
                done.set()

        threading.Thread(target=ask, name=f"sign of {unit.log_context}", daemon=True).start()
        if not done.wait(SIGN_MAX_S):
            return self._late(unit)
        (sign,) = found
        if isinstance(sign, RetriableError):
            raise sign
        return sign

    def _asked(self, unit: UnitId, spec: TaskSpec) -> str | None:
        with self._lock:
            if unit in self._asking:
                return None
            self._asking.add(unit)
        try:
            with as_exceptions():
                return self._ask(unit, spec)
        except RetriableError:
            raise
        except Exception:  # noqa: BLE001 - an author's code may raise anything; a run then tells what is wrong
            _log.exception("no_sign", unit=unit.log_context)
            return None
        finally:
            with self._lock:
                self._asking.discard(unit)

    def _late(self, unit: UnitId) -> None:
        _log.warning(
            "sign_late", unit=unit.log_context, why=f"the connector's sign did not return within {SIGN_MAX_S:g} s",
            fix="its task runs at each interval instead; look what sign waits for",
        )  # fmt: skip
