"""The place in a topic at which `herd consume` begins.

Owns the forms of `--from`, and their offsets in each partition.

Invariant: the offset is within the partition: a place before its first record is the first record, and one after its
last record is its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]  # public by its docs

from herdmesh.cli.errors import EXIT_UNAVAILABLE, CommandError
from herdmesh.cli.kafka.admin import KafkaAdmin
from herdmesh.cli.times import moment


@dataclass(frozen=True, slots=True)
class StartPlace:
    """One of: the beginning, the end, an offset, a number of records before the end, a time."""

    kind: str
    """`beginning`, `end`, `offset`, `last` or `time`."""
    number: int = 0
    """An offset, a number of records, or a time in ms since 1970."""

    @staticmethod
    def parse(text: str, now: datetime | None = None) -> StartPlace:
        """`beginning`, `end`, `17`, `-10`, `15m`, `2026-11-28T08:00:00Z`. Raises CommandError."""
        word = text.strip().lower()
        if word in ("beginning", "earliest"):
            return StartPlace("beginning")
        if word in ("end", "latest"):
            return StartPlace("end")
        if word.removeprefix("-").isdecimal():
            number = int(word)
            return StartPlace("last", -number) if word.startswith("-") else StartPlace("offset", number)
        try:
            found = moment(text.strip(), now or datetime.now(UTC), "--from")
        except CommandError as error:
            error.message = (
                f"--from {text}: write beginning, end, an offset such as 17, -10 for the last ten of each partition, "
                "an age such as 15m, 2h or 7d, or a time such as 2026-11-28T08:00:00Z"
            )
            raise
        return StartPlace("time", int(found.timestamp() * 1_000))


@dataclass(frozen=True, slots=True)
class Span:
    """The records of a partition that a command reads: from `start`, up to `end` when it does not follow."""

    start: int
    end: int


def spans(
    admin: KafkaAdmin, topics: Any, partitions: Sequence[tuple[str, int]], start: StartPlace, *, uncommitted: bool
) -> dict[tuple[str, int], Span]:
    """The offsets of each partition. Raises CommandError for a partition without a leader."""
    committed = not uncommitted
    firsts = admin.offsets({one: OffsetSpec.earliest() for one in partitions}, topics)
    ends = admin.offsets({one: OffsetSpec.latest() for one in partitions}, topics, committed=committed)
    times: dict[tuple[str, int], int | None] = {}
    if start.kind == "time":
        times = admin.offsets({one: OffsetSpec.for_timestamp(start.number) for one in partitions}, topics)
    found: dict[tuple[str, int], Span] = {}
    for one in partitions:
        first, end = firsts[one], ends[one]
        if first is None or end is None:
            text = f"partition {one[1]} of {one[0]} has no leader"
            fix = f"`herd topics describe {one[0]}` shows its replicas; --partition leaves it out."
            raise CommandError("UNREACHABLE", text, fix, EXIT_UNAVAILABLE)
        match start.kind:
            case "beginning":
                wanted = first
            case "end":
                wanted = end
            case "offset":
                wanted = start.number
            case "last":
                wanted = end - start.number
            case _:
                at = times.get(one)
                wanted = end if at is None or at < 0 else at
        found[one] = Span(min(max(wanted, first), max(first, end)), max(first, end))
    return found
