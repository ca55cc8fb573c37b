"""Growth of the herder's work: for one connector of N tasks it grows as N, whatever happens to the connector.

It counts executed lines of the state's modules, which no load of the machine changes. Work for all tasks at each event
would make it grow as N^2: each event is about one task.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.herder import state
from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, UpdateConnector
from services.herder.tests.world import World, sink

SIZES = (10, 40)
#: four times the tasks are four times the lines; constant work makes the ratio smaller.
GROWTH_MAX = 4.0
_FOLDER = str(Path(state.__file__).parent)


class _Big(World):
    """A world without the check after each delivery: it is quadratic, and covered by other tests."""

    def check(self) -> None:
        """Do nothing; see above."""


@contextmanager
def counting() -> Generator[Counter[str]]:
    """Count executed lines of the state, by function, while the block lasts."""
    counts = Counter[str]()

    def called(frame: FrameType, _event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        name = f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"

        def step(_frame: FrameType, _event: str, _: Any) -> Any:
            counts[name] += 1
            return step

        return step

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield counts
    finally:
        sys.settrace(before)


def _steps(tasks: int) -> dict[str, Counter[str]]:
    """Line counts of each change of one connector with so many tasks."""
    world = _Big(rules=Rules(herder_id="h1", initial_delay_ms=0))
    world.generations_per_block = 10_000
    world.lead()
    for name in ("w0", "w1"):
        world.worker(name)
    world.advance(1_000)
    found: dict[str, Counter[str]] = {}

    def measured(what: str, change: Callable[[], object]) -> None:
        with counting() as found[what]:
            change()
            world.advance(3_000)

    def held() -> int:
        return sum(len(worker.held) for worker in world.workers.values())

    measured("start", lambda: world.ask(CreateConnector("big", sink(tasks))))
    assert held() == tasks + 1
    measured("first commits", lambda: _commit(world))
    measured("describe", lambda: world.herder.connector("big"))
    measured("reconfigure", lambda: world.ask(UpdateConnector("big", {**sink(tasks), "note": "new"}, False)))
    assert held() == tasks + 1
    measured("shrink", lambda: world.ask(UpdateConnector("big", {**sink(tasks // 2), "note": "new"}, False)))
    assert held() == tasks // 2 + 1
    measured("grow", lambda: world.ask(UpdateConnector("big", {**sink(tasks), "note": "new"}, False)))
    measured("a worker is lost", lambda: world.kill("w0"))
    assert held() == tasks + 1
    measured("delete", lambda: world.ask(DeleteConnector("big")))
    assert held() == 0
    return found


def _commit(world: World) -> None:
    for key, status in list(world.statuses.items()):
        if status.unit.task is not None:
            scope = CommitScope.of("connect-big", [f"topic-{status.unit.task % 7}"])
            world.statuses[key] = replace(status, commit_scope=scope)
            world.post(ev.StatusPut(world.statuses[key]))


def test_work_for_one_connector_grows_linearly_with_its_tasks() -> None:
    few, many = (_steps(tasks) for tasks in SIZES)
    steep: list[str] = []
    for what, counts in many.items():
        growth = counts.total() / few[what].total()
        print(f"{what}: {counts.total()} steps for {SIZES[1]} tasks, {growth:.2f} times those for {SIZES[0]}")
        if growth > GROWTH_MAX:
            more = {name: count / few[what][name] for name, count in counts.most_common(12) if few[what][name]}
            steep.append(f"{what}: {growth:.2f} times the steps; {more}")
    assert not steep, "\n".join(steep)
