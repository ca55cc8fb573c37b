"""Request ids for clients: UUIDs of version 7, which have their time of creation (RFC 9562, 5.7).

Owns their creation, for every client that calls a service with a request id, and the reading of their time. Their use
in a store is the store's affair (`configstore.state.requests`, `statusstore.effects.requests`): it recognises an
expired id that it no longer remembers. An id without a time would look like a new one.

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
    """A new id, 32 hexadecimal digits."""
    milliseconds = time.time_ns() // 1_000_000
    random_12, random_62 = secrets.randbits(12), secrets.randbits(62)
    return uuid.UUID(int=milliseconds << 80 | _VERSION_7 | random_12 << 64 | _VARIANT | random_62).hex


def time_ms_of(request_id: str) -> int | None:
    """The creation time of an id, epoch milliseconds by its creator's clock; None for an id without a time (RFC 9562,
    5.7).
    """
    if len(request_id) not in _UUID_LENGTHS:
        return None
    try:
        made = uuid.UUID(request_id)
    except ValueError:
        return None
    return made.int >> 80 if made.version == 7 else None
