"""A filter of librdkafka's repeated log lines while a broker is down.

A client that has lost all brokers retries its first address at its shortest pause, some eighty times a second
(librdkafka 2.16), and logs each attempt: a run of a sink had 970 lines from a broker restart of 8 s.
Owns which lines are suppressed and their count, not where the others go. Invariant: for each connection of each client
the first failure is passed on at once, then one per `PAUSE_S` with the number of suppressed lines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

PAUSE_S: Final = 10.0
_FAILURE: Final = "FAIL ["
_END_OF_NAME: Final = "]: "
_KEPT_MAX: Final = 1_000


class Repeats:
    """A filter for one logger of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}
        """For each connection of a client: when its last line was passed on, and how many were suppressed since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True for a line to pass on; its text then has the number of suppressed lines. At level DEBUG every line
        passes.
        """
        text = record.getMessage()
        if not text.startswith(_FAILURE) or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        now_s, connection = self._clock(), text.partition(_END_OF_NAME)[0]
        told_s, left_out = self._told.get(connection, (-PAUSE_S, 0))
        if now_s - told_s < PAUSE_S:
            self._told[connection] = told_s, left_out + 1
            return False
        if len(self._told) >= _KEPT_MAX:
            self._told = {name: one for name, one in self._told.items() if now_s - one[0] < PAUSE_S}
        self._told[connection] = now_s, 0
        if left_out:
            record.msg, record.args = f"{text} ({left_out} similar messages since {now_s - told_s:.0f} s ago)", ()
        return True
