"""What a client has to raise while it calls back.

Once a producer has a fatal error, being fenced above all, confluent-kafka 2.16 has that pending as an exception while
it calls back, for what was not delivered or what it has to log, and every call into it, or out of the callback, becomes
a SystemError. What is pending is what the call was to raise out of which it calls back. Owns finding it.
"""

from __future__ import annotations

from collections.abc import Callable


def pending(call: Callable[[], object]) -> BaseException | None:
    """What is pending, which it no longer is then; to be asked first of all in a callback.

    Args:
        call: a method without arguments of a builtin type, bound: what calls one looks whether something is pending.
    """
    try:
        call()
    except SystemError as found:
        return found.__cause__ or found
    return None


def raise_pending(call: Callable[[], object]) -> None:
    """Raise what is pending, out of the call that the callback came from. `call`: as of `pending`."""
    found = pending(call)
    if found is not None:
        raise found
