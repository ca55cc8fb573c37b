"""Tests of outcomes kept for retries: the first outcome, as long as there is room for it."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as pb2
from herdmesh.rpc.request_ids import new_request_id, time_ms_of
from herdmesh.statusstore.effects.requests import REMEMBERED_BYTES_MAX, Requests


def _answer(characters: int = 10) -> pb2.PutStatusesResponse:
    stored = status_pb2.Status(connector="c", trace="t" * characters)
    return pb2.PutStatusesResponse(outcomes=[pb2.PutOutcome(result=pb2.PUT_RESULT_APPLIED, stored=stored)])


async def _put(requests: Requests, request_id: str, characters: int = 10) -> pb2.PutStatusesResponse:
    async def work() -> pb2.PutStatusesResponse:
        return _answer(characters)

    return await requests.once("PutStatuses", request_id, work)


async def test_a_retry_gets_the_first_outcome_during_the_request_and_after_it() -> None:
    requests, calls, go = Requests(), 0, asyncio.Event()

    async def work() -> pb2.PutStatusesResponse:
        nonlocal calls
        calls += 1
        await go.wait()
        return _answer()

    first, second = (asyncio.ensure_future(requests.once("PutStatuses", "a", work)) for _ in range(2))
    go.set()
    assert await first == await second == await requests.once("PutStatuses", "a", work) == _answer()
    assert calls == 1


async def test_a_failed_request_runs_again() -> None:
    requests = Requests()

    async def fails() -> pb2.PutStatusesResponse:
        raise ValueError("the store is away")

    with pytest.raises(ValueError, match="away"):
        await requests.once("PutStatuses", "a", fails)
    assert await _put(requests, "a") == _answer()


async def test_outcomes_are_bounded_by_number_and_bytes_and_discarded_ids_are_reported() -> None:
    requests = Requests(remembered_max=3)
    requests.begin_writing(0)
    ids = [new_request_id() for _ in range(5)]
    for one in ids:
        await _put(requests, one)
    kept = requests._answers  # pyright: ignore[reportPrivateUsage]
    assert [key[1] for key in kept] == ids[-3:]
    assert requests.maybe_since(ids[0]) == time_ms_of(ids[0])

    requests = Requests()
    for number in range(100):
        await _put(requests, str(number), characters=100_000)
    kept = requests._answers  # pyright: ignore[reportPrivateUsage]
    assert 5 < len(kept) <= REMEMBERED_BYTES_MAX // 100_000
    assert await _put(requests, "99", characters=1) == _answer(100_000), "the newest is told again as it was"


async def test_endless_creates_and_deletes_stay_within_the_memory_bound() -> None:
    """Creates and deletes one connector over and over: two writes for each pair."""

    async def rounds(requests: Requests, count: int) -> int:
        for _ in range(count):
            for characters in (0, 60):
                await _put(requests, new_request_id(), characters)
        return tracemalloc.get_traced_memory()[0]

    requests = Requests()
    tracemalloc.start()
    try:
        full_bytes = await rounds(requests, 1_500)
        later_bytes = await rounds(requests, 3_000)
    finally:
        tracemalloc.stop()
    assert full_bytes <= REMEMBERED_BYTES_MAX + 500_000
    assert later_bytes <= 1.05 * full_bytes, "what is full does not grow"
