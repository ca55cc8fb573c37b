"""Record format of the transaction coordinator's topic: the outcome of a transaction (Kafka's TransactionLogKey and
TransactionLogValue).

Owns the decoding of one record, and the partition that has the records of a transactional id. Reads no topic, and does
not decide whether a caller may read it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

NAME = "__transaction_state"
#: TransactionLogKey: version, length of the id. TransactionLogValue: version, producer id and epoch, timeout, status.
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hqhib")
_PREPARE_COMMIT, _PREPARE_ABORT = 2, 3
_FIRST_FLEXIBLE = 1


class TransactionDecision(NamedTuple):
    """Decided outcome of a transaction, and its partitions."""

    commit: bool
    partitions: frozenset[tuple[str, int]]


def java_partition(text: str, partition_count: int) -> int:
    """The partition of a text: Kafka's `Utils.abs(text.hashCode()) % partition_count`."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partition_count


def decode(transactional_id: str, key: bytes | None, value: bytes | None) -> TransactionDecision | None:
    """The decision in a record of the coordinator's log; None for a record without a decision, of another id, or
    unreadable.
    """
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    if key[_KEY.size :] != transactional_id.encode():
        return None
    version, _id, _epoch, _timeout, status = _VALUE.unpack_from(value)
    if status not in (_PREPARE_COMMIT, _PREPARE_ABORT) or version > _FIRST_FLEXIBLE:
        return None
    try:
        return TransactionDecision(
            status == _PREPARE_COMMIT, _named(_Fields(value, _VALUE.size, version >= _FIRST_FLEXIBLE))
        )
    except (IndexError, UnicodeDecodeError):
        return None


def _named(fields: _Fields) -> frozenset[tuple[str, int]]:
    named = set[tuple[str, int]]()
    for _ in range(fields.count()):
        topic = fields.text()
        named.update((topic, fields.int32()) for _ in range(fields.count()))
        fields.end()
    return frozenset(named)


class _Fields:
    """Reader of Kafka's wire types, in the plain and in the flexible encoding (KIP-482)."""

    def __init__(self, data: bytes, position: int, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def count(self) -> int:
        """Read the length of an array; 0 for a null array."""
        return max(0, self._varint() - 1 if self._flexible else self.int32())

    def text(self) -> str:
        length = self._varint() - 1 if self._flexible else int.from_bytes(self._take(2), "big")
        return self._take(length).decode()

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def end(self) -> None:
        """Skip a structure's tagged fields."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def _take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        self._position += length
        return taken
