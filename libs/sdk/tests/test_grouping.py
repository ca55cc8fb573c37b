"""Distribution of items over groups, equal to `ConnectorUtils.groupPartitions`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.sdk import group_partitions


def test_groups_equal_those_of_connects_own_test() -> None:
    """The examples are those of Connect's ConnectorUtilsTest."""
    five = [1, 2, 3, 4, 5]
    assert group_partitions(five, 1) == [five]
    assert group_partitions(five, 2) == [[1, 2, 3], [4, 5]]
    assert group_partitions(five, 3) == [[1, 2], [3, 4], [5]]
    assert group_partitions(five, 5) == [[1], [2], [3], [4], [5]]
    assert group_partitions(five, 7) == [[1], [2], [3], [4], [5], [], []]
    with pytest.raises(ValueError, match=r"Number of groups must be positive\."):
        group_partitions(five, 0)


@given(st.lists(st.integers()), st.integers(1, 50))
def test_no_item_is_lost_duplicated_or_reordered(items: list[int], groups: int) -> None:
    made = group_partitions(items, groups)
    assert len(made) == groups
    assert [one for group in made for one in group] == items
    sizes = [len(group) for group in made]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1
