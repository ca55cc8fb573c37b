"""Reader of Kafka's own log segments: the producer of each batch, the end of each transaction, and the remaining
records.

Owns the reading of record batches (format v2, as every Kafka since 0.11 writes it) from the log segments of a broker of
a test. A consumer does not see a producer's epoch; only the files show whose commit took effect, and which records
they hold at one moment.

Invariant: only whole batches are read; a batch that a running broker is still writing is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, two timestamps, producerId,
#: producerEpoch, baseSequence, record count.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AFTER = 12  # batchLength counts from behind itself
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_COMMIT = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a transaction, from its marker."""

    producer_id: int
    producer_epoch: int
    committed: bool
    offset: int
    wrote: bool  # it has records in this partition


@dataclass(frozen=True, slots=True, order=True)
class StoredKey:
    """A record, without its value."""

    offset: int
    key: bytes
    is_tombstone: bool


def stored_keys(folder: Path) -> Iterator[StoredKey]:
    """Every record in a partition's folder, in order; batches are not compressed, keys are not null."""
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            base, length, *_ = header = _HEADER.unpack_from(data, position)
            end = position + _LENGTH_AFTER + length
            if length <= 0 or end > len(data):
                break
            at = position + _HEADER.size
            for _ in range(header[12]):
                size, at = _varint(data, at)
                following = at + size
                _, at = _varint(data, at + 1)  # attributes, then the time
                offset_delta, at = _varint(data, at)
                key_length, at = _varint(data, at)
                value_length, _ = _varint(data, at + key_length)
                yield StoredKey(base + offset_delta, data[at : at + key_length], value_length < 0)
                at = following
            position = end


def transactions(data_dir: Path, topic: str, partition: int = 0) -> Iterator[Ended]:
    """Every ended transaction of a partition, in the order of their markers. `data_dir` is the broker's."""
    open_epochs: dict[int, int] = {}
    for segment in sorted((data_dir / "kafka" / f"{topic}-{partition}").glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            base, length, *_ = header = _HEADER.unpack_from(data, position)
            end = position + _LENGTH_AFTER + length
            if length <= 0 or end > len(data):
                break
            attributes, producer_id, epoch = header[5], header[9], header[10]
            if attributes & _CONTROL:
                committed = _marker_type(data, position + _HEADER.size) == _COMMIT
                wrote = open_epochs.pop(producer_id, None)
                yield Ended(producer_id, epoch if wrote is None else wrote, committed, base, wrote is not None)
            elif attributes & _TRANSACTIONAL:
                open_epochs[producer_id] = epoch
            position = end


def _marker_type(data: bytes, position: int) -> int:
    """The type in a marker's key: varints length, attributes, timestamp and offset deltas, key length; then version and
    type, two bytes each."""
    position = _skip_varint(data, position) + 1  # length, attributes
    for _ in range(3):  # timestamp delta, offset delta, key length
        position = _skip_varint(data, position)
    (marker,) = struct.unpack_from(">h", data, position + 2)
    return marker


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    end = _skip_varint(data, position)
    number = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(data[position:end]))
    return (number >> 1) ^ -(number & 1), end


def _skip_varint(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1
