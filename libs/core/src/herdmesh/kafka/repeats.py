"""Which of librdkafka's log lines are passed on while a broker is away.

A client that has lost all brokers begins anew with its first address at its shortest pause for as long as that lasts,
some eighty times a second (librdkafka 2.16), and logs each try: a run of a sink had 970 lines of a restart of 8 s.
Owns what is left out and its count, not where the rest goes. Invariant: of each connection of each client the first
failure is passed on at once, and then one in `PAUSE_S` with the number of those left out.
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
    """A filter of a logger, of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}
        """Of each client's connection: when it was passed on last, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True for what is passed on, whose text then says how many were left out. Everything, at level DEBUG."""
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
            record.msg, record.args = f"{text} ({left_out} more like it since {now_s - told_s:.0f} s ago)", ()
        return True
