"""Wire form of a run's measures, in both directions. Owns only that mapping; `wire` has all others.

Invariant: an empty measure is not sent, and a missing one is read as empty.
"""

from __future__ import annotations

from herdmesh.api.worker.v1 import task_pb2
from herdmesh.engine.runtime import Latency, Measures, MeasureSpread

_NOTHING = Measures()


def measures_to(measures: Measures) -> task_pb2.TaskMeasures | None:
    """The message, None when nothing was measured."""
    if measures == _NOTHING:
        return None
    return task_pb2.TaskMeasures(
        batch_records=_spread_to(measures.batch_records),
        call_ms=_spread_to(measures.call_ms),
        commit_ms=_spread_to(measures.commit_ms),
        commit_failures=measures.commit_failures,
        transaction_records=_spread_to(measures.transaction_records),
        active_records=_spread_to(measures.active_records),
        active_records_now=measures.active_records_now,
        latency_buckets=measures.latency_ms.buckets,
        latency_ms=measures.latency_ms.total_ms,
    )


def measures_from(message: task_pb2.TaskMeasures) -> Measures:
    """The inverse."""
    return Measures(
        batch_records=_spread_from(message.batch_records),
        call_ms=_spread_from(message.call_ms),
        commit_ms=_spread_from(message.commit_ms),
        commit_failures=message.commit_failures,
        transaction_records=_spread_from(message.transaction_records),
        active_records=_spread_from(message.active_records),
        active_records_now=message.active_records_now,
        latency_ms=Latency(tuple(message.latency_buckets), message.latency_ms),
    )


def _spread_to(spread: MeasureSpread) -> task_pb2.Spread | None:
    if not spread.count:
        return None
    return task_pb2.Spread(count=spread.count, total=spread.total, smallest=spread.smallest, largest=spread.largest)


def _spread_from(message: task_pb2.Spread) -> MeasureSpread:
    return MeasureSpread(message.count, message.total, message.smallest, message.largest)
