"""Choice for upserts: COPY rows directly into their table, or through a staging table and a merge.

Owns that choice. A COPY into the table takes half of the server's time of a staging table and a merge, and has the same
result if no row's key exists yet. If one exists, the server refuses it (`UniqueViolation`), the transaction is
restarted, and the rows are merged. So a stream of new keys is copied, and a stream of updates pays for a failed attempt
now and then: after each consecutive failure the number of batches without an attempt doubles.

Conditions under which a successful COPY equals a merge:

1. `Statements.proof`, the merge of no row, runs before it in the transaction: the table has the unique index that the
   merge uses, the user may update, and no rule interferes. It locks the table against changes of these.
2. A unique index makes the COPY wait for another session that inserts one of the keys, like a merge.
3. Partitioned tables and tables with triggers are excluded: a trigger fires for a merge as for an update, even of no
   row. A trigger created during the session fires for the inserts alone.

Invariant: a failed attempt leaves only dead rows, which a vacuum removes.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

ROWS_MIN = 200
"""Minimum rows for an attempt: for fewer the proof and
a failed attempt would cost more than the COPY saves.
"""
_PAUSE_MIN, _PAUSE_MAX = 4, 64
"""Minimum and maximum number of batches without an attempt, after failures."""
#: Violations that make this COPY fail and that a merge may avoid; the merge decides.
_REFUSALS = (errors.UniqueViolation, errors.ExclusionViolation)
_CHANGED = ("0A", "42")
"""Classes of errors when the table does not accept COPY
any more, or a column, privilege or index has changed.
"""


class Attempts:
    """Attempts of one session, by topic."""

    def __init__(self) -> None:
        #: remaining batches until the next attempt, and the last pause in batches.
        self._pauses: dict[str, tuple[int, int]] = {}

    def due(self, topic: str) -> bool:
        """Return whether to attempt a COPY of the next batch; called once for each eligible batch."""
        left, pause = self._pauses.get(topic, (0, 0))
        if left:
            self._pauses[topic] = left - 1, pause
        return not left

    def succeeded(self, topic: str) -> None:
        """Note that no key existed."""
        self._pauses.pop(topic, None)

    def failed(self, topic: str, error: psycopg.Error) -> bool:
        """Return whether to merge instead; False: a merge would fail with the same error."""
        if not isinstance(error, _REFUSALS) and not (error.sqlstate or "").startswith(_CHANGED):
            return False
        _, pause = self._pauses.get(topic, (0, 0))
        pause = min(max(2 * pause, _PAUSE_MIN), _PAUSE_MAX)
        self._pauses[topic] = pause, pause
        return True
