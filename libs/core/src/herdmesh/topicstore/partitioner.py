"""Java's default partitioner: the partition of a key, by murmur2.

Owns murmur2 as `org.apache.kafka.common.utils.Utils.murmur2` computes it. The Kafka engine leaves the choice to
librdkafka (`partitioner=murmur2_random`, the same function); the memory engine and provisional records need it here.
Invariant: equal to Java for every key of `tests/golden/connect/status-topic.jsonl`.
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=16_384)  # the keys of a store repeat
def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions`."""
    return 0 if partitions == 1 else (murmur2(key) & 0x7FFFFFFF) % partitions
