"""Parts of the herder's memory: each keeps its invariant under any change, and only its own file writes it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.herder import state
from herdmesh.herder.state import Rules
from herdmesh.herder.state.calls.handlers_by_request import handler_of
from herdmesh.herder.state.memory import HerderMemory, Member, Placement, Step, new_memory
from herdmesh.herder.state.memory.fleet import Window
from herdmesh.herder.state.model.events import LeadershipGranted
from herdmesh.herder.state.model.requests import Request
from herdmesh.session.model import Assignment

ROOMS = Path(state.__file__).parent
#: `balance` is missing: its fields are those of one record, which only `units/balance.py` writes.
PARTS = {"step", "agenda", "leadership", "stores", "fleet", "inventory", "call_table", "session_key"}
WORKERS = ("w1", "w2")


def writes(source: str) -> Iterator[str]:
    """The assignments of a source to fields of a part."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=targets):
                written = [one for target in targets for one in ast.walk(target)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                written = list(ast.walk(target))
            case ast.Delete(targets=targets):
                written = [one for target in targets for one in ast.walk(target)]
            case _:
                continue
        for one in written:
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load) and _is_part(one.value):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_part(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return name in PARTS
        case ast.Attribute(attr=name):
            return name in PARTS
        case _:
            return False


def test_each_part_is_written_by_its_own_module_only() -> None:
    outside = [path for path in ROOMS.rglob("*.py") if path.parent.name != "memory"]
    found = {path.name: list(writes(path.read_text(encoding="utf-8"))) for path in outside}
    assert len(found) > 30
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source", ["memory.fleet.members = {}", "agenda.place_all = 1", "step.now += 1", "del memory.stores.entries"]
)
def test_a_write_from_outside_is_found(source: str) -> None:
    assert len(list(writes(source))) == 1


@pytest.mark.parametrize("kind", get_args(Request))
def test_each_kind_of_request_has_its_own_handler(kind: type[object]) -> None:
    made: Any = object.__new__(kind)
    handler = handler_of(made)
    assert handler.__dict__["request"] is made
    assert kind.__name__ in type(handler).__annotations__["request"].split(" | ")


def held(memory: HerderMemory) -> dict[str, Counter[object]]:
    """By worker, the number of placements of each unit on it, superseded ones included, by the units' own records."""
    found = {worker: Counter[object]() for worker in WORKERS}
    for connector in memory.inventory.connectors.values():
        for unit in connector.units.values():
            found_here = [hold.worker_id for hold in unit.placements()]
            for worker in found_here:
                found[worker][unit.id] += 1
    return found


@given(st.lists(st.tuples(st.sampled_from(["take", "stray", "drop"]), st.sampled_from(WORKERS), st.integers(0, 2))))
def test_a_members_load_equals_its_units(steps: list[tuple[str, str, int]]) -> None:
    memory = new_memory(Rules())
    for number, worker in enumerate(WORKERS):
        memory.fleet.join(Member(worker, "life", "here:1", 8, (), number, 0, 0), number)
    connector = memory.inventory.connector("c")
    for generation, (step, worker, task) in enumerate(steps):
        unit, hold = connector.unit(task), Placement(worker, Assignment(1, generation), 0)
        if step == "take" and unit.placement is None:
            memory.inventory.take(unit, hold)
        elif step == "stray":
            memory.inventory.supersede(unit, hold)
        elif step == "drop":
            for one in list(unit.placements())[:1]:
                memory.inventory.drop(unit, one)
        loads = {worker: Counter(memory.fleet.members[worker].load) for worker in WORKERS}
        assert loads == held(memory)
        assert connector.superseded_tasks == sum(len(one.superseded) for one in connector.units.values())


def test_a_window_is_lengthened_up_to_three_times_its_length() -> None:
    step = Step(Rules())
    window = Window(step)
    assert not window.is_open
    assert not window.close()
    step.begin(1_000)
    window.open(500)
    for now in (1_400, 1_800, 2_200, 2_400):
        step.begin(now)
        assert window.is_open
        window.lengthen(500)
    assert window.until_ms == 2_500
    step.begin(2_500)
    assert not window.is_open
    assert window.close()
    assert not window.close()


@given(st.lists(st.one_of(st.just("take"), st.integers(0, 50)), max_size=60))
def test_generations_are_given_out_once_in_order_and_within_their_blocks(steps: list[str | int]) -> None:
    leadership = new_memory(Rules()).leadership
    leadership.grant(LeadershipGranted(3, 10, 15, 1_000))
    taken: list[int] = []
    limit = 15
    for step in steps:
        if isinstance(step, int):
            leadership.raise_limit(step)
            limit = max(limit, step)
        elif leadership.generations_left:
            taken.append(leadership.take_generation())
        if step == 7:
            leadership.grant(LeadershipGranted(3, 10, limit, 1_000))
    assert taken == list(range(10, 10 + len(taken)))
    assert all(generation < limit for generation in taken)
