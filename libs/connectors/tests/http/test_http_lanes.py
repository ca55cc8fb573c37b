"""Tests of lanes: order within a partition, concurrency
between partitions, retries, halving, and lack of room.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError, RetriableError, UnreachableError
from herdmesh.connect.spi import waits
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.http import partition_lanes
from herdmesh.connectors.http.client import Busy, NoResponse, RequestRefused
from herdmesh.connectors.http.partition_lanes import Lanes
from herdmesh.connectors.http.requests import HttpRequest
from herdmesh.engine.runtime import failure

WAIT_S = 20.0
Send = Callable[[HttpRequest], None]


def requests(partition: int, first: int, *sizes: int) -> list[HttpRequest]:
    """Return requests with these numbers of records, from an offset on."""
    total = sum(sizes)
    offsets = list(range(first, first + total))
    batch = SinkBatch("t", partition, first, first + total - 1, offsets, offsets, offsets, offsets, original_topic="t")
    made: list[HttpRequest] = []
    at = 0
    for size in sizes:
        made.append(HttpRequest(batch, range(at, at + size), [b""] * total, offsets, "POST", "http://h/"))
        at += size
    return made


def offsets_in(request: HttpRequest) -> list[int]:
    return [request.offsets[place] for place in request.places]


@contextmanager
def lanes(
    send: Send, *, threads: int = 3, retries: int = 2, backoff_s: float = 0.0, splits: bool = True, keeps: bool = True
) -> Generator[Lanes]:
    made = Lanes(
        send, receiver="HTTP here", threads_max=threads, retries=retries, backoff_s=backoff_s, splits=splits,
        keeps_refused=keeps,
    )  # fmt: skip
    try:
        yield made
    finally:
        assert made.close()


class Target:
    """Receiver that refuses requests with a bad record, and is busy a number of times for each first offset."""

    def __init__(self, bad: set[tuple[int, int]], busy: dict[tuple[int, int], int]) -> None:
        self._bad, self._busy = bad, dict(busy)
        self._lock = threading.Lock()
        self._inside: set[int] = set()
        self.taken: dict[int, list[int]] = defaultdict(list)

    def __call__(self, request: HttpRequest) -> None:
        partition = request.partition[1]
        with self._lock:
            assert partition not in self._inside, "two requests of a partition at once"
            self._inside.add(partition)
        try:
            with self._lock:
                left = self._busy.get((partition, request.first_offset), 0)
                if left:
                    self._busy[partition, request.first_offset] = left - 1
                    raise Busy("later", is_broken=left % 2 == 0)
                if any((partition, offset) in self._bad for offset in offsets_in(request)):
                    raise RequestRefused("bad")
                self.taken[partition] += offsets_in(request)
        finally:
            with self._lock:
                self._inside.remove(partition)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 6), min_size=1, max_size=4)), max_size=12),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=8),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 40)), st.integers(1, 2), max_size=6),
    st.integers(1, 4),
)
def test_all_but_the_bad_records_arrive_once_and_in_order(
    given_: list[tuple[int, list[int]]], bad: set[tuple[int, int]], busy: dict[tuple[int, int], int], threads: int
) -> None:
    target, ends = Target(bad, busy), dict[int, int]()
    refused: list[tuple[int, int]] = []
    with lanes(target, threads=threads) as made:
        for partition, sizes in given_:
            first = ends.get(partition, 0)
            made.give(requests(partition, first, *sizes))
            ends[partition] = first + sum(sizes)
        made.drain()
        for request, _ in made.refused():
            assert len(request.places) == 1
            refused.append((request.partition[1], request.first_offset))
    for partition, end in ends.items():
        wrong = [offset for offset in range(end) if (partition, offset) in bad]
        assert target.taken[partition] == [offset for offset in range(end) if offset not in wrong]
        assert [offset for one, offset in refused if one == partition] == wrong


def test_a_refused_batch_is_not_halved_without_splitting() -> None:
    target = Target({(0, 1)}, {})
    with lanes(target, splits=False) as made:
        made.give(requests(0, 0, 3, 2))
        made.drain()
        ((request, _),) = made.refused()
    assert offsets_in(request) == [0, 1, 2]
    assert target.taken[0] == [3, 4]


def test_a_body_that_is_too_large_is_halved_even_without_splitting() -> None:
    taken: list[list[int]] = []

    def send(request: HttpRequest) -> None:
        if len(request.places) > 2:
            raise RequestRefused("413", too_large=True)
        taken.append(offsets_in(request))

    with lanes(send, splits=False) as made:
        made.give(requests(0, 0, 5))
        made.drain()
    assert taken == [[0, 1], [2], [3, 4]]


def test_the_first_bad_record_ends_the_run_without_a_reporter() -> None:
    target = Target({(0, 3)}, {})
    with lanes(target, keeps=False) as made:
        made.give(requests(0, 0, 8))
        with pytest.raises(RequestRefused):
            made.drain()
        with pytest.raises(RequestRefused):
            made.give(requests(0, 8, 1))
    assert target.taken[0] == [0, 1, 2]


def test_a_config_error_ends_the_run() -> None:
    def send(request: HttpRequest) -> None:
        raise ConfigError("no", field="http.url")

    with lanes(send) as made:
        made.give(requests(0, 0, 2))
        with pytest.raises(ConfigError):
            made.drain()


def test_partitions_are_sent_concurrently_up_to_the_thread_limit() -> None:
    begun = threading.Barrier(3)

    def send(_request: HttpRequest) -> None:
        begun.wait(WAIT_S)  # breaks unless three threads arrive at the same time

    with lanes(send, threads=3) as made:
        for partition in range(3):
            made.give(requests(partition, 0, 1, 1))
        made.drain()


def test_a_retrying_lane_occupies_no_thread_and_drain_reports_it() -> None:
    sent: list[int] = []
    all_sent = threading.Event()

    def send(request: HttpRequest) -> None:
        if request.partition[1] == 0:
            raise Busy("away")
        sent.append(request.first_offset)
        if len(sent) == 3:
            all_sent.set()

    with lanes(send, threads=1, retries=0, backoff_s=60) as made:
        made.give(requests(0, 0, 1))
        made.give(requests(1, 0, 1, 1, 1))
        assert all_sent.wait(WAIT_S)
        with pytest.raises(RetriableError, match="away"):
            made.drain()
    assert sent == [0, 1, 2]


def test_a_request_is_not_retried_before_the_requested_delay() -> None:
    sent_s: list[float] = []

    def send(_request: HttpRequest) -> None:
        sent_s.append(time.monotonic())
        if len(sent_s) == 1:
            raise Busy("not now", wait_s=0.3)

    with lanes(send, backoff_s=0.0) as made:
        made.give(requests(0, 0, 1))
        made.drain()
    assert sent_s[1] - sent_s[0] >= 0.3


def test_a_lane_recovers_by_itself_once_its_receiver_is_reachable() -> None:
    back, taken = threading.Event(), threading.Event()

    def send(_request: HttpRequest) -> None:
        if not back.is_set():
            raise Busy("away", wait_s=0.001)
        taken.set()

    with lanes(send, retries=0) as made:
        made.give(requests(0, 0, 1))
        with pytest.raises(RetriableError):
            made.drain()
        back.set()
        assert taken.wait(WAIT_S)
        made.drain()


@pytest.mark.parametrize(
    ("why", "error_class"),
    [(NoResponse("refused", 0.001), ErrorClass.UNREACHABLE), (Busy("HTTP 503", 0.001), ErrorClass.RETRIABLE)],
)
def test_only_a_receiver_without_a_response_is_unreachable(why: Busy, error_class: ErrorClass) -> None:
    def send(_request: HttpRequest) -> None:
        raise why

    with lanes(send, retries=0) as made:
        made.give(requests(0, 0, 1))
        with pytest.raises(RetriableError) as caught:
            made.drain()
        assert isinstance(caught.value, UnreachableError) is (error_class is ErrorClass.UNREACHABLE)
        assert failure.error_class(caught.value) is error_class


def test_a_full_lane_raises_with_the_receivers_name() -> None:
    tried = threading.Event()

    def send(_request: HttpRequest) -> None:
        tried.set()
        raise Busy("away for good", wait_s=0.01)

    with lanes(send) as made:
        made.give(requests(0, 0, partition_lanes.LANE_RECORDS_MAX))
        assert tried.wait(WAIT_S)
        with pytest.raises(RetriableError, match="away for good"):
            made.give(requests(0, partition_lanes.LANE_RECORDS_MAX, 1))
        made.give(requests(1, 0, 1))  # each partition has its own room


def test_a_full_lane_reports_a_slow_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_lanes, "ROOM_WAIT_S", 0.05)
    go_on = threading.Event()

    def send(_request: HttpRequest) -> None:
        assert go_on.wait(WAIT_S)

    with lanes(send) as made:
        made.give(requests(0, 0, partition_lanes.LANE_RECORDS_MAX))
        with pytest.raises(RetriableError, match="slow"):
            made.give(requests(0, partition_lanes.LANE_RECORDS_MAX, 1))
        go_on.set()
        made.drain()
        made.give(requests(0, partition_lanes.LANE_RECORDS_MAX, 1))
        made.drain()


def test_a_batch_larger_than_the_room_is_accepted_when_nothing_else_waits() -> None:
    target = Target(set(), {})
    with lanes(target, threads=1) as made:
        made.give(requests(0, 0, 3 * partition_lanes.LANE_RECORDS_MAX))
        made.drain()
    assert len(target.taken[0]) == 3 * partition_lanes.LANE_RECORDS_MAX


def test_a_failing_or_hanging_receiver_is_shown_as_a_wait_without_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop with records drains only once a minute."""
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    waits.current().clear()
    answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    def send(_: HttpRequest) -> None:
        asked.put(None)
        if (outcome := answer.get(timeout=WAIT_S)) is not None:
            raise outcome

    with lanes(send) as made:
        made.give(requests(0, 0, 1))
        asked.get(timeout=WAIT_S)
        hangs = waits.current().shown()
        assert hangs is not None
        assert hangs.text() == "waits for HTTP here: the response to a request of 1 records"
        answer.put(Busy("503 from the receiver", 0.001))
        asked.get(timeout=WAIT_S)
        fails = waits.current().shown()
        assert fails is not None
        assert (fails.waits_for, fails.tries) == ("HTTP here", 1)
        answer.put(None)
        made.drain()
        assert waits.current().shown() is None


def test_a_drain_reports_its_wait_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver is busy until the wait has its reason; then it accepts the request, and the wait ends."""
    monkeypatch.setattr(waits, "SHOWN_AFTER_S", 0.0)
    waits.current().clear()
    seen: list[waits.Wait] = []

    def send(_: HttpRequest) -> None:
        shown = waits.current().shown()
        if shown is None or not shown.tries:
            raise Busy("503 from the receiver", 0.02)
        seen.append(shown)

    with lanes(send, retries=1_000) as made:
        made.give(requests(0, 1, 1))
        made.drain()
    assert [(one.waits_for, one.message) for one in seen] == [
        ("HTTP here", "the response to a request of 1 records")
    ], "the tries are those of the failure around it"
    assert waits.current().shown() is None
