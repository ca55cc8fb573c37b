"""Blocks of generations: a leader requests the next one before it needs it, and continues after a lost answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herdmesh.herder.state import Herder, Rules
from herdmesh.herder.state.leadership.generations import RESERVE_AT, RESERVE_MS
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, RestartConnector
from herdmesh.session.messages import StartUnit
from services.herder.tests.world import World, sink
from services.herder.tests.world_store import revision


def led(block: int, connectors: int = 0, reserves: bool = False) -> World:
    """A leader with blocks of this size, and one worker; `reserves` = the store grants further blocks."""
    world = World()
    world.generations_per_block, world.reserves = block, reserves
    world.lead()
    world.worker("w1")
    for number in range(connectors):
        world.ask(CreateConnector(f"c{number}", sink(3)))
    return world


def generations(world: World) -> list[int]:
    return [start.assignment.generation for _, start in world.starts]


def test_more_starts_than_a_block_has_need_no_new_epoch() -> None:
    world = led(600, connectors=2, reserves=True)
    while len(world.starts) < 1_300:
        world.ask(RestartConnector("c0", include_tasks=True))
    assert world.config.epoch == 1
    assert world.role is None, "it leads"
    assert generations(world) == list(range(1, len(world.starts) + 1)), "each once, in order, none left out"
    assert len(world.reserved) == (len(world.starts) + RESERVE_AT) // 600


def test_the_next_block_is_requested_once_and_before_the_last_generation() -> None:
    world = led(RESERVE_AT + 6)
    world.ask(CreateConnector("a", sink(3)))
    assert world.reserved == []
    world.ask(CreateConnector("b", sink(3)))
    assert world.reserved == [RESERVE_AT + 7]
    world.ask(CreateConnector("c", sink(3)))
    world.advance(3_000)
    assert world.reserved == [RESERVE_AT + 7], "the campaign says it again by itself"
    assert len(world.starts) == 12


def test_units_wait_for_a_requested_block() -> None:
    world = led(6, connectors=1)
    world.call(CreateConnector("b", sink(3)))
    world.advance(RESERVE_MS - 500)
    assert len(world.workers["w1"].held) == 6, "the first block is used up"
    assert world.role is None
    world.reserve(6)
    world.run()
    assert len(world.workers["w1"].held) == 8
    world.advance(RESERVE_MS)
    assert (world.config.epoch, world.role) == (1, None)
    assert generations(world) == list(range(1, 9))


def test_a_leader_that_gets_no_block_gives_its_epoch_up_and_restarts_nothing() -> None:
    world = led(6, connectors=1)
    world.call(CreateConnector("b", sink(3)))
    world.advance(5_000)
    assert world.config.epoch == 2
    assert len(world.workers["w1"].held) == 8
    assert [held.starts for held in world.workers["w1"].held.values()] == [1] * 8
    assert world.herder.cluster().adopted_count > 0
    assert sorted(set(generations(world))) == generations(world)


def started(instructions: list[ins.Instruction]) -> list[int]:
    messages = [one.message for one in instructions if isinstance(one, ins.Send)]
    return [message.assignment.generation for message in messages if isinstance(message, StartUnit)]


def test_a_block_of_another_epoch_or_received_twice_changes_nothing() -> None:
    herder = Herder(Rules(herder_id="h1"))
    herder.handle(ev.ConfigSnapshot([], revision(5), epoch=4), 0)
    herder.handle(ev.LeadershipGranted(4, 100, 101, 10**9, "h1", "here:1"), 0)
    leadership = herder._memory.leadership  # pyright: ignore[reportPrivateUsage]
    for told in (ev.GenerationsReserved(3, 9_000), ev.GenerationsReserved(5, 9_000), ev.GenerationsReserved(4, 50)):
        herder.handle(told, 1)
        assert leadership.generation_limit == 101
    for _ in range(2):
        herder.handle(ev.GenerationsReserved(4, 201), 2)
        assert (leadership.next_generation, leadership.generation_limit) == (100, 201)


def test_the_same_epoch_granted_again_brings_the_lost_block() -> None:
    """The store wrote the block and failed over before its response; the herder returns with its epoch."""
    world = led(6, connectors=1)
    world.call(CreateConnector("b", sink(3)))
    world.advance(500)
    assert len(world.workers["w1"].held) == 6
    world.post(ev.LeadershipGranted(1, 7, 13, 10**12, "h1", "here:1"))
    world.run()
    assert len(world.workers["w1"].held) == 8
    assert generations(world) == list(range(1, 9))


@given(st.lists(st.sampled_from(["create", "restart", "reserve", "lead", "wait"]), max_size=40), st.integers(1, 9))
def test_generations_never_repeat_or_go_back(steps: list[str], block: int) -> None:
    world = led(block)
    for number, step in enumerate(steps):
        match step:
            case "create":
                world.call(CreateConnector(f"c{number}", sink(2)))
            case "restart":
                world.call(RestartConnector("c0", include_tasks=True))
            case "reserve" if world.role is None:
                world.reserve(block)
            case "lead":
                world.lead()
            case _:
                world.advance(RESERVE_MS + 200)
        world.run()
    given_out = generations(world)
    assert given_out == sorted(set(given_out))
    assert all(start.assignment.generation < world.spent for _, start in world.starts)
