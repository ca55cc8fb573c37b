"""A dict whose copies have constant cost at any size, for the states that a group commit copies each time.

Owns the sharing: a copy shares the large part and has its own small part with later changes. When the small part has
grown, it is folded into a new large one, so the cost is on changes and not on copies. Invariant: the shared part is
never changed; no copy sees a change of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, Self, TypeVar, cast, overload

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")
_DefaultT = TypeVar("_DefaultT")

#: Number of changes before a fold: a copy of so many costs microseconds.
_OWN_MAX = 256
_GONE: Any = object()


class Layered(MutableMapping[_KeyT, _ValueT], Generic[_KeyT, _ValueT]):
    """Iterates in the order of last change, the longest unchanged first."""

    __slots__ = ("_base", "_length", "_own", "_shared")

    def __init__(self) -> None:
        self._base: dict[_KeyT, _ValueT] = {}
        self._own: dict[_KeyT, _ValueT] = {}  # _GONE marks a removed key
        self._shared = False
        self._length = 0

    def copy(self) -> Self:
        """An independent copy."""
        self._shared = True
        twin = type(self)()
        twin._base, twin._own = self._base, self._own.copy()
        twin._shared, twin._length = True, self._length
        return twin

    @overload
    def get(self, key: _KeyT) -> _ValueT | None: ...
    @overload
    def get(self, key: _KeyT, default: _ValueT) -> _ValueT: ...
    @overload
    def get(self, key: _KeyT, default: _DefaultT) -> _ValueT | _DefaultT: ...
    def get(self, key: _KeyT, default: Any = None) -> Any:
        """The value, or `default`."""
        if self._own:
            value = self._own.get(key)
            if value is not None:
                return default if value is _GONE else value
        return self._base.get(key, default)

    def __getitem__(self, key: _KeyT) -> _ValueT:
        value = self.get(key, _GONE)
        if value is _GONE:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(cast(_KeyT, key), _GONE) is not _GONE

    def __setitem__(self, key: _KeyT, value: _ValueT) -> None:
        assert value is not None, "None means absent here, so it cannot be a value"
        self._length += key not in self
        self._put(key, value)

    def __delitem__(self, key: _KeyT) -> None:
        if key not in self:
            raise KeyError(key)
        self._length -= 1
        self._put(key, _GONE)

    def __iter__(self) -> Iterator[_KeyT]:
        return iter(self._folded() if self._own else self._base)

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(cast("Mapping[Any, Any]", other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as a dict has none

    def __repr__(self) -> str:
        return f"Layered({dict(self)!r})"

    def _put(self, key: _KeyT, value: _ValueT) -> None:
        if self._shared:
            self._own.pop(key, None)
            self._own[key] = value
            if len(self._own) > _OWN_MAX:
                self._base, self._own, self._shared = self._folded(), {}, False
        else:
            self._base.pop(key, None)
            if value is not _GONE:
                self._base[key] = value

    def _folded(self) -> dict[_KeyT, _ValueT]:
        own = self._own
        folded = {key: value for key, value in self._base.items() if key not in own}
        folded.update((key, value) for key, value in own.items() if value is not _GONE)
        return folded
