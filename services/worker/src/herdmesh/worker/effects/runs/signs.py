"""Change signs of sources, called in threads of their own because an author's code may not return.

Owns how long a caller waits for a sign. `SourceConnector.sign` defines what a sign is; `idle_watch` acts on it.

Invariant: each task has at most one call, and one thread, in progress, and no caller waits longer than `SIGN_MAX_S`. A
sign that is not known by then is None, as for a source that only its tasks can query.
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
    """Change signs of a worker's tasks. Thread-safe."""

    def __init__(self, ask: Callable[[UnitId, TaskSpec], str | None]) -> None:
        """`ask` returns the sign, as `RunSpecs.sign`."""
        self._read_sign = ask
        self._lock = threading.Lock()
        self._in_progress: set[UnitId] = set()

    async def now(self, unit: UnitId, spec: TaskSpec) -> str | None:
        """The sign, or None if it is not known. Raises RetriableError while the source is unreachable."""
        if not self._begins(unit):
            return None
        try:
            async with asyncio.timeout(SIGN_MAX_S):
                return await in_thread(f"sign of {unit.log_context}", lambda: self._call(unit, spec))
        except TimeoutError:
            return self._late(unit)
        except RuntimeError:  # no thread could be started: the call did not begin
            self._ends(unit)
            raise

    def before_run(self, unit: UnitId, spec: TaskSpec) -> str | None:
        """Like `now`, for a caller in a thread. Blocks."""
        if not self._begins(unit):
            return None
        done, found = threading.Event(), list[str | RetriableError | None]()

        def ask() -> None:
            try:
                found.append(self._call(unit, spec))
            except RetriableError as error:
                found.append(error)
            finally:
                done.set()

        try:
            threading.Thread(target=ask, name=f"sign of {unit.log_context}", daemon=True).start()
        except RuntimeError:
            self._ends(unit)
            raise
        if not done.wait(SIGN_MAX_S):
            return self._late(unit)
        (sign,) = found
        if isinstance(sign, RetriableError):
            raise sign
        return sign

    def _begins(self, unit: UnitId) -> bool:
        """Register a call. False while an earlier call has not returned: a second one would leave one more thread
        behind.
        """
        with self._lock:
            if unit in self._in_progress:
                return False
            self._in_progress.add(unit)
            return True

    def _ends(self, unit: UnitId) -> None:
        with self._lock:
            self._in_progress.discard(unit)

    def _call(self, unit: UnitId, spec: TaskSpec) -> str | None:
        try:
            with as_exceptions():
                return self._read_sign(unit, spec)
        except RetriableError:
            raise
        except Exception:  # noqa: BLE001 - an author's code may raise anything; a run then reports the error
            _log.exception("sign_failed", unit=unit.log_context)
            return None
        finally:
            self._ends(unit)

    def _late(self, unit: UnitId) -> None:
        _log.warning(
            "sign_late", unit=unit.log_context, why=f"the connector's sign did not return within {SIGN_MAX_S:g} s",
            fix="its task runs at each interval instead; find out what sign waits for",
        )  # fmt: skip
