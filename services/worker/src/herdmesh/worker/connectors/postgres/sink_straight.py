"""When rows of an upsert go straight into their table, and when through a stage.

Owns that choice. A COPY of rows into the table takes half of the server's time that a stage and a merge take, and does
the same where no row's key is there yet. Where one is, the server refuses it (`UniqueViolation`), the transaction is
begun again, and the rows are merged. So a stream of new keys is copied, and one of updates pays for a failed attempt
now and then: after each failure in a row there are twice as many batches without one.

What makes the two the same, where the COPY succeeds:

1. `Statements.proof`, the merge of no row, before it in the transaction: the table has the unique index that the merge
   goes by, the user may update, no rule stands in the way. It locks the table against changes of these.
2. Another session that inserts one of the keys is waited for by a unique index, as by a merge.
3. Partitioned tables and tables with triggers do not take part: a trigger is told of a merge as an update, too, even
   of no row. One that is made while the session lives is told of the inserts alone.

Invariant: nothing of a failed attempt stays but dead rows, which a vacuum takes away.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

ROWS_MIN = 200
"""Fewer are merged: the proof and a failed attempt would cost more than is won."""
_PAUSE_MIN, _PAUSE_MAX = 4, 64
"""Batches without an attempt, after failures."""
#: What a merge may do that this COPY may not; it has the last word.
_REFUSALS = (errors.UniqueViolation, errors.ExclusionViolation)
_CHANGED = ("0A", "42")
"""Classes: the table takes no COPY any more, or has another column, privilege or index than it had."""


class Attempts:
    """Of one session, by topic."""

    def __init__(self) -> None:
        #: batches until the next attempt, and how many there were to be between the last two.
        self._pauses: dict[str, tuple[int, int]] = {}

    def due(self, topic: str) -> bool:
        """Whether the next batch is to be tried; asked once for each that could be."""
        left, pause = self._pauses.get(topic, (0, 0))
        if left:
            self._pauses[topic] = left - 1, pause
        return not left

    def succeeded(self, topic: str) -> None:
        """No key was there."""
        self._pauses.pop(topic, None)

    def failed(self, topic: str, error: psycopg.Error) -> bool:
        """Whether to merge instead; False: the error would be a merge's, too."""
        if not isinstance(error, _REFUSALS) and not (error.sqlstate or "").startswith(_CHANGED):
            return False
        _, pause = self._pauses.get(topic, (0, 0))
        pause = min(max(2 * pause, _PAUSE_MIN), _PAUSE_MAX)
        self._pauses[topic] = pause, pause
        return True
