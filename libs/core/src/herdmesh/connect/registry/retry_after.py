"""Parser of the HTTP header `Retry-After`, in which a busy server gives the time of the next attempt.

Used by the HTTP clients of the registry and of HttpSink. Pure.

Invariant: an unreadable header counts as absent, and no header delays by more than `RETRY_AFTER_MAX_S`.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_MAX_S: Final = 300.0


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """The delay of the header, which has seconds or a date, as seconds from `now_s` (seconds since 1970); None = no
    readable header.
    """
    if not text:
        return None
    if text.strip().isdecimal():
        return min(float(text.strip()), RETRY_AFTER_MAX_S)
    try:
        wait_s = parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), RETRY_AFTER_MAX_S)
