"""A cache of change signs of sources. The worker fetches the sign of each idle source several times a second.

Owns how long a sign is reused. A connector is created anew for each request, so each cache belongs to a module.
Invariant: a sign is never older than its connector allows.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from herdmesh.sdk import Config

SIGN_KEPT_S = 0.5
"""Minimum time for which a sign is reused; the worker requests signs four times a second."""
_SIGNS_MAX = 1_000


class KeptSigns:
    """The last sign of each task config, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[tuple[str, str | None], ...], tuple[float, str]] = OrderedDict()

    def of(self, task_config: Config, look: Callable[[], str], kept_s: float = SIGN_KEPT_S) -> str:
        """Return the sign of a task config, at most `kept_s` old; `look` computes it. Raises what `look` raises."""
        key = tuple(sorted(task_config.items()))
        with self._lock:
            looked_s, sign = self._kept.get(key, (0.0, ""))
        if sign and time.monotonic() - looked_s < kept_s:
            return sign
        looked_s = time.monotonic()
        sign = look()
        with self._lock:
            self._kept[key] = looked_s, sign
            self._kept.move_to_end(key)
            if len(self._kept) > _SIGNS_MAX:
                self._kept.popitem(last=False)
        return sign
