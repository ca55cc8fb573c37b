"""Starting positions of a sink run in each partition.

Owns the decision (docs/design/worker.md, section 3): the committed offset, the offset by `auto.offset.reset`, or a
loss. Pure: the numbers are passed in.

Invariant: an offset committed for the group and topics of the run is never left silently. It is used, or the run fails
with the numbers, or the connector's config has `herdmesh.offsets.missing=reset`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from herdmesh.connect.clients import AUTO_OFFSET_RESET, OffsetReset, Start
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import PartitionId
from herdmesh.connect.topics import CommitScope
from herdmesh.engine.runtime import OFFSETS_MISSING, OffsetsLost, TaskFailed
from herdmesh.engine.sink import manifest

_NAMED_TOPICS_MAX: Final = 10
"""Maximum number of topics named in one message."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of one partition in Kafka."""

    committed: int | None
    """The group's offset, None = none."""
    beginning: int
    end: int
    """One past the last record, open transactions included."""
    by_time: int | None = None
    """The first record that is not older than `auto.offset.reset=by_duration` requires; None = there is none, or it was
    not queried.
    """


def of_topics_as_they_are(
    offsets: Mapping[PartitionId, tuple[int | None, str]],
    *,
    ids: Mapping[str, str],
    ids_before: Mapping[str, str],
    own_rows: Collection[PartitionId] = (),
) -> dict[PartitionId, tuple[int | None, str]]:
    """The committed offsets that belong to the current topics. An offset of a topic that was deleted and created again
    since is None: Kafka deletes offsets with their topic, except one whose commit was under way meanwhile.

    Args:
        offsets: committed offsets with their metadata.
        ids: current topic ids, as far as known.
        ids_before: topic ids at the task's last commit.
        own_rows: partitions whose offsets come from the target's ledger, which has no topic ids.
    """
    found: dict[PartitionId, tuple[int | None, str]] = {}
    for partition, (offset, metadata) in offsets.items():
        now, said = ids.get(partition[0], ""), manifest.topic_id_of(metadata)
        before = ids_before.get(partition[0], "")
        if not said and partition in own_rows:
            said = before
        is_other = bool(now and said and now != said)
        found[partition] = (None if is_other else offset, metadata)
    return found


def within(ranges: Mapping[PartitionId, PartitionRange], again: Collection[str]) -> dict[PartitionId, PartitionRange]:
    """The ranges without committed offsets that are outside the records of recreated topics: such an offset belongs to
    the earlier topic.
    """
    return {
        one: replace(known, committed=None) if one[0] in again and _is_out_of_range(known) else known
        for one, known in ranges.items()
    }


def made_again(ids: Mapping[str, str], ids_before: Mapping[str, str]) -> set[str]:
    """The recreated topics: those with another id than before."""
    return {topic for topic, one in ids.items() if ids_before.get(topic, one) != one}


def starting_offsets(
    ranges: Mapping[PartitionId, PartitionRange],
    *,
    group: str,
    scope: CommitScope | None,
    forgotten: Collection[str] = (),
    reset_missing: bool,
    reset: OffsetReset,
) -> dict[PartitionId, int]:
    """The first offset to read in each partition. `scope` is of the task's last commit; None = it never committed, or
    the partitions are new to a running task. `forgotten`: topics that the connector committed under this group, and of
    which no partition has an offset any more, whoever owns it.

    Every commit covers all partitions a task owns, and the broker expires a group's offsets together. So offsets that
    are missing in all partitions of the topics committed before, under the same group, are a loss; a single missing
    offset is a new partition. A topic that moved to another task with all its partitions is a loss only if it is in
    `forgotten`. Under another group or topic, the task begins as one that never committed.

    Raises:
        OffsetsLost: naming every partition and its numbers.
        TaskFailed: BAD_CONFIG, for `auto.offset.reset=none`, naming the partitions without a starting offset.
    """
    before = [partition for partition in ranges if scope is not None and scope.covers(group, partition[0])]
    lost = before if all(ranges[partition].committed is None for partition in before) else []
    lost += [partition for partition in ranges if partition[0] in forgotten and partition not in lost]
    strayed = [partition for partition, known in ranges.items() if _is_out_of_range(known)]
    if (lost or strayed) and not reset_missing:
        raise OffsetsLost(_told(ranges, lost, strayed))
    unknown = [p for p, known in ranges.items() if known.committed is None or p in strayed]
    if unknown and reset.start is Start.NONE:
        raise no_offset(unknown, f"group {group}")
    return {
        partition: _by(reset, known) if known.committed is None or partition in strayed else known.committed
        for partition, known in ranges.items()
    }


def no_offset(partitions: Collection[PartitionId], whose: str) -> TaskFailed:
    """The error of a run under `auto.offset.reset=none`, in the words of Java's `NoOffsetForPartitionException`."""
    named = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
    return TaskFailed(
        f"Undefined offset with no reset policy for partitions: [{named}]: {AUTO_OFFSET_RESET} is none, and {whose} "
        "has no offset for them; set their offsets with `herd offsets alter`, or write earliest, latest or "
        "by_duration:<duration> instead of none",
        ErrorClass.BAD_CONFIG,
    )


def earlier_topics_note(partitions: Iterable[PartitionId], where: str = "") -> str:
    """The note for committed offsets whose topics were deleted and created again since; "" without such partitions.
    `where`: the cluster that has the topics, with a blank before; "" = the workers' own."""
    topics = sorted({topic for topic, _ in partitions})
    if not topics:
        return ""
    more = len(topics) - _NAMED_TOPICS_MAX
    named = ", ".join(topics[:_NAMED_TOPICS_MAX]) + (f" and {more} more" if more > 0 else "")
    return (
        f"offsets are of an earlier topic of the same name{where}, which was deleted and created again since: {named}; "
        "the next run does not use them and starts these topics by auto.offset.reset"
    )


def _by(reset: OffsetReset, known: PartitionRange) -> int:
    match reset.start:
        case Start.EARLIEST | Start.NONE:
            return known.beginning
        case Start.LATEST:
            return known.end
        case Start.BY_DURATION:
            return known.end if known.by_time is None else known.by_time
        case _:
            assert_never(reset.start)


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
        f"offsets are lost: {'; '.join(parts)}; set {OFFSETS_MISSING}=reset to start by auto.offset.reset, "
        "or alter the offsets"
    )
