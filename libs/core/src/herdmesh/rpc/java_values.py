"""Values of Java's topics that a proto message cannot carry, converted to ones it can.

Owns the two kinds: text with unpaired surrogates (Java cuts a stack trace anywhere) and times outside the years 1
to 9999. Owns no other conversion.

Invariant: neither function raises, and a value that a message can carry is unchanged: one odd record must not hide all
others.
"""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

_TIME_MS_MIN, _TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999


def text(value: str) -> str:
    """Replace unpaired surrogates."""
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def timestamp(epoch_ms: int) -> Timestamp:
    """A timestamp from epoch milliseconds, clamped to the years 1 to 9999."""
    held = Timestamp()
    held.FromMilliseconds(min(max(epoch_ms, _TIME_MS_MIN), _TIME_MS_MAX))
    return held
