"""The pending exception of a client's callback: the one that the outer client call would have raised.

After a fatal error of a producer, above all when it is fenced, confluent-kafka 2.16 has that error pending as an
exception while it calls back, for undelivered records or log lines, and every call into it, or out of the callback,
becomes a SystemError. The pending exception is the one that the outer call, from which the callback comes, was about to
raise. Owns finding it.
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
