"""Base class of tasks that read tables: the schedule of tables, and the progress in each.

Owns the schedule of the tables and their places. Each source owns its connection and opens passes over its tables.

Invariant: a table's place moves only by batches that were handed to the run, in their order; after any failure, reading
continues after the last of them.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from herdmesh.connectors.table_source.offsets import TablePlace
from herdmesh.connectors.table_source.relation import Relation
from herdmesh.connectors.table_source.settings import Mode, TableSettings
from herdmesh.sdk import SourceBatch, SourceTask, SourceTaskContext

CONNECT_AGAIN_S: Final = 1.0
"""Pause before the next connection attempt after an error."""
TIES_MAX: Final = 100_000
"""Maximum rows with the same place that are kept in memory until the place changes."""


class Sweep(Protocol):
    """One pass over the new rows of a table."""

    @property
    def place(self) -> TablePlace:
        """The place of the last batch."""
        ...

    @property
    def is_among_ties(self) -> bool:
        """True when more rows with the place of the last batch follow."""
        ...

    def batch(self, rows_max: int) -> SourceBatch | None:
        """Return the next batch, of about `rows_max` rows; None = the end, and the sweep is closed."""
        ...

    def close(self) -> None:
        """End the pass. A second call does nothing."""
        ...


@dataclass(slots=True, eq=False)
class TableProgress:
    """One table, or the query, and the progress of reading it."""

    relation: Relation
    place: TablePlace
    from_now: bool
    """Start at the time of the first query."""
    due_s: float = 0.0
    """Time of the next read, by the monotonic clock."""


T = TypeVar("T", bound=TableSettings)
P = TypeVar("P", bound=TableProgress)


class TableSourceTask(SourceTask, Generic[T, P]):
    """Reads its tables, or the query, in turn. Connects to the database at the first poll, which is retried."""

    _settings: T
    _context: SourceTaskContext
    _tables: deque[P]
    _sweep: Sweep | None = None
    _swept: P | None = None

    def may_yield(self) -> bool:
        """False in the middle of a table without places, and until all such tables were read, because the next run
        reads them again from the beginning. False among rows of one place.
        """
        if self._settings.mode is Mode.BULK:
            return self._sweep is None and all(table.due_s > 0.0 for table in self._tables)
        return self._sweep is None or not self._sweep.is_among_ties

    @abstractmethod
    def _begin(self, table: P) -> SourceBatch | None:
        """Open a sweep (`_open`) if the table may have new rows. Returns a batch only to store a place."""

    def _wait_for_rows(self, looked_at: set[P]) -> bool:
        """Called when no table is due. True = check the tables again that were removed from `looked_at`."""
        return False

    def _start_place(self, offset: Mapping[str, Any] | None) -> tuple[TablePlace, bool]:
        """Return the start for this stored offset, and whether the time of the first query replaces it."""
        settings = self._settings
        if settings.mode is Mode.BULK:
            return TablePlace(), False
        if offset is None and settings.mode.has_timestamp:
            return TablePlace(moment_us=settings.initial_us), settings.from_now
        return TablePlace.of(offset), False

    def _next_due_ms(self) -> int:
        """Milliseconds until a table is due, at least 1."""
        due_s = min((table.due_s for table in self._tables), default=0.0)
        return max(1, int((due_s - time.monotonic()) * 1000))

    def _poll_tables(self) -> SourceBatch | None:
        """Return the next batch of the due tables; each table is checked once."""
        looked_at: set[P] = set()
        while True:
            was_reading = self._sweep is not None
            batch = self._next_batch()
            if batch is not None or (was_reading and self._settings.mode is Mode.BULK and self.may_yield()):
                return batch  # None, though a table may be due again already: other tasks get their turn here
            now_s = time.monotonic()
            due = next((one for one in self._tables if one.due_s <= now_s and one not in looked_at), None)
            if due is not None:
                looked_at.add(due)
                batch = self._begin(due)
                if batch is not None:
                    return batch
            elif not self._wait_for_rows(looked_at):
                return None

    def _open(self, table: P, sweep: Sweep) -> None:
        """Read from this sweep until its end."""
        self._sweep, self._swept = sweep, table

    def _put_off(self, table: P) -> None:
        """Mark the table as read: it is due again after the poll interval, behind all others."""
        table.due_s = time.monotonic() + self._settings.poll_ms / 1000
        self._tables.remove(table)
        self._tables.append(table)

    def _close_sweep(self) -> None:
        """Close the open sweep, if there is one. Places stay."""
        if self._sweep is not None:
            self._sweep.close()
        self._sweep = self._swept = None

    def _next_batch(self) -> SourceBatch | None:
        """Return the next batch of the open sweep; None = there is no sweep, or it has ended."""
        if self._sweep is None or self._swept is None:
            return None
        batch = self._sweep.batch(max(1, min(self._settings.batch_rows, self._context.poll_records_max())))
        if self._settings.mode is not Mode.BULK:
            self._swept.place = self._sweep.place
        if batch is None:
            self._put_off(self._swept)
            self._sweep = self._swept = None
        return batch
