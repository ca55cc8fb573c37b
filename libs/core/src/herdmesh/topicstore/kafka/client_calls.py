"""A thread for blocking client calls outside the event loop, and the logger of the clients.

Owns a daemon thread that runs calls in order. It is a daemon because a call into a Kafka client can outlive every
deadline while no broker is reachable, and no thread may keep a process from ending. Invariant: one call at a time, in
call order.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer

_T = TypeVar("_T")

#: Far more calls than one store ever has waiting (take over, commit, release, stop).
_CALLS_MAX = 64


#: Logger of every Kafka client of the topic store.
client_logger = logging.getLogger("herdmesh.topicstore.librdkafka")


def _is_news(record: logging.LogRecord) -> bool:
    """False for a lost connection: each client logs it at each attempt, several times a second while a broker is
    unreachable. The store logs the consequence.
    """
    return not record.getMessage().startswith("FAIL ")


client_logger.addFilter(_is_news)


def on_client_error(error: object) -> None:
    """`error_cb` of every client. Only logs: the calls themselves report the errors that matter."""
    client_logger.debug("client error: %s", error)


def close(consumer: Consumer, *, is_lost: bool) -> None:
    """Close `consumer`. A consumer that has forgotten its brokers (`herdmesh.kafka.broker_reachability`) looks for its
    group's coordinator before it closes, possibly forever (librdkafka 3740). So with `is_lost` the close runs in a
    thread of its own, nobody waits for it, and the consumer's callbacks come from that thread.
    """
    if is_lost:
        threading.Thread(target=consumer.close, name="herdmesh-closing", daemon=True).start()
    else:
        consumer.close()


class CallThread:
    """Runs calls one after the other in a thread. The thread starts with the first call."""

    def __init__(self, name: str) -> None:
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue(_CALLS_MAX)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    async def call(self, function: Callable[[], _T]) -> _T:
        """Run `function` in the thread. Cancelling the wait does not stop the call."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to the caller
                post(loop, lambda error=error: None if answer.done() else answer.set_exception(error))
            else:
                post(loop, lambda: None if answer.done() else answer.set_result(result))

        if not self._started:
            self._started = True
            self._thread.start()
        self._calls.put_nowait(run)
        return await answer

    def stop(self) -> None:
        """End the thread after the calls queued so far. Does not wait."""
        if self._started:
            self._calls.put_nowait(None)

    def _run(self) -> None:
        while (run := self._calls.get()) is not None:
            run()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run `callback` on `loop` from any thread; a loop that is closed already is ignored."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise
