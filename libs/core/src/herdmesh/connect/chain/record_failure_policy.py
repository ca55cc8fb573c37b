"""Error policy of a chain, as an interface: runs one fallible stage for one record and decides about its failure.

Owns the interface between a chain and its caller, and the strict policy, which ends at the first failure. Tolerant
policies (retry, skip, report) belong to the engine.

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
    """Policy that runs one fallible stage for one record and decides about its failure."""

    @property
    def eager(self) -> bool:
        """True when every failure must be known before a batch is passed on. False allows values to be decoded when a
        task reads them, for a caller that ends at the first failure and reports none.
        """
        ...

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        """Run the call and return its result. Raises RecordSkipped to continue without the record, any other exception
        to stop.
        """
        ...


class _Strict:
    """Policy without retries: the first failure ends the batch."""

    eager = False

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        try:
            return call()
        except Exception as error:
            raise record_error(stage, step, batch, at, error) from error


STRICT: Attempts = _Strict()


def record_error(stage: str, step: object, batch: Batch, at: int, error: Exception) -> RecordError:
    """The error that ends a batch, for a failed record."""
    offset = batch.offsets[at] if batch.offsets else None
    return RecordError(stage, str(step), batch.topic, batch.partition, offset, error)
