"""Record of the replayed dead letters of a queue, and its stored form.

It is stored as the offset of a source: a replay reads a queue as a source reads its system, and its offset shares a
transaction with the records it produces (ADR 0003). It is in Connect's offsets topic, or in the offsets file of
standalone mode, under a name of its own. It is not in a consumer group: Kafka deletes the offsets of a group without
members after a week, and queues live longer. It is not in the queue: others read that.

Owns the stored form. Reads and writes no Kafka.

Invariant: a replayed dead letter is remembered until the queue's topic is deleted or recreated under the same name
(which changes its id).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from herdmesh.connect.errors import DataError

OffsetMap = Mapping[str, Any]

REQUESTS_MAX = 8
"""Limit of the outcomes kept; a retry comes soon."""
RUNS_BYTES_MAX = 500_000
_QUEUE, _PARTITION, _TOPIC_ID = "herdmesh.dlq", "partition", "topic.id"
_NEXT, _RUNS, _REQUESTS = "next", "runs", "requests"


def owner(connector: str) -> str:
    """The connector name under which the offsets of a connector's replays are stored."""
    return f"herdmesh-dlq-{connector}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a request. `next_page_token` "" = it is complete."""

    request_id: str
    replayed_count: int
    next_page_token: str = ""


class Runs:
    """Offsets of one partition: all below `next`, and ranges of offsets above it."""

    def __init__(self, next_offset: int = 0, runs: list[tuple[int, int]] | None = None) -> None:
        """`runs`: first and last offset of each range, sorted and not adjacent."""
        self.next = next_offset
        self.runs = runs or []

    def has(self, offset: int) -> bool:
        """True when the dead letter at this offset was replayed."""
        at = bisect_right(self.runs, (offset, offset)) - 1
        inside = any(first <= offset <= last for first, last in self.runs[max(0, at) : at + 2])
        return offset < self.next or inside

    def add(self, first: int, last: int) -> None:
        """Add a range; it is empty when `last` is below `first`."""
        if last < first:
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted([*self.runs, (first, last)]):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], end)
            else:
                merged.append((begin, end))
        while merged and merged[0][0] <= self.next:
            self.next = max(self.next, merged.pop(0)[1] + 1)
        self.runs = merged

    def forget_below(self, beginning: int) -> None:
        """Treat all lower offsets as replayed: they are no longer in the queue."""
        self.add(0, beginning - 1)


@dataclass(slots=True)
class Replays:
    """All replays of one connector from one queue."""

    topic: str
    topic_id: str
    partitions: dict[int, Runs] = field(default_factory=dict[int, Runs])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def has(self, partition: int, offset: int) -> bool:
        """True when the dead letter was replayed."""
        runs = self.partitions.get(partition)
        return runs is not None and runs.has(offset)

    def of(self, partition: int) -> Runs:
        """The mutable record of a partition."""
        return self.partitions.setdefault(partition, Runs())

    def outcome(self, request_id: str) -> Outcome | None:
        """The outcome of an earlier request, None = unknown."""
        return next((one for one in self.outcomes if request_id and one.request_id == request_id), None)

    def note(self, outcome: Outcome) -> None:
        """Record the outcome of a request."""
        if outcome.request_id:
            self.outcomes = [*self.outcomes, outcome][-REQUESTS_MAX:]

    # --- stored form

    def source_partition(self, partition: int | None) -> OffsetMap:
        """The source partition for a partition of the queue; None = for the requests."""
        return {_QUEUE: self.topic} if partition is None else {_QUEUE: self.topic, _PARTITION: partition}

    def offset_of(self, partition: int | None) -> OffsetMap:
        """The offset to write for it. Raises DataError when it would be too large."""
        if partition is None:
            kept = [[one.request_id, one.replayed_count, one.next_page_token] for one in self.outcomes]
            return {_TOPIC_ID: self.topic_id, _REQUESTS: json.dumps(kept, separators=(",", ":"))}
        runs = self.of(partition)
        text = ",".join(_run_text(first - runs.next, last - first) for first, last in runs.runs)
        if len(text) > RUNS_BYTES_MAX:
            raise DataError(
                f"too many single dead letters of partition {partition} were replayed, with others in between, to be "
                "recorded; replay all of them"
            )
        return {_TOPIC_ID: self.topic_id, _NEXT: runs.next, _RUNS: text}

    def take(self, partition: int | None, offset: OffsetMap | None) -> None:
        """Read a stored offset. One of an earlier topic of the same name is ignored.

        Raises DataError for a value that this release did not write.
        """
        if offset is None or offset.get(_TOPIC_ID) != self.topic_id:
            return
        try:
            if partition is None:
                kept = cast("list[tuple[str, int, str]]", json.loads(str(offset[_REQUESTS])))
                self.outcomes = [Outcome(*one) for one in kept]
            else:
                next_offset = int(offset[_NEXT])
                texts = filter(None, str(offset[_RUNS]).split(","))
                self.partitions[partition] = Runs(next_offset, [_run_of(text, next_offset) for text in texts])
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"the stored state of replays from {self.topic} cannot be read: {offset}") from error


def _run_text(gap: int, more: int) -> str:
    return f"{gap}+{more}" if more else str(gap)


def _run_of(text: str, next_offset: int) -> tuple[int, int]:
    gap, _, more = text.partition("+")
    first = next_offset + int(gap)
    return first, first + int(more or 0)
