"""Choice for upserts: COPY rows directly into their table, or through a staging table and a merge.

Owns that choice. A COPY into the table takes half of the server's time of a staging table and a merge, and has the same
result where no row's key exists yet. Where one exists, the server refuses it (`UniqueViolation`), the transaction is
restarted, and the rows are merged. So a stream of new keys is copied, and a stream of updates pays for a failed attempt
now and then: after each failure in a row the number of batches without an attempt doubles.

What makes the two equal, where the COPY succeeds:

1. `Statements.proof`, the merge of no row, runs before it in the transaction: the table has the unique index that the
   merge uses, the user may update, and no rule interferes. It locks the table against changes of these.
2. Another session that inserts one of the keys is waited for by a unique index, as by a merge.
3. Partitioned tables and tables with triggers are excluded: a trigger fires for a merge as for an update, even of no
   row. A trigger created during the session fires for the inserts alone.

Invariant: a failed attempt leaves only dead rows, which a vacuum removes.
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
