"""Concurrent sending of requests: those of different partitions
at the same time, those of one partition in order.

Owns the lanes (one for each partition), their threads, retries with backoff, and halving a refused request. `client`
makes one attempt; the task handles refused records.

A lane whose receiver is unreachable keeps its first request and retries it until the lane is closed. No caller waits
for it without end: `give` and `drain` raise RetriableError.

Invariants: a request is sent when all before it in its lane were accepted or refused; at most `LANE_RECORDS_MAX`
records wait in a lane, and `RECORDS_MAX` for each thread in all, except for one larger batch; once `drain` has
returned, every record given was accepted by the receiver or is among the `refused`.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from herdmesh.connectors.http.client import Busy, RequestRefused
from herdmesh.connectors.http.requests import HttpRequest
from herdmesh.engine.runtime import progress_ticks
from herdmesh.sdk import PartitionId, RetriableError, UnreachableError, waits

LANE_RECORDS_MAX = 2_000
RECORDS_MAX = 1_000
ROOM_WAIT_S = 5.0
"""Time for which `give` waits for room while no request fails: its caller receives no commands meanwhile."""
_TURN_S = 1.0
"""Interval of progress ticks during a wait: the watchdog may
count them as progress, because attempts have a time-out.
"""
_CLOSE_WAIT_S = 2.0
Send = Callable[[HttpRequest], None]


@dataclass(slots=True)
class _Lane:
    """The unfinished requests of a partition, in order."""

    waiting: deque[HttpRequest] = field(default_factory=deque[HttpRequest])
    records: int = 0
    #: a thread has the lane, or it is in the ready queue or in the retry queue.
    is_served: bool = False
    #: consecutive failures of the first request, and the last reason.
    failures: int = 0
    why: Busy | None = None


class Lanes:
    """The lanes of one task. Call `give`, `drain`, `refused` and `close` from one thread."""

    def __init__(
        self,
        send: Send,
        *,
        receiver: str,
        threads_max: int,
        retries: int,
        backoff_s: float,
        splits: bool,
        keeps_refused: bool,
    ) -> None:
        """`splits`: halve a refused request to find the bad record. `keeps_refused`: collect refused records for the
        task; otherwise the first one ends the run.
        """
        self._send = send
        self._receiver = receiver
        self._threads_max = threads_max
        self._records_max = max(LANE_RECORDS_MAX, threads_max * RECORDS_MAX)
        self._retries = retries
        self._backoff_s = backoff_s
        self._splits = splits
        self._keeps_refused = keeps_refused
        self._changed = threading.Condition()
        self._closed = False
        self._lanes: dict[PartitionId, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        #: retry queue: time of the next attempt, tie breaker, lane.
        self._later: list[tuple[float, int, _Lane]] = []
        self._order = count()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._records = 0
        self._refused: list[tuple[HttpRequest, RequestRefused]] = []
        self._failure: Exception | None = None
        #: begins with the first failed request: the loop may call `give` for a minute before it drains.
        self._fails = waits.Standing()

    def give(self, requests: Sequence[HttpRequest]) -> None:
        """Queue requests of one partition behind its earlier ones: all of them, or none.

        Raises:
            RetriableError: there is no room, because the receiver is unreachable or slow.
            Exception: the error that ended the run.
        """
        if not requests:
            return
        records = sum(len(one.places) for one in requests)
        with self._changed:
            lane = self._lanes.setdefault(requests[0].partition, _Lane())
            self._wait_for_room(lane, records)
            lane.waiting.extend(requests)
            lane.records += records
            self._records += records
            if not lane.is_served:
                self._serve(lane)

    def drain(self) -> None:
        """Return when all queued requests are done. Raises like `give`,
        and RetriableError when the retries of a request are exhausted.
        """
        with self._changed, waits.Standing() as wait:
            while True:
                self._raise_failure()
                if not self._records:
                    return
                for lane in self._lanes.values():
                    if lane.why is not None and lane.failures > self._retries:
                        text = f"tried {lane.failures} times: {lane.why}"
                        raise self._failed(text, lane.why) from lane.why
                self._say(wait)
                self._changed.wait(_TURN_S)  # waits: `_say` has reported it
                progress_ticks.moved()

    def refused(self) -> list[tuple[HttpRequest, RequestRefused]]:
        """Return the requests that the receiver refused since the last call, in the order of each partition."""
        with self._changed:
            found, self._refused = self._refused, []
            return found

    def close(self) -> bool:
        """Stop the threads. False = a thread still waits for a response, and ends when it arrives."""
        with self._changed:
            self._closed = True
            self._fails.over()
            self._changed.notify_all()
        end_s = time.monotonic() + _CLOSE_WAIT_S
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _wait_for_room(self, lane: _Lane, records: int) -> None:
        end_s = time.monotonic() + ROOM_WAIT_S
        while True:
            self._raise_failure()
            in_lane = not lane.records or lane.records + records <= LANE_RECORDS_MAX
            if in_lane and (not self._records or self._records + records <= self._records_max):
                return
            for one in (lane, *self._lanes.values()):
                if one.why is not None:
                    raise self._failed(str(one.why), one.why) from one.why
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                text = f"the receiver is slow: {self._records} records wait to be sent"
                raise RetriableError(text, waits_for=self._receiver)
            self._changed.wait(min(left_s, _TURN_S))  # waits: no longer than ROOM_WAIT_S
            progress_ticks.moved()

    def _failed(self, text: str, why: Busy) -> RetriableError:
        kind = UnreachableError if isinstance(why, UnreachableError) else RetriableError
        return kind(text, waits_for=self._receiver)

    def _say(self, wait: waits.Standing) -> None:
        """Report what `drain` waits for, unless requests fail, which `_fails` reports."""
        if self._fails.begun:
            wait.over()
        else:
            wait.goes_on(self._receiver, f"{self._records} records wait to be sent")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _serve(self, lane: _Lane) -> None:
        """Assign the lane to a thread."""
        lane.is_served = True
        self._ready.append(lane)
        if len(self._ready) > self._idle and len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._work, name=f"http {len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        """Run a thread: send the first request of a ready lane, then continue with another lane."""
        while (lane := self._next()) is not None:
            request = lane.waiting[0]
            outcome: Exception | None = None
            try:
                with waits.on(self._receiver, f"the response to a request of {len(request.places)} records"):
                    self._send(request)
            except Exception as error:  # noqa: BLE001 - `drain` or `give` raises it, in the task's thread
                outcome = error
            with self._changed:
                self._settle(lane, request, outcome)
                self._changed.notify_all()

    def _next(self) -> _Lane | None:
        """Wait for a ready lane; None = closed."""
        with self._changed:
            self._idle += 1
            try:
                while not self._closed:
                    now_s = time.monotonic()
                    while self._later and self._later[0][0] <= now_s:
                        self._ready.append(heapq.heappop(self._later)[2])
                    if self._ready:
                        return self._ready.popleft()
                    # waits: for something to do; `_fails` reports the retry of a lane
                    self._changed.wait(self._later[0][0] - now_s if self._later else None)
                return None
            finally:
                self._idle -= 1

    def _settle(self, lane: _Lane, request: HttpRequest, outcome: Exception | None) -> None:
        """Update the lane after an attempt: done, retry, halve, or end the run."""
        lane.is_served = False
        match outcome:
            case None:
                self._done(lane, request)
            case Busy():
                lane.failures += 1
                lane.why = outcome
                # Retry at once on a new connection: the broken one may have been closed as idle.
                is_old = outcome.is_broken and lane.failures == 1
                wait_s = 0.0 if is_old else max(self._backoff_s, outcome.wait_s or 0.0)
                lane.is_served = True
                if not self._closed:
                    is_new = lane.failures > self._fails.tries
                    self._fails.goes_on(self._receiver, str(outcome), tried=is_new, next_try_s=wait_s)
                heapq.heappush(self._later, (time.monotonic() + wait_s, next(self._order), lane))
                return
            case RequestRefused() if len(request.places) > 1 and (self._splits or outcome.too_large):
                lane.waiting.popleft()
                lane.waiting.extendleft(reversed(request.halves()))
            case RequestRefused() if self._keeps_refused:
                self._refused.append((request, outcome))
                self._done(lane, request)
            case _:  # open: any other exception ends the run
                self._failure = self._failure or outcome
        lane.failures, lane.why = 0, None
        if self._fails.begun and all(one.why is None for one in self._lanes.values()):
            self._fails.over()
        if lane.waiting and self._failure is None:
            lane.is_served = True
            self._ready.append(lane)  # the calling thread continues with `_next` at once

    def _done(self, lane: _Lane, request: HttpRequest) -> None:
        lane.waiting.popleft()
        lane.records -= len(request.places)
        self._records -= len(request.places)
