"""Rate limits: each task's share of its connector's limit, and the workers that are sent it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.herder.state import Rules
from herdmesh.herder.state.memory import Connector, HerderMemory, Member, Placement, new_memory
from herdmesh.herder.state.model import RateUse, TaskProgress
from herdmesh.herder.state.model.instructions import Send
from herdmesh.herder.state.units.rate_limits import level, share_limits
from herdmesh.session.messages import SetRate
from herdmesh.session.model import Assignment, UnitId

LIMIT = 90.0


def use(used: float, *, wants_more: bool = False) -> RateUse:
    return RateUse(LIMIT, used, wants_more)


def hungry(used: float = 0.0) -> RateUse:
    return use(used, wants_more=True)


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        ([], 0.0),
        ([hungry()], 90.0),
        ([hungry(), hungry(), hungry()], 30.0),
        ([hungry(), hungry(), use(10.0)], 40.0),
        ([hungry(), use(0.0), use(0.0)], 90.0),
        ([hungry(), use(80.0)], 45.0),
        ([use(20.0), use(10.0)], 80.0),
        ([use(0.0), use(0.0), use(0.0)], 90.0),
    ],
)
def test_tasks_get_the_share_that_others_do_not_need(uses: list[RateUse], expected: float) -> None:
    assert level(uses) == pytest.approx(expected)


def test_the_smaller_of_two_reported_limits_counts() -> None:
    assert level([RateUse(90.0, 0.0, True), RateUse(50.0, 0.0, True)]) == 25.0


USES = st.lists(st.builds(use, st.floats(0.0, 2 * LIMIT), wants_more=st.booleans()), min_size=1, max_size=20)


@settings(max_examples=300, deadline=None)
@given(USES)
def test_the_levels_use_the_limit_and_give_each_task_an_equal_part_at_least(uses: list[RateUse]) -> None:
    found = level(uses)
    assert found >= LIMIT / len(uses) - 1e-6, "never below an equal part"
    assert found <= LIMIT + 1e-6
    if any(one.wants_more for one in uses):
        total = sum(found if one.wants_more else min(found, one.used_per_second) for one in uses)
        assert total == pytest.approx(LIMIT), "all of it, and no more"


def _memory(workers: int, tasks: int) -> tuple[HerderMemory, Connector]:
    """A connector whose tasks are on the workers in turn."""
    memory = new_memory(Rules(herder_id="h"))
    for number in range(workers):
        name = f"w{number}"
        memory.fleet.join(Member(name, "life", f"{name}:1", 8, (), 100 + number, 0, 0), 100 + number)
    connector = memory.inventory.connector("c")
    for task in range(tasks):
        unit = connector.unit(task)
        memory.inventory.take(unit, Placement(f"w{task % workers}", Assignment(1, task + 1), 0))
    return memory, connector


def _tell(memory: HerderMemory, connector: Connector, *uses: RateUse | None) -> list[tuple[int, float]]:
    """Report each task's use in turn; returns the sessions that are sent a level of records."""
    for task, used in enumerate(uses):
        connector.unit(task).progress = TaskProgress(UnitId("c", task), records_rate=used)
    memory.step.take_instructions()
    share_limits(memory.fleet, connector)
    sent = [(one.session, one.message) for one in memory.step.take_instructions() if isinstance(one, Send)]
    return [(session, message.records_per_second) for session, message in sent if isinstance(message, SetRate)]


def test_workers_with_limited_tasks_are_sent_a_changed_level() -> None:
    memory, connector = _memory(2, 3)
    assert _tell(memory, connector, hungry(), hungry(), hungry()) == [(100, 30.0), (101, 30.0)]
    assert _tell(memory, connector, hungry(), hungry(), hungry()) == [], "they know"
    assert _tell(memory, connector, hungry(), use(30.0), hungry()) == [], "the same level"
    assert _tell(memory, connector, hungry(), use(10.0), hungry()) == [(100, 40.0), (101, 40.0)]
    assert _tell(memory, connector, hungry(), None, hungry()) == [(100, 45.0)], "the other has no task that runs"
    assert _tell(memory, connector, None, None, None) == []


def test_a_worker_that_dials_in_again_is_sent_its_level() -> None:
    memory, connector = _memory(1, 1)
    assert _tell(memory, connector, hungry()) == [(100, 90.0)]
    before = memory.fleet.members["w0"]
    memory.fleet.end_session(before)
    assert _tell(memory, connector, use(10.0)) == []
    again = Member("w0", "life", "w0:1", 8, (), 200, 0, 0)
    again.load = before.load
    memory.fleet.join(again, 200)
    assert _tell(memory, connector, hungry()) == [(200, 90.0)]
