"""Request ids for clients: UUIDs of version 7, which say when they were made (RFC 9562, 5.7).

Owns their making, for everybody who calls a service under an id of its own, and the reading of their time. What a store
does with that is its own affair (`configstore.state.requests`, `statusstore.effects.requests`): it knows an old id of
which it remembers nothing any more, where an id without a time would be taken for a new one.

Invariant: two ids are never equal; 74 bits are random.
"""

from __future__ import annotations

import secrets
import time
import uuid

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_UUID_LENGTHS = (32, 36)


def new_request_id() -> str:
    """An id nobody had before, 32 hexadecimal digits."""
    milliseconds = time.time_ns() // 1_000_000
    random_12, random_62 = secrets.randbits(12), secrets.randbits(62)
    return uuid.UUID(int=milliseconds << 80 | _VERSION_7 | random_12 << 64 | _VARIANT | random_62).hex


def time_ms_of(request_id: str) -> int | None:
    """When an id was made, epoch milliseconds by its maker's clock; None for one that does not say (RFC 9562, 5.7)."""
    if len(request_id) not in _UUID_LENGTHS:
        return None
    try:
        made = uuid.UUID(request_id)
    except ValueError:
        return None
    return made.int >> 80 if made.version == 7 else None
