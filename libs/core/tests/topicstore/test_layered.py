"""Equivalence of `Layered` and dict, in whatever order copies are made."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.topicstore import layered
from herdmesh.topicstore.layered import Layered
from tests.support.sizes import soak_or

_steps = st.lists(
    st.tuples(st.sampled_from(["set", "set", "set", "pop", "copy"]), st.integers(0, 12), st.integers(0, 99)),
    max_size=80,
)


@settings(max_examples=soak_or(100, 5_000), deadline=None, derandomize=True)
@given(_steps)
def test_copies_are_independent_and_ordered_by_last_change(steps: list[tuple[str, int, int]]) -> None:
    limit, layered._OWN_MAX = layered._OWN_MAX, 4  # pyright: ignore[reportPrivateUsage]  # so that folds happen
    try:
        mine: list[tuple[Layered[int, int], dict[int, int]]] = [(Layered(), {})]
        for step, key, value in steps:
            under_test, model = mine[value % len(mine)]
            if step == "set":
                under_test[key] = value
                model.pop(key, None)
                model[key] = value
            elif step == "pop":
                assert under_test.pop(key, None) == model.pop(key, None)
            else:
                mine.append((under_test.copy(), dict(model)))
            for one, other in mine:
                assert list(one.items()) == list(other.items())
                assert len(one) == len(other)
                assert one.get(key) == other.get(key)
                assert (key in one) == (key in other)
                assert one == other
    finally:
        layered._OWN_MAX = limit  # pyright: ignore[reportPrivateUsage]


def test_a_copy_costs_the_same_with_any_number_of_keys() -> None:
    large: Layered[int, str] = Layered()
    large.update(dict.fromkeys(range(100000), "value"))
    twin = large.copy()
    assert twin._base is large._base  # pyright: ignore[reportPrivateUsage]
    for key in range(100):
        twin[key] = "other"
    third = twin.copy()
    assert third._base is large._base  # pyright: ignore[reportPrivateUsage]
    assert len(third._own) == 100  # pyright: ignore[reportPrivateUsage]
    assert large[0] == "value"
    assert third[0] == "other"
