"""Lazy column: a column that is converted at its first use.

Invariant: a column that nobody reads costs nothing, and one that is read is converted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

S = TypeVar("S")
T = TypeVar("T")


class LazyColumn(Sequence[T], Generic[T]):
    """Column that is computed from another column of the same length when it is first read."""

    def __init__(self, source: Sequence[S], make: Callable[[Sequence[S]], list[T]]) -> None:
        self._length = len(source)
        self._make = lambda: make(source)
        self._items: list[T] | None = None

    def read(self) -> list[T]:
        """All items."""
        if self._items is None:
            self._items = self._make()
        return self._items

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.read()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.read())
