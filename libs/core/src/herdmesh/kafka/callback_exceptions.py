"""The pending exception of a client's callback: the one that the outer client call would have raised.

After a fatal error of a producer, above all when it is fenced, confluent-kafka 2.16 keeps that error pending as a
Python exception while it runs callbacks for undelivered records or log lines. Every C call in the callback, and the
return from it, then becomes a SystemError. The pending exception is the one that the outer call, which runs the
callback, was about to raise. Owns the detection of that exception.
"""

from __future__ import annotations

from collections.abc import Callable


def pending(call: Callable[[], object]) -> BaseException | None:
    """Return the pending exception and clear it; None when there is none. Call it first of all in a callback.

    Args:
        call: a bound method of a builtin type that takes no arguments: the interpreter checks for a pending exception
            after such a call.
    """
    try:
        call()
    except SystemError as found:
        return found.__cause__ or found
    return None


def raise_pending(call: Callable[[], object]) -> None:
    """Raise the pending exception, so that it leaves the outer client call. `call`: see `pending`."""
    found = pending(call)
    if found is not None:
        raise found
