"""Packed text columns: UTF-8 texts at their place in a file or a topic, in one buffer or in several.

Owns the columns, with which code that only passes texts on creates no Python string per record. The reader decides
whether bytes are UTF-8 and what happens to malformed bytes: a column has checked texts, or is known to be unchecked.

Invariant: a column read item by item equals a list of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast, overload

import numpy as np

from herdmesh.connect.model.lazy_column import LazyColumn

Numbers = np.ndarray[Any, np.dtype[np.uint64]]


def is_utf8(data: bytes) -> bool:
    """True when all bytes are well-formed UTF-8."""
    if data.isascii():
        return True
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


class PackedBytes(Sequence[bytes]):
    """Pieces of one buffer `data`: the start of each in bytes, and its length in bytes."""

    __slots__ = ("_items", "data", "lengths", "starts")

    def __init__(self, data: bytes, starts: Numbers, lengths: Numbers) -> None:
        """Nothing is copied; `starts` and `lengths` have one number for each piece, and no piece ends beyond `data`."""
        self.data, self.starts, self.lengths = data, starts, lengths
        self._items: list[bytes] | None = None

    @classmethod
    def lines(cls, data: bytes) -> PackedBytes:
        """The complete lines of `data`, without their LF; bytes after the last LF are no line."""
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")).astype(np.uint64)
        starts = np.zeros(len(ends), np.uint64)
        starts[1:] = ends[:-1] + np.uint64(1)
        return cls(data, starts, ends - starts)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> PackedBytes: ...
    def __getitem__(self, index: int | slice) -> bytes | PackedBytes:
        if isinstance(index, slice):
            return PackedBytes(self.data, self.starts[index], self.lengths[index])
        if self._items is not None:
            return self._items[index]
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])]

    def __iter__(self) -> Iterator[bytes]:
        if self._items is None:
            data, starts, ends = self.data, self.starts.tolist(), (self.starts + self.lengths).tolist()
            self._items = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        return iter(self._items)

    def joined(self, end: bytes) -> bytes:
        """All pieces, each followed by `end`, one byte. Where `data` already has the pieces in that form, returns that
        part of `data`.
        """
        if not len(self):
            return b""
        ends = self.starts + self.lengths
        start, last = int(self.starts[0]), int(ends[-1])
        is_together = last < len(self.data) and bool((ends[:-1] + np.uint64(1) == self.starts[1:]).all())
        if is_together and (np.frombuffer(self.data, np.uint8)[ends] == ord(end)).all():
            return self.data[start : last + 1]
        return end.join([*self, b""])


class PackedTexts(LazyColumn[str]):
    """Column of texts over checked, well-formed UTF-8."""

    def __init__(self, utf8: PackedBytes) -> None:
        super().__init__(utf8, _decoded)
        self.utf8 = utf8

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> PackedTexts: ...
    def __getitem__(self, index: int | slice) -> str | PackedTexts:
        return PackedTexts(self.utf8[index]) if isinstance(index, slice) else self.read()[index]


class UnreadTexts(LazyColumn[str | None]):
    """Column of a topic's texts before decoding, None for a tombstone."""

    def __init__(
        self, data: Sequence[bytes | None], make: Callable[[Sequence[bytes | None]], list[str | None]]
    ) -> None:
        """`make` decodes the texts and decides what malformed bytes become."""
        super().__init__(data, make)
        self._data = data

    def joined(self, end: bytes) -> bytes | None:
        """The UTF-8 of all texts, each followed by `end`, plain ASCII; None where a text is null or not well-formed."""
        if isinstance(self._data, PackedBytes):
            joined = self._data.joined(end)
        else:
            try:
                joined = end.join([*cast("Sequence[bytes]", self._data), b""])
            except TypeError:
                return None
        return joined if is_utf8(joined) else None  # no UTF-8 sequence continues across an `end`


def _decoded(utf8: Sequence[bytes]) -> list[str]:
    return [str(one, "utf-8") for one in utf8]
