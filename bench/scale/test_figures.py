"""Tests of the law of a figure, the goals, and the table."""

from __future__ import annotations

import math
from collections.abc import Callable

from bench.scale.figures import law, missed, table, units_of

SIZES = [260, 780, 1_820, 3_900]


def test_units_are_those_of_the_reported_size() -> None:
    assert units_of(700) == 1_820


def _values(grows: Callable[[float], float]) -> list[float]:
    return [grows(size) for size in SIZES]


def test_the_laws_are_distinguished() -> None:
    assert law("requests", SIZES, _values(lambda n: 50 + 0.001 * n)) == "constant: 51.7"
    assert law("requests", SIZES, _values(lambda n: 10 + 0.1 * n)) == "linear: 10 + 100 n"
    assert law("requests", SIZES, _values(lambda n: 5 + n * math.log2(n))) == "n log n: 5 + 1e+03 n log2 n"
    assert law("requests", SIZES, _values(lambda n: 0.001 * n * n)).startswith("quadratic: ")
    assert law("requests", SIZES, _values(lambda n: 4_000 - n)) == "linear: 4e+03 - 1e+03 n"


def test_differences_too_small_to_measure_count_as_constant() -> None:
    assert law("grown, MB", SIZES, [0.1, -0.2, 0.3, 1.0]) == "constant: 0.3"
    assert law("starts", SIZES, [0, 0, 0, 0]) == "constant: 0"


def test_one_size_has_no_law_and_two_have_a_line() -> None:
    assert law("starts", [100], [11.0]) == "-"
    assert law("starts", [100, 200], [10.0, 30.0]) == "linear: -10 + 200 n"


def test_a_law_that_does_not_fit_is_shown_with_its_error() -> None:
    assert "(error " in law("starts", SIZES, [1, 100, 1, 100])


def test_each_size_has_a_column_and_each_figure_a_law() -> None:
    printed = table({10: {"memory, MB": 1.0}, 20: {"memory, MB": 20.0, "starts": 3}}).splitlines()
    assert printed[0] == "| figure | 10 connectors, 26 units | 20 connectors, 52 units | law, n in 1,000 units |"
    assert printed[2] == "| memory, MB | 1 | 20 | linear: -18 + 731 n |"
    assert printed[3] == "| starts | - | 3 | - |"
    assert table({100: {"starts": 1}}, units=int).splitlines()[0].startswith("| figure | 100 units |")


def test_a_missed_goal_is_reported() -> None:
    assert missed({"lists with status by 64 callers, a second": 1_000, "slowest step of the herder, ms": 49}) == []
    assert missed({"lists with status by 64 callers, a second": 68, "slowest step of the herder, ms": 478}) == [
        "lists with status by 64 callers, a second: 68, at least 200 wanted",
        "slowest step of the herder, ms: 478, at most 50 wanted",
    ]
