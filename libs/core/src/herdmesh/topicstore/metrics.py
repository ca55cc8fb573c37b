"""Metrics of a store on /metrics: role, condition, revision, replay, writes, transactions, reader's lag, watchers.

Owns the names, one store's counts of its callers' writes, and the producer that exports them from `start` to `close`.
The parts count for themselves (`applied`, `watch`, `writes`); they are read when the page is requested.

Invariant: nothing here is done per record. The page's thread only reads single numbers and lengths.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar, runtime_checkable

from herdmesh.rpc.monitoring import telemetry
from herdmesh.rpc.monitoring.telemetry import Buckets, Family, Kind, Labels
from herdmesh.topicstore.contract import StoreRole
from herdmesh.topicstore.errors import NotApplied, WriteOutcomeUnknown
from herdmesh.topicstore.health import StoreCondition

_T = TypeVar("_T")

#: Upper bounds in seconds. A write alone takes some 5 ms; a transaction may take as long as its timeout.
LATENCY_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0)


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
        """Connectors in this replica's state."""
        ...

    @property
    def undecodable_count(self) -> int:
        """The number of unreadable records of the topic so far."""
        ...


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """The current counters of the parts of a store."""

    role: StoreRole
    condition: StoreCondition
    #: the next offset to apply, per partition.
    next_offsets: Sequence[int]
    #: duration of the first replay in seconds, so far while it lasts; None = not begun.
    replay_s: float | None
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
        self._latency_counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._latency_total_s = 0.0
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
        took_s = time.monotonic() - begun_s
        self._writes[Written.APPLIED] += 1
        self._latency_counts[bisect_left(LATENCY_BOUNDS_S, took_s)] += 1
        self._latency_total_s += took_s
        return answer

    def families(self) -> Iterator[Family]:
        """The current series."""
        now = self._read()
        writes = [({**self._labels, "outcome": outcome.value}, float(n)) for outcome, n in self._writes.items()]
        latency = Buckets(list(self._latency_counts), LATENCY_BOUNDS_S, self._latency_total_s)
        labelled: dict[str, list[tuple[Labels, float | Buckets]]] = {
            _ROLE: [({**self._labels, "role": one.value}, float(one is now.role)) for one in StoreRole],
            _CONDITION: [
                ({**self._labels, "condition": one.value}, float(one is now.condition)) for one in StoreCondition
            ],
            _REVISION: [
                ({**self._labels, "partition": str(partition)}, float(offset))
                for partition, offset in enumerate(now.next_offsets)
            ],
            _WRITES: [*writes],
            _LATENCY: [(self._labels, latency)],
        }
        for name, points in labelled.items():
            kind, description = _LABELLED[name]
            yield Family(name, kind, description, points)
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


_ROLE: Final = "herdmesh_store_role"
_CONDITION: Final = "herdmesh_store_condition"
_REVISION: Final = "herdmesh_store_revision_offset"
_WRITES: Final = "herdmesh_store_writes_total"
_LATENCY: Final = "herdmesh_store_write_latency_seconds"
_LABELLED: Final[dict[str, tuple[Kind, str]]] = {
    _ROLE: (
        Kind.GAUGE,
        "1 for the role that this replica of the store has, 0 for all others; one replica of a topic is the writer.",
    ),
    _CONDITION: (
        Kind.GAUGE,
        "1 for the condition of this replica of the store, 0 for all others; GetStoreStatus has the fix.",
    ),
    _REVISION: (
        Kind.GAUGE,
        "Offset of the next record of the partition that this replica of the store applies: its revision.",
    ),
    _WRITES: (
        Kind.COUNTER,
        "Writes that callers sent to this store, by outcome: applied, not_applied, unknown, refused, left (the caller "
        "disconnected).",
    ),
    _LATENCY: (
        Kind.HISTOGRAM,
        "Time from a caller's write until its records were applied to this replica; applied writes only.",
    ),
}
_NUMBERS: Final[dict[str, tuple[Kind, str, Callable[[StoreFigures], float | None]]]] = {
    "herdmesh_store_replay_seconds": (
        Kind.GAUGE,
        "Time that the replay of the topic took at the start of this replica; so far, while its role is replaying.",
        lambda now: now.replay_s,
    ),
    "herdmesh_store_transactions_total": (
        Kind.COUNTER,
        "Kafka transactions that this replica began; one carries the writes of several callers.",
        lambda now: now.transactions,
    ),
    "herdmesh_store_transactions_failed_total": (
        Kind.COUNTER,
        "Kafka transactions of this replica that were not confirmed, or were confirmed and not found in the topic.",
        lambda now: now.transactions_failed,
    ),
    "herdmesh_store_records_applied_total": (
        Kind.COUNTER,
        "Records of the store's topic and its audit topic applied to this replica's state, the first replay included.",
        lambda now: now.records_applied,
    ),
    "herdmesh_store_reader_lag_offsets": (
        Kind.GAUGE,
        "Offsets between this replica's reader and the end of the topic, as of the last fetch, over all partitions.",
        lambda now: now.reader_lag_offsets,
    ),
    "herdmesh_store_watchers": (Kind.GAUGE, "Open watches of callers on this replica.", lambda now: now.watchers),
    "herdmesh_store_watchers_cut_off_total": (
        Kind.COUNTER,
        "Watches that this replica ended because their callers read too slowly.",
        lambda now: now.watchers_cut_off,
    ),
    "herdmesh_store_snapshot_connectors": (
        Kind.GAUGE,
        "Connectors in this replica's state.",
        lambda now: now.state.connector_count if isinstance(now.state, CountedState) else None,
    ),
    "herdmesh_store_undecodable_records_total": (
        Kind.COUNTER,
        "Records of the topic that this replica could not decode since its start, replayed ones included; "
        "GetStoreStatus lists the latest.",
        lambda now: now.state.undecodable_count if isinstance(now.state, CountedState) else None,
    ),
}
#: Kind and description of every series, by name.
STORE_METRICS: Final[dict[str, tuple[Kind, str]]] = {
    **_LABELLED,
    **{name: (kind, description) for name, (kind, description, _) in _NUMBERS.items()},
}
