"""A timeout for calls into Kafka's client that may never return: the call is abandoned in its thread.

Calls of a transaction may ignore their own timeout when a broker leaves in the middle of them (librdkafka issues 5456,
5511; docs/internals/bugs.md). Owns the thread in which such a call is abandoned. Invariant: a call is abandoned only
after a second wait for its result, because this process itself may have been stopped during the first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

HANG_TIMEOUT_S = 10.0
"""Default limit, for a call with a timeout of its own of 2 s."""
_SECOND_LOOK_S: Final = 2.0


class CallHangs(Exception):
    """The call did not return. It may still take effect; no other call of its client will return either."""


def bounded(call: Callable[[], Any], timeout_s: float | None = None) -> None:
    """Run the call in a thread of its own and wait for it.

    Args:
        timeout_s: several times the call's own timeout; default HANG_TIMEOUT_S.

    Raises:
        CallHangs: the call did not return in time.
        BaseException: the exception of the call.
    """
    answers: SimpleQueue[BaseException | None] = SimpleQueue()

    def answer() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
            answers.put(error)
        else:
            answers.put(None)

    Thread(target=copy_context().run, args=(answer,), name="bounded", daemon=True).start()
    error = _first(answers, HANG_TIMEOUT_S if timeout_s is None else timeout_s)
    if error is not None:
        raise error


def _first(answers: SimpleQueue[BaseException | None], timeout_s: float) -> BaseException | None:
    for wait_s in (timeout_s, _SECOND_LOOK_S):
        try:
            return answers.get(timeout=wait_s)
        except Empty:
            continue
    raise CallHangs
