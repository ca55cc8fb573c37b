"""Metrics of a store on /metrics: writes, transactions, applied records, lag of the reader, watchers, snapshot.

Owns the names, one store's counts of its callers' writes, and the producer that exports them from `start` to `close`.
The parts count for themselves (`applied`, `watch`, `writes`); they are read when the page is requested.

Invariant: nothing here is done per record. The page's thread only reads single numbers and lengths.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar, runtime_checkable

from herdmesh.rpc import telemetry
from herdmesh.rpc.telemetry import Buckets, Family, Kind
from herdmesh.topicstore.errors import NotApplied, WriteOutcomeUnknown

_T = TypeVar("_T")

#: Upper bounds in ms. A write alone takes some 5 ms; a transaction may take as long as its timeout.
LATENCY_BOUNDS_MS: Final = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0)


class Written(StrEnum):
    """The outcome of a caller's write: the label `outcome`."""

    APPLIED = "applied"
    """The write was answered: its records are applied, or it was a no-op."""
    NOT_APPLIED = "not_applied"
    """The write is certainly not applied and may be sent again: not the writer, fenced, queue full, closed."""
    UNKNOWN = "unknown"
    """The write may or may not be applied."""
    REFUSED = "refused"
    """The service's rules or Kafka refused the write; a retry is refused again."""
    LEFT = "left"
    """The caller went away before the answer."""


@runtime_checkable
class CountedState(Protocol):
    """Sizes that a state may offer. A state without them has no such series."""

    @property
    def connector_count(self) -> int:
        """Connectors in a snapshot."""
        ...

    @property
    def undecodable_count(self) -> int:
        """The number of unreadable records of the topic so far."""
        ...


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """The current counters of the parts of a store."""

    is_writer: bool
    transactions: int
    transactions_failed: int
    records_applied: int
    reader_lag_offsets: int
    watchers: int
    watchers_cut_off: int
    state: object


class StoreMetrics:
    """Metrics of one store, on the page between `show` and `hide`. The thread that serves the page calls `read`."""

    def __init__(self, topic: str, read: Callable[[], StoreFigures]) -> None:
        self._labels = {"topic": topic}
        self._read = read
        self._writes = dict.fromkeys(Written, 0)
        self._latency_counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self._latency_total_ms = 0.0
        self._remove: Callable[[], None] | None = None

    def show(self) -> None:
        """Add the series to the page."""
        if self._remove is None:
            self._remove = telemetry.add_producer("herdmesh.topicstore", self.families)

    def hide(self) -> None:
        """Remove the series from the page."""
        if self._remove is not None:
            remove, self._remove = self._remove, None
            remove()

    async def timed(self, write: Awaitable[_T]) -> _T:
        """Await the write, count its outcome and, when it was applied, its latency. Returns its result."""
        begun_s = time.monotonic()
        try:
            answer = await write
        except BaseException as error:
            self._writes[_outcome(error)] += 1
            raise
        took_ms = (time.monotonic() - begun_s) * 1000
        self._writes[Written.APPLIED] += 1
        self._latency_counts[bisect_left(LATENCY_BOUNDS_MS, took_ms)] += 1
        self._latency_total_ms += took_ms
        return answer

    def families(self) -> Iterator[Family]:
        """The current series."""
        now = self._read()
        writes = [({**self._labels, "outcome": outcome.value}, float(n)) for outcome, n in self._writes.items()]
        yield Family("herdmesh_store_writes_total", Kind.COUNTER, WRITES, writes)
        latency = Buckets(list(self._latency_counts), LATENCY_BOUNDS_MS, self._latency_total_ms)
        yield Family("herdmesh_store_write_latency_ms", Kind.HISTOGRAM, LATENCY, [(self._labels, latency)])
        for name, (kind, description, value) in _NUMBERS.items():
            if (number := value(now)) is not None:
                yield Family(name, kind, description, [(self._labels, float(number))])


def _outcome(error: BaseException) -> Written:
    match error:
        case WriteOutcomeUnknown():
            return Written.UNKNOWN
        case NotApplied():
            return Written.NOT_APPLIED
        case asyncio.CancelledError():
            return Written.LEFT
        case _:  # open: a decision may raise any exception
            return Written.REFUSED


WRITES: Final = "Writes of callers, by outcome: applied, not_applied, unknown, refused, left (the caller disconnected)."
LATENCY: Final = "Time from a caller's write until its records were applied here; applied writes only."
_NUMBERS: Final[dict[str, tuple[Kind, str, Callable[[StoreFigures], float | None]]]] = {
    "herdmesh_store_is_writer": (
        Kind.GAUGE,
        "1 when this replica is the writer; the sum over all replicas of a topic is 1.",
        lambda now: now.is_writer,
    ),
    "herdmesh_store_transactions_total": (
        Kind.COUNTER,
        "Transactions begun; one carries the writes of several callers.",
        lambda now: now.transactions,
    ),
    "herdmesh_store_transactions_failed_total": (
        Kind.COUNTER,
        "Transactions that were not confirmed, or were confirmed and not found in the topic.",
        lambda now: now.transactions_failed,
    ),
    "herdmesh_store_records_applied_total": (
        Kind.COUNTER,
        "Records of the topic, and of its audit topic, applied to the state, including the first replay.",
        lambda now: now.records_applied,
    ),
    "herdmesh_store_reader_lag_offsets": (
        Kind.GAUGE,
        "Offsets between the reader and the topic's end at the last read that fetched it, over all partitions.",
        lambda now: now.reader_lag_offsets,
    ),
    "herdmesh_store_watchers": (Kind.GAUGE, "Open watches.", lambda now: now.watchers),
    "herdmesh_store_watchers_cut_off_total": (
        Kind.COUNTER,
        "Watches ended because their callers read too slowly.",
        lambda now: now.watchers_cut_off,
    ),
    "herdmesh_store_snapshot_connectors": (
        Kind.GAUGE,
        "Connectors in a snapshot.",
        lambda now: now.state.connector_count if isinstance(now.state, CountedState) else None,
    ),
    "herdmesh_store_undecodable_records_total": (
        Kind.COUNTER,
        "Undecodable records since the start, replayed ones included; the store's status lists the latest.",
        lambda now: now.state.undecodable_count if isinstance(now.state, CountedState) else None,
    ),
}
#: Kind and description of every series, by name.
STORE_METRICS: Final[dict[str, tuple[Kind, str]]] = {
    "herdmesh_store_writes_total": (Kind.COUNTER, WRITES),
    "herdmesh_store_write_latency_ms": (Kind.HISTOGRAM, LATENCY),
    **{name: (kind, description) for name, (kind, description, _) in _NUMBERS.items()},
}
