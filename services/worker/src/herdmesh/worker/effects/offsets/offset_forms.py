"""JSON forms of offsets (KIP-875, docs/reference/connect/offsets-topic.md, section 10.1), and Connect's messages about
them.

Owns parsing, with Connect's error texts, and formatting within a size limit, also of offsets that another process is to
write. Writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.spi import PartitionId
from herdmesh.connect.topics import offsets_topic

OFFSETS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit of one response: it shares the session's stream with heartbeats."""
LATER: Final = (
    "create it with initial state STOPPED, change its offsets then (`herd offsets set` or `herd offsets reset`), and "
    "resume it"
)
"""The remedy where offsets cannot be written together with their connector."""
_TOPIC: Final = "kafka_topic"
_PARTITION: Final = "kafka_partition"
_OFFSET: Final = "kafka_offset"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The records of a change, for the service that writes them in its own transaction: all of them or none."""

    records: tuple[tuple[str, bytes, bytes | None], ...] = ()
    """Records of a source: an existing topic, the key, and the value, None = a tombstone."""
    group: str = ""
    """Consumer group of a sink."""
    group_offsets: tuple[tuple[str, int, int, str], ...] = ()
    """Offsets of that group: topic, partition, offset, and metadata."""

    @property
    def byte_count(self) -> int:
        records = sum(len(topic.encode()) + len(key) + len(value or b"") for topic, key, value in self.records)
        return records + sum(len(topic.encode()) + len(text.encode()) for topic, _, _, text in self.group_offsets)


@dataclass(frozen=True, slots=True)
class OffsetsResult:
    """Offsets of a connector: pairs of partition and offset in JSON. `message` is Connect's about a change; after a
    read, a note to the reader.
    """

    offsets: tuple[tuple[str, str], ...]
    message: str = ""
    prepared: Prepared | None = None
    """The records that must still be written to make the offsets valid; None = none."""

    @property
    def byte_count(self) -> int:
        """Bytes of the offsets."""
        return sum(len(text.encode()) for pair in self.offsets for text in pair)


def bounded(told: OffsetsResult) -> OffsetsResult:
    """The result of a change, without the offsets when they exceed the limit. Raises ConfigError when the prepared
    records exceed it, since none of them can be left out.
    """
    prepared_bytes = 0 if told.prepared is None else told.prepared.byte_count
    if prepared_bytes > OFFSETS_BYTES_MAX:
        raise ConfigError(
            f"the connector's offsets are {prepared_bytes} bytes to be written, and at most {OFFSETS_BYTES_MAX} can be "
            f"written together with it: {LATER}"
        )
    if told.byte_count + prepared_bytes <= OFFSETS_BYTES_MAX:
        return told
    message = f"{told.message} (its {len(told.offsets)} offsets are too many to be returned here)"
    return replace(told, offsets=(), message=message)


def changed_message(*, agreed: bool, reset: bool, dry_run: bool) -> str:
    """Connect's texts (docs/reference/connect/offsets-topic.md, section 10.3). `agreed`: what the connector's
    `alter_offsets` returned."""
    verb = "reset" if reset else "altered"
    if dry_run:
        return f"dry run: nothing was changed; the offsets for this connector would be {verb}"
    if agreed:
        return f"The offsets for this connector have been {verb} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {verb} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {verb} in the system that the connector "
        "uses."
    )


def source_offsets_json(stored: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """A source's offsets, sorted; unreadable ones are left out, as in Connect."""
    found: list[tuple[str, str]] = []
    for key, value in stored.items():
        decoded = offsets_topic.decode(key, value)
        if not isinstance(decoded, offsets_topic.OffsetRecord):
            _log.warning("an undecodable record of the offsets topic is ignored: %s", decoded)
        elif decoded.offset is not None:
            found.append((jackson.dumps(decoded.partition).decode(), jackson.dumps(decoded.offset).decode()))
    return tuple(sorted(found))


def sink_offsets_json(offsets: Mapping[PartitionId, int]) -> tuple[tuple[str, str], ...]:
    """A sink's offsets, sorted by topic and partition."""
    return tuple(
        (
            jackson.dumps({_TOPIC: topic, _PARTITION: number}).decode(),
            jackson.dumps({_OFFSET: offset}).decode(),
        )
        for (topic, number), offset in sorted(offsets.items())
    )


def sink_offsets(offsets: Iterable[tuple[str, str | None]]) -> dict[PartitionId, int | None]:
    """A sink's offsets by partition; the last one wins for a partition named twice. Raises ConfigError, DataError."""
    return dict(sink_offset(partition, offset) for partition, offset in offsets)


def object_of(text: str | None) -> Mapping[str, Any] | None:
    """A JSON object, None for null. Raises DataError."""
    value = None if text is None else jackson.loads(text.encode())
    if value is not None and not isinstance(value, dict):
        raise DataError(f"partitions and offsets are JSON objects or null, and this is neither: {text}")
    return cast("Mapping[str, Any] | None", value)


def sink_offset(partition_json: str, offset_json: str | None) -> tuple[PartitionId, int | None]:
    """A sink's partition and offset, None = remove the offset. Raises ConfigError with Connect's text."""
    partition, offset = object_of(partition_json), object_of(offset_json)
    if partition is None:
        raise ConfigError("The partition for a sink connector offset cannot be null or missing")
    if _TOPIC not in partition or _PARTITION not in partition:
        raise ConfigError(
            f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
        )
    if partition[_TOPIC] is None:
        raise ConfigError("Kafka topic names must be valid strings and may not be null")
    if partition[_PARTITION] is None:
        raise ConfigError("Kafka partitions must be valid numbers and may not be null")
    found = (str(partition[_TOPIC]), _whole(partition[_PARTITION], "partition", 31))
    if offset is None:
        return found, None
    if _OFFSET not in offset:
        raise ConfigError(f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'")
    number = _whole(offset[_OFFSET], "offset", 63)
    if number < 0:
        raise ConfigError(f"The offset for a sink connector must not be negative: {number}")
    return found, number


def _whole(value: object, what: str, bits: int) -> int:
    text = str(value)
    if not isinstance(value, bool) and text.removeprefix("+").removeprefix("-").isdecimal():
        number = int(text)
        if -(1 << bits) <= number < 1 << bits:
            return number
    raise ConfigError(
        f"Failed to parse the following Kafka {what} value in the provided offsets: '{text}'. {what.capitalize()} "
        "values for sink connectors need to be integers."
    )
