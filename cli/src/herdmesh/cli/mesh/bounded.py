"""Bounded parallel work: one call for each of many connectors, several at a time.

Owns the stop after an error; `outcomes.py` owns the order of outcomes. Does not know any RPC. Invariants: at most
`AT_ONCE` calls are under way; a call that has begun is waited for, also after an error of another, because its change
may be made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from herdmesh.cli.errors import CommandError
from herdmesh.cli.mesh.outcomes import Item, ItemOutcome, OrderedOutcomes, Result

AT_ONCE = 16
"""Calls under way: the herder and a worker serve so many without a queue of their own (docs/reference/cli.md)."""


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
    outcomes: OrderedOutcomes[Item, Result] = OrderedOutcomes(items, show)
    numbers = iter(range(len(items)))
    stopped = False

    async def serve() -> None:
        nonlocal stopped
        for number in numbers:
            if stopped:
                return
            try:
                outcomes.end(number, result=await work(items[number]))
            except CommandError as error:
                outcomes.end(number, error=error)
                stopped = stop_at_error

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(items))):
            group.create_task(serve())
    outcomes.show_rest()
    return outcomes.all
