"""Error policy of a chain, as an interface: runs one fallible stage for one record and decides about its failure.

Owns the interface between a chain and its caller, and the strict policy, which ends at the first failure. Tolerant
policies (retry, skip, report) are the engine's.

Invariant: only RecordSkipped lets a chain continue without a record; any other exception ends the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from herdmesh.connect.errors import RecordError
from herdmesh.connect.model import Batch

T = TypeVar("T")

KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER = "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"
TRANSFORMATION = "TRANSFORMATION"


class RecordSkipped(Exception):
    """Raised when a record failed and the batch continues without it."""


class Attempts(Protocol):
    """Runs one fallible stage for one record and decides about its failure."""

    @property
    def eager(self) -> bool:
        """True when every failure must be known before a batch is passed on. False lets values be decoded when a task
        reads them, for a caller that ends at the first failure and reports none."""
        ...

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        """The call's result. Raises RecordSkipped to go on without the record, anything else to stop."""
        ...


class _Strict:
    """One try, and the first failure ends the batch."""

    eager = False

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        try:
            return call()
        except Exception as error:
            raise record_error(stage, step, batch, at, error) from error


STRICT: Attempts = _Strict()


def record_error(stage: str, step: object, batch: Batch, at: int, error: Exception) -> RecordError:
    """The error for a record that ends a batch."""
    offset = batch.offsets[at] if batch.offsets else None
    return RecordError(stage, str(step), batch.topic, batch.partition, offset, error)
