"""Tests of bounded parallel work: how many calls are under way, the order of outcomes, the stop after an error."""

from __future__ import annotations

import asyncio

import pytest

from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.bounded import run_all


async def test_so_many_calls_are_under_way_and_no_more() -> None:
    under_way, most = 0, 0
    all_began = asyncio.Event()

    async def work(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 4:
            all_began.set()
        await all_began.wait()
        await asyncio.sleep(0)
        under_way -= 1
        return -item

    outcomes = await run_all(range(20), work, at_once=4)
    assert most == 4
    assert [(one.item, one.result) for one in outcomes] == [(number, -number) for number in range(20)]


@pytest.mark.parametrize(("stop", "tried"), [(False, [0, 1, 2, 3]), (True, [0, 1])])
async def test_an_error_is_an_outcome_and_may_end_the_work(stop: bool, tried: list[int]) -> None:
    async def work(item: int) -> str:
        if item == 1:
            raise CommandError("CONFIG_INVALID", "refused")
        return "made"

    outcomes = await run_all(range(4), work, stop_at_error=stop, at_once=1)
    assert [one.item for one in outcomes if one.result or one.error] == tried
    assert [one.item for one in outcomes if one.error] == [1]


async def test_any_other_error_ends_the_work() -> None:
    async def work(_: int) -> None:
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup) as raised:
        await run_all(range(2), work)
    assert raised.group_contains(ValueError)
