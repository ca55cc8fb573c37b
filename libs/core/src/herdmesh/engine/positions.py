"""Where a sink run begins in each partition.

Owns the decision (design section 6): committed offset, beginning, end, or a loss. Pure: the numbers are passed in.

Invariant: a committed offset is never left silently. It is used, or the run fails with the numbers, or the connector's
config says `herdmesh.offsets.missing=reset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from herdmesh.connect.connector import PartitionId
from herdmesh.engine.errors import OffsetsLost
from herdmesh.engine.settings import OFFSETS_MISSING


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What Kafka says about one partition."""

    committed: int | None
    """The group's offset, None = none."""
    beginning: int
    end: int
    """One past the last record, open transactions included."""


def starting_offsets(
    ranges: Mapping[PartitionId, PartitionRange], *, has_committed: bool, reset_missing: bool, reset_to_latest: bool
) -> dict[PartitionId, int]:
    """The first offset to read in each partition.

    Every commit covers all partitions a task owns, and the broker forgets a group's offsets together; so under a task
    that has committed, offsets missing everywhere are a loss, while one missing beside others is a new partition.

    Raises:
        OffsetsLost: naming every partition and its numbers.
    """
    missing = [partition for partition, known in ranges.items() if known.committed is None]
    lost = missing if has_committed and len(missing) == len(ranges) else []
    strayed = [partition for partition, known in ranges.items() if _is_out_of_range(known)]
    if (lost or strayed) and not reset_missing:
        raise OffsetsLost(_told(ranges, lost, strayed))
    starts: dict[PartitionId, int] = {}
    for partition, known in ranges.items():
        if known.committed is None or partition in strayed:
            starts[partition] = known.end if reset_to_latest else known.beginning
        else:
            starts[partition] = known.committed
    return starts


def _is_out_of_range(known: PartitionRange) -> bool:
    return known.committed is not None and not known.beginning <= known.committed <= known.end


def _told(ranges: Mapping[PartitionId, PartitionRange], lost: list[PartitionId], strayed: list[PartitionId]) -> str:
    parts: list[str] = []
    for topic, partition in sorted(lost):
        known = ranges[topic, partition]
        parts.append(f"{topic}-{partition} has no committed offset any more (records {known.beginning} to {known.end})")
    for topic, partition in sorted(strayed):
        known = ranges[topic, partition]
        parts.append(
            f"{topic}-{partition} was committed up to {known.committed}, outside of its records "
            f"{known.beginning} to {known.end}"
        )
    return (
        f"offsets are lost: {'; '.join(parts)}; set {OFFSETS_MISSING}=reset to begin anew by auto.offset.reset, "
        "or alter the offsets"
    )
