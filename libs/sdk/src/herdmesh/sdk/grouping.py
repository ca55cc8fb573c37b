"""The grouping of items into tasks. Owns the one rule. Invariant: no item is omitted, duplicated or reordered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def group_partitions(items: Sequence[T], groups: int) -> list[list[T]]:
    """Contiguous groups of nearly equal size, the first ones an item larger; empty ones if there are more groups than
    items (Java: `ConnectorUtils.groupPartitions`; docs/reference/connect/data-model.md, section 3.4).

    Raises:
        ValueError: `groups` is not a positive number.
    """
    if groups <= 0:
        raise ValueError("Number of groups must be positive.")
    size, larger = divmod(len(items), groups)
    made: list[list[T]] = []
    begin = 0
    for number in range(groups):
        end = begin + size + (number < larger)
        made.append(list(items[begin:end]))
        begin = end
    return made
