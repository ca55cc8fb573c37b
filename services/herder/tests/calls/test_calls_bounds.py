"""Bounds of calls: their number, their waits, the answer at the deadline, and no leftovers in memory."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from herdmesh.herder import loop as herder_loop
from herdmesh.herder.loop import HerderLoop
from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.calls.calls import CALLS_MAX
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import (
    CreateConnector,
    DrainWorker,
    PatchConnector,
    Request,
    RestartConnector,
    RestartTask,
    SetTarget,
    ValidateConfig,
    WriteOptions,
)
from herdmesh.rpc.errors import QueueFull, RevisionMismatch, Timeout
from herdmesh.session.model import TargetState
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import Outcome


@pytest.fixture
def world() -> World:
    """A leader, one worker, one connector."""
    world = World()
    world.lead()
    world.worker("w1")
    world.ask(CreateConnector("a", sink(1)))
    return world


def left(world: World) -> dict[str, int]:
    """Entries about calls that a herder still has in memory, by table."""
    table = world.herder._memory.call_table  # pyright: ignore[reportPrivateUsage]
    waiting = table.waiting_for_watch()
    kept = {"calls": table.calls, "ops": table.ops, "commands": table.commands, "reading back": waiting}
    return {what: len(table) for what, table in kept.items() if table}


def test_calls_beyond_the_limit_are_refused_with_queue_full(world: World) -> None:
    requests: list[Request] = [SetTarget("a", TargetState.PAUSED), ValidateConfig(sink(1)), RestartConnector("a")]
    numbers = [
        world.call(requests[number % 3], WriteOptions(f"r{number}" if number % 2 else ""), timeout_ms=60_000)
        for number in range(CALLS_MAX + 500)
    ]
    world.store_down = True
    world.workers["w1"].frozen = True
    world.run()
    refused = [number for number in numbers if isinstance(world.answers.get(number), QueueFull)]
    assert refused == numbers[CALLS_MAX:]
    assert left(world)["calls"] == CALLS_MAX
    world.workers["w1"].thaw()
    world.store_down = False
    world.advance(61_000)
    assert len(world.answers) >= len(numbers)
    world.ask(SetTarget("a", TargetState.STARTED))
    assert left(world).get("calls", 0) == 0


def test_no_memory_is_left_of_calls_that_were_answered_cancelled_or_timed_out(world: World) -> None:
    world.worker("w2")
    for ending in ("answered", "cancelled", "late", "leader lost"):
        world.store_down = world.workers["w1"].frozen = ending != "answered"
        world.workers["w2"].frozen = world.workers["w1"].frozen
        numbers = [
            world.call(request, WriteOptions(f"{ending}{number}"), timeout_ms=500)
            for number in range(5)
            for request in (
                ValidateConfig(sink(1)),
                PatchConnector("a", {"note": f"{ending}{number}"}),
                PatchConnector("b", {}),
                SetTarget("a", TargetState.STARTED),
                RestartTask("a", 0),
                DrainWorker("w2"),
            )
        ]
        world.run()
        if ending == "cancelled":
            for number in numbers:
                world.post(ev.RequestCancelled(number))
        if ending == "leader lost":
            world.post(ev.LeadershipLost("told to"))
        world.advance(1_000)
        world.store_down = False
        for name in ("w1", "w2"):
            world.workers[name].thaw()
        if ending == "leader lost":
            world.lead()
        world.advance(3_000)
        unanswered = [number for number in numbers if number not in world.answers]
        assert unanswered == [] or ending == "cancelled"
        kept = left(world)
        # A write without a waiting call is forgotten when it ends; the store never answered these.
        kept.pop("ops", None)
        assert kept == {}, ending


#: With messages of 200 ms: the deadline, and the stage of the call at that time.
CREATE_STAGES = [
    (300, "validating the config on a worker"),
    (500, "validating the config on a worker"),
    (700, "writing to the config store"),
    (900, "writing to the config store"),
]


@pytest.mark.parametrize(("timeout_ms", "stage"), CREATE_STAGES)
def test_a_create_that_times_out_names_its_stage(world: World, timeout_ms: int, stage: str) -> None:
    world.delay_ms = lambda: 200
    number = world.call(CreateConnector("b", sink(1)), timeout_ms=timeout_ms)
    world.advance(timeout_ms + 150)
    answer = world.answers[number]
    assert isinstance(answer, Timeout)
    assert answer.stage == stage
    assert stage in answer.message


def test_a_timeout_names_the_stage_of_a_late_watch(world: World) -> None:
    """The store has acknowledged the write, and its watch does not bring it."""
    world.silent.add("watch")
    number = world.call(SetTarget("a", TargetState.PAUSED), timeout_ms=500)
    world.advance(700)
    answer = world.answers[number]
    assert isinstance(answer, Timeout)
    assert answer.stage == "waiting to read the write back from the config store"


@pytest.mark.parametrize(
    ("request_", "options", "stage"),
    [
        (
            PatchConnector("b", {}),
            WriteOptions("r"),
            "checking with the config store whether an earlier request of",
        ),
        (RestartConnector("a", include_tasks=True), WriteOptions(), "writing to the config store"),
        (DrainWorker("w1"), WriteOptions(), "waiting for the worker to acknowledge it"),
        (ValidateConfig(sink(1)), WriteOptions(), "validating the config on a worker"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_other_stage_has_a_name(world: World, request_: Request, options: WriteOptions, stage: str) -> None:
    world.store_down = True
    world.workers["w1"].frozen = True
    number = world.call(request_, options, timeout_ms=400)
    world.advance(600)
    answer = world.answers[number]
    assert isinstance(answer, Timeout)
    assert answer.stage.startswith(stage)


def test_a_patch_that_loses_every_race_fails_after_five_retries(world: World) -> None:
    """Another writer writes a config between each merge and its write."""
    write = world.config.write
    races = Counter[str]()

    def raced(wanted: ins.Write) -> Outcome:
        if not isinstance(wanted, ins.PutConfig):
            return write(wanted)
        races["writes"] += 1
        entry = world.config.entries["a"]
        world.config.entries["a"] = changed = type(entry)("a", config=entry.config, config_revision=world.config.next())
        world.post(ev.ConfigChanged("a", changed, changed.config_revision))
        return write(wanted)

    world.config.write = raced  # type: ignore[method-assign]
    number = world.call(PatchConnector("a", {"more": "1"}))
    world.advance(3_000)
    assert isinstance(world.answers[number], RevisionMismatch)
    assert races["writes"] == 6


async def test_calls_that_wait_for_the_loop_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(herder_loop, "CALLS_MAX", 2)
    monkeypatch.setattr(herder_loop, "QUEUE_MAX", 1)
    loop = HerderLoop(Herder(Rules()), lambda: None)  # it does not run, so the queue stays full
    taken = asyncio.create_task(loop.call(SetTarget("a", TargetState.PAUSED), WriteOptions(), 60.0))
    waits = asyncio.create_task(loop.call(SetTarget("a", TargetState.PAUSED), WriteOptions(), 0.1))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await loop.call(SetTarget("a", TargetState.PAUSED), WriteOptions(), 60.0)
    with pytest.raises(Timeout, match="waiting for the herder to take the request"):
        await waits
    taken.cancel()
    await asyncio.gather(taken, return_exceptions=True)
