"""Event loop: a slow step is logged, and work that a step leaves over is done without waiting for the next tick."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from herdmesh.herder.loop import STEP_MS_MAX, HerderLoop
from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.machine import RECONCILE_MAX
from herdmesh.herder.state.model import ConnectorEntry
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.instructions import Instruction
from herdmesh.topicstore.contract import Revision

FAR_MS = 10**12


class Slow(Herder):
    """Herder that takes longer than a step may, and records its events."""

    def __init__(self) -> None:
        super().__init__(Rules(herder_id="h1"))
        self.seen: list[str] = []
        self.settled = asyncio.Event()

    def handle(self, event: ev.Event, now: int) -> list[Instruction]:
        self.seen.append(type(event).__name__)
        end_s = time.monotonic() + (STEP_MS_MAX + 10) / 1000
        while isinstance(event, ev.ConfigProgress) and time.monotonic() < end_s:
            pass
        instructions = super().handle(event, now)
        if self.refusal is None and not self.has_more_to_do:
            self.settled.set()
        return instructions


@pytest.mark.asyncio
async def test_a_slow_step_is_logged_with_its_event_and_left_over_work_is_done_at_once() -> None:
    herder = Slow()
    led = asyncio.Event()
    loop = HerderLoop(herder, led.set)
    entries = [ConnectorEntry(f"c{number}") for number in range(3 * RECONCILE_MAX)]
    with capture_logs() as logs:
        running = asyncio.create_task(loop.run())
        await loop.post(ev.ConfigProgress(None))
        await loop.post(ev.ConfigSnapshot(entries, Revision("store", (1,)), epoch=1))
        await loop.post(ev.LeadershipGranted(1, 1, 1_000, FAR_MS, "h1", "here:1"))
        await led.wait()
        async with asyncio.timeout(10):
            await herder.settled.wait()
        running.cancel()
    slow = [log for log in logs if log["event"] == "slow_step"]
    assert [log["event_name"] for log in slow if log["event_name"] == "ConfigProgress"] == ["ConfigProgress"]
    granted = herder.seen.index("LeadershipGranted")
    assert herder.seen[granted:].count("Continue") >= 2
