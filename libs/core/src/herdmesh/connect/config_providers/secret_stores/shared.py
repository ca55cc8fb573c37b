"""Shared lookup of generated secrets: concurrent callers get one secret instead of one each.

Owns the time for which a generated secret is shared. Without sharing, a connector of 500 tasks would create hundreds of
logins: each task looks the secret up for the connector's config and for its own.

Invariant: no caller gets a secret with less than nine tenths of its time to live left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from herdmesh.connect.config_providers.secret_stores.store import Secret

K = TypeVar("K")
SHARED_S: Final = 30.0
"""Maximum sharing time: after a login was revoked, a restart of its users soon gets another one."""
_SHARED_PART: Final = 0.1
"""Maximum sharing time as a fraction of the time to live."""


@dataclass(slots=True)
class _LookUp:
    began_s: float
    """Start on this process's clock: the secret's lease begins no earlier."""
    found: Future[Secret] = field(default_factory=Future[Secret])

    def is_over(self, now_s: float) -> bool:
        """True once the secret is no longer shared. A running lookup serves all concurrent callers."""
        if not self.found.done():
            return False
        ttl_ms = None if self.found.exception() else self.found.result().ttl_ms
        return ttl_ms is None or now_s - self.began_s >= min(SHARED_S, ttl_ms / 1_000 * _SHARED_PART)


class SharedLookUps(Generic[K]):
    """Shared lookups by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_up: dict[K, _LookUp] = {}

    def get(self, at: K, look_up: Callable[[], Secret]) -> Secret:
        """The secret, with the rest of its `ttl_ms`.

        Waits for a running lookup and raises its error. A failed lookup, or one whose secret has no time to live, is
        shared only with the callers that waited for it.
        """
        now_s = time.monotonic()
        with self._lock:
            mine = None
            found = self._looked_up.get(at)
            if found is None or found.is_over(now_s):
                self._looked_up = {key: one for key, one in self._looked_up.items() if not one.is_over(now_s)}
                found = mine = self._looked_up[at] = _LookUp(now_s)
        if mine is not None:
            try:
                mine.found.set_result(look_up())
            except BaseException as error:
                mine.found.set_exception(error)
                raise
        secret = found.found.result()  # waits: for the thread that looks up, whose attempts are bounded
        if mine is not None or secret.ttl_ms is None:
            return secret
        age_ms = round((time.monotonic() - found.began_s) * 1_000)
        return replace(secret, ttl_ms=max(0, secret.ttl_ms - age_ms))
