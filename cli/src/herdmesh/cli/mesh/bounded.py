"""Bounded parallel work: one call for each of many connectors, several at a time.

Owns the order of outcomes and the stop after an error. Does not know any RPC. Invariants: at most `AT_ONCE` calls are
under way; a call that has begun is waited for, also after an error of another, because its change may be made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from herdmesh.cli.errors import CommandError

AT_ONCE = 16
"""Calls under way: the herder and a worker serve so many without a queue of their own (docs/reference/cli.md)."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ItemOutcome(Generic[Item, Result]):
    """One item with its result or its error; neither = the work stopped before it."""

    item: Item
    result: Result | None = None
    error: CommandError | None = None


async def run_all(
    items: Sequence[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    show: Callable[[Result], None] | None = None,
    stop_at_error: bool = False,
    at_once: int = AT_ONCE,
) -> list[ItemOutcome[Item, Result]]:
    """The outcome of `work` for each item, in the order of the items.

    Args:
        show: called with each result in the order of the items, as soon as all before it have ended.
        stop_at_error: begin no further item after an error.
    """
    outcomes: list[ItemOutcome[Item, Result]] = [ItemOutcome(item) for item in items]
    numbers = iter(range(len(items)))
    ended: set[int] = set()
    shown = 0
    stopped = False

    def end(number: int, outcome: ItemOutcome[Item, Result]) -> None:
        nonlocal shown
        outcomes[number] = outcome
        ended.add(number)
        while shown in ended:
            result = outcomes[shown].result
            if show is not None and result is not None:
                show(result)
            shown += 1

    async def serve() -> None:
        nonlocal stopped
        for number in numbers:
            if stopped:
                return
            try:
                end(number, ItemOutcome(items[number], result=await work(items[number])))
            except CommandError as error:
                end(number, ItemOutcome(items[number], error=error))
                stopped = stop_at_error

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(serve())
    return outcomes
