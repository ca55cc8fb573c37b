"""Kafka's own files: which producer wrote what, and how each transaction ended.

Owns the reading of record batch headers (format v2, as every Kafka since 0.11 writes it) from the log segments of a
broker of a test. A consumer is not told a producer's epoch; only the files tell whose commit took effect.

Invariant: only whole batches are read; what a running broker is still writing is left out.
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
    """A transaction as its marker tells it."""

    producer_id: int
    producer_epoch: int
    committed: bool
    offset: int
    wrote: bool  # it has records in this partition


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


def _skip_varint(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1
