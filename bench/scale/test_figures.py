"""The law of a figure, and the table."""

from __future__ import annotations

from bench.scale.figures import law, table, units_of


def test_units_are_those_of_the_size_that_was_reported() -> None:
    assert units_of(700) == 1_820


def test_a_law_is_what_there_is_without_units_and_what_each_adds() -> None:
    assert law([100, 200, 300], [11.0, 12.0, 13.0]) == "10 + 10 a 1,000 units"
    assert law([100], [11.0]) == "-"


def test_each_size_has_a_column_and_each_figure_a_law() -> None:
    printed = table({10: {"memory, MB": 1.0}, 20: {"memory, MB": 2.0}}).splitlines()
    assert printed[0] == "| figure | 10 connectors, 26 units | 20 connectors, 52 units | law |"
    assert printed[2] == "| memory, MB | 1 | 2 | 0 + 38.5 a 1,000 units |"
