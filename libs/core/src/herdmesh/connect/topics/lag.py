"""Lag of a sink, as two figures.

    behind        end of the partition minus position: records that the task has not read and put yet
    uncommitted   position minus committed offset: records that it has put, whose offsets are not committed yet; all
                  that it has put, if its run has committed none

A task that keeps up is 0 behind whatever its commit interval is; the uncommitted records grow between two commits and
are read again after a crash. Owns this arithmetic for workers, herders and the CLI, so that all show the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Offsets(Protocol):
    """Offsets of a task in one partition; implemented by the wire message and by the worker's own value. Less than 0 =
    not known.
    """

    @property
    def committed_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def pending_records(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Lag:
    """The sum over all partitions; None where it is unknown."""

    behind: int | None = 0
    uncommitted: int | None = 0

    @property
    def total(self) -> int | None:
        """Records that are not committed, whether read or not."""
        return None if self.behind is None else self.behind + (self.uncommitted or 0)


NOT_KNOWN = Lag(None, None)


def behind(one: Offsets) -> int | None:
    """Records of one partition that the task has not read and put yet."""
    if one.position < 0 or one.end_offset < 0:
        return None
    return max(0, one.end_offset - one.position)


def uncommitted(one: Offsets) -> int | None:
    """Records of one partition that the task has read and put, and not committed yet."""
    if one.position < 0:
        return None
    if one.committed_offset < 0:
        return one.pending_records
    return max(0, one.position - one.committed_offset)


def lag_of(partitions: Iterable[Offsets]) -> Lag:
    """The lag of a task that owns these partitions."""
    parts = list(partitions)
    return Lag(_sum(behind(one) for one in parts), _sum(uncommitted(one) for one in parts))


def sum_of(lags: Iterable[Lag]) -> Lag:
    """The lag of a connector, from that of its tasks."""
    found = list(lags)
    return Lag(_sum(one.behind for one in found), _sum(one.uncommitted for one in found))


def _sum(records: Iterable[int | None]) -> int | None:
    total = 0
    for one in records:
        if one is None:
            return None
        total += one
    return total
