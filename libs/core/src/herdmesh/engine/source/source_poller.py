"""Poller of a source task: calls `poll`, and knows the position of each source partition.

Owns the calls of `poll`, and the last offset of each source partition in the run. The loop handles the batches.

Invariant: a task that cannot poll now is polled again, after pauses that double up to a second (Connect makes no
pauses, so a database that is unreachable is queried as fast as it fails); an offset without records is passed on only
if it advances.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from herdmesh.connect.errors import DataError, RetriableError, error_text
from herdmesh.connect.spi import SourceBatch, SourceTask, shown, waits
from herdmesh.engine.source.source_offsets import SourceOffsets

_CANNOT_POLL_S = 60.0
"""Minimum time between two warnings that the task cannot poll."""
FIRST_PAUSE_S, PAUSE_MAX_S = 0.1, 1.0
"""First and longest pause between two polls of a task that cannot poll. No longer, because a failed source often comes
back while work waits.
"""

_log = logging.getLogger(__name__)


class SourcePoller:
    """The poller of one run."""

    def __init__(self, task: SourceTask, connector: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.offsets = SourceOffsets(connector)
        """The committed offsets before the run."""
        self.found_nothing = False
        """The last poll succeeded and returned nothing; False after a poll that failed."""
        self._task = task
        #: last offset by source partition: committed before the run, or returned by the task.
        self._reached: dict[bytes, bytes | None] = {}
        #: time of the last warning that the task cannot poll; None = it can.
        self._warned_s: float | None = None
        self._cannot_poll = waits.Standing()
        self._clock = clock
        #: the last pause, and when it is over; 0 = the task can poll.
        self._pause_s = self._paused_until_s = 0.0

    def go_on_from(self, offsets: SourceOffsets) -> None:
        """Set the committed offsets. Called once, before the first poll."""
        self.offsets = offsets
        self._reached.update(offsets.items())

    def poll(self) -> SourceBatch | None:
        """Records of the task, or an offset without records. After a RetriableError the task is polled again, without a
        limit, as in Connect.
        """
        self.found_nothing = False
        if self._paused_until_s and self._clock() < self._paused_until_s:
            return None
        try:
            polled: Any = self._task.poll()
        except RetriableError as error:
            now_s = self._clock()
            if self._warned_s is None or now_s - self._warned_s >= _CANNOT_POLL_S:
                self._warned_s = now_s
                _log.warning("the task cannot poll now; retrying: %s", error_text(error))
            next_try_s = error.next_try_s
            if next_try_s is None:
                next_try_s = self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), PAUSE_MAX_S)
                self._paused_until_s = now_s + next_try_s
            self._cannot_poll.goes_on(
                error.waits_for or "the source of its task", error_text(error), tried=error.tried, next_try_s=next_try_s
            )
            return None
        self._pause_s = self._paused_until_s = 0.0
        self._warned_s = None
        self._cannot_poll.over()
        if polled is not None and not isinstance(polled, SourceBatch):
            raise DataError(f"poll returned {shown(polled)}: return a SourceBatch, or None when there is nothing")
        batch = polled
        self.found_nothing = batch is None or not (len(batch) or self._moves(batch))
        return None if self.found_nothing else batch

    def reached(self, batch: SourceBatch) -> tuple[bytes, bytes | None]:
        """Note that everything before the batch's offset is sent. Returns the offset in the bytes of the offsets
        topic."""
        key, value = self.offsets.record(batch.source_partition, batch.source_offset)
        self._reached[key] = value
        return key, value

    def _moves(self, batch: SourceBatch) -> bool:
        """True when the batch's offset differs from the last one."""
        key, value = self.offsets.record(batch.source_partition, batch.source_offset)
        return self._reached.get(key) != value
