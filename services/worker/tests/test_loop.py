"""Order of events and ticks of the worker's loop: no worker, a state that counts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from herdmesh.worker.loop import WorkerLoop
from herdmesh.worker.state import events, instructions
from herdmesh.worker.state.machine import WorkerState

_EVENTS = 250


class CountingState:
    """A state for which something is always due; it exits after so many events."""

    def __init__(self) -> None:
        self.handled: list[events.Event] = []
        self.looks = 0

    def next_deadline(self) -> float | None:
        self.looks += 1
        return 0.0

    def handle(self, event: events.Event, now: float) -> list[instructions.Instruction]:
        self.handled.append(event)
        is_last = sum(isinstance(one, events.DrainRequested) for one in self.handled) == _EVENTS
        return [instructions.Exit(7)] if is_last else []


async def test_waiting_events_are_handled_without_a_look_at_all_tasks_for_each() -> None:
    state = CountingState()
    loop = WorkerLoop(cast(WorkerState, state))
    for _ in range(_EVENTS):
        await loop.emit(events.DrainRequested())
    async with asyncio.timeout(20):
        assert await loop.run(cast(Any, None)) == 7
    ticks = [place for place, event in enumerate(state.handled) if isinstance(event, events.Tick)]
    assert ticks == [100, 201], "what is due waits for 100 events at most"
    assert state.looks == len(ticks)
