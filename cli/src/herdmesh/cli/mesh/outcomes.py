"""Outcomes of work on many items: collected in any order, shown in the order of the items.

Invariant: an item has at most one outcome, and its result is shown once, as soon as all items before it have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from herdmesh.cli.errors import CommandError

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ItemOutcome(Generic[Item, Result]):
    """One item with its result or its error; neither = the work stopped before it."""

    item: Item
    result: Result | None = None
    error: CommandError | None = None


class OrderedOutcomes(Generic[Item, Result]):
    """The outcomes of these items. `show` is called with each result, in the order of the items."""

    def __init__(self, items: Sequence[Item], show: Callable[[Result], None] | None = None) -> None:
        self.all: list[ItemOutcome[Item, Result]] = [ItemOutcome(item) for item in items]
        self._show = show
        self._ended: set[int] = set()
        self._shown = 0

    @property
    def ended(self) -> int:
        """Number of items that have an outcome."""
        return len(self._ended)

    def end(self, number: int, *, result: Result | None = None, error: CommandError | None = None) -> None:
        """Note the outcome of an item, by its number."""
        self.all[number] = ItemOutcome(self.all[number].item, result, error)
        self._ended.add(number)
        while self._shown in self._ended:
            self._show_one(self._shown)
            self._shown += 1

    def show_rest(self) -> None:
        """The work stopped: show the results behind items that have no outcome."""
        for number in range(self._shown, len(self.all)):
            self._show_one(number)
        self._shown = len(self.all)

    def _show_one(self, number: int) -> None:
        result = self.all[number].result
        if self._show is not None and result is not None:
            self._show(result)
