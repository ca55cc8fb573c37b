"""Counts of a task's records: read, written, dropped, failed.

Owns the values and their arithmetic, for the code that counts (engine), passes counts on (worker) or keeps them from
one start of a task to the next (herder). Counts nothing itself.

Invariant: counts of two separate stretches of a task's work add up to the counts of both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Records that failed (docs/reference/connect/data-model.md, section 6.6)."""

    failures: int = 0
    """Failed attempts, including those that were retried."""
    errors: int = 0
    """Operations that failed in the end."""
    skipped: int = 0
    """Skipped records."""
    retries: int = 0
    logged: int = 0
    """Failures written to the log."""
    dead_letters: int = 0
    """Records sent to the dead letter queue."""
    dead_letters_failed: int = 0
    """Those of `dead_letters` that Kafka rejected."""
    last_error_ms: int = 0
    """Epoch time of the last failure, 0 = none."""
    dead_letters_cut: int = 0
    """Those of `dead_letters` that were too large for the queue's topic: they have the place of their record instead.
    """

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.failures + other.failures,
            self.errors + other.errors,
            self.skipped + other.skipped,
            self.retries + other.retries,
            self.logged + other.logged,
            self.dead_letters + other.dead_letters,
            self.dead_letters_failed + other.dead_letters_failed,
            max(self.last_error_ms, other.last_error_ms),
            self.dead_letters_cut + other.dead_letters_cut,
        )


NO_ERRORS = ErrorCounts()


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Counts of a task since its connector was created, over all its starts and runs."""

    records_in: int = 0
    """Records read from Kafka (sink) or polled (source)."""
    records_out: int = 0
    """Records written to the target (sink) or to Kafka (source)."""
    records_dropped: int = 0
    """Records that a transformation filtered, or that failed and were skipped."""
    errors: ErrorCounts = NO_ERRORS
    """Records that failed."""

    def __add__(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.records_dropped + other.records_dropped,
            self.errors + other.errors,
        )


NO_COUNTS = TaskCounts()
