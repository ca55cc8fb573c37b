"""The partition Kafka's Java producer picks for a key.

Owns murmur2 as Java computes it. Does not produce: producers of ours are configured with `murmur2_random`, which is the
same function in librdkafka; this module checks and predicts.

Invariant: `partition_for(key, n)` equals Java's `toPositive(murmur2(key)) % n`.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, as an unsigned 32-bit number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length - length % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = k * _M & _MASK
        k ^= k >> 24
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if tail := data[whole:]:
        h ^= int.from_bytes(tail, "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_for(key: bytes, partition_count: int) -> int:
    """The partition of `key` among `partition_count` partitions. A null key has none: Java spreads those at random."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
