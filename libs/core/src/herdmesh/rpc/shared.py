"""Messages that many streams send: made once and turned into bytes once.

Owns a bounded memory of such messages, and their bytes for the server's serializer. Knows no service. Invariants: a
shared message is never changed; what is remembered for a value was made from that very object, never from an equal one.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar, cast


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...


_MessageT = TypeVar("_MessageT", bound=_Message)

_Known = OrderedDict[tuple[int, Hashable], tuple[object, _Message]]

# By the id of the message, which is kept so that its id stays its own.
_bytes_of: dict[int, tuple[_Message, bytes]] = {}


class SharedMessages:
    """At most `bytes_max` of them, as sent: what was not asked for longest goes first. Use on one event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: _Known = OrderedDict()
        weakref.finalize(self, _forget, self._known)

    def get(self, made_from: object, variant: Hashable, make: Callable[[], _MessageT]) -> _MessageT:
        """What `make()` gave the first time for this object and variant."""
        key = (id(made_from), variant)  # by identity: the object is kept, so its id stays its own
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return cast(_MessageT, known[1])
        message = make()
        data = message.SerializeToString()
        self._known[key] = (made_from, message)
        _bytes_of[id(message)] = message, data
        self._bytes += len(data)
        while self._bytes > self._bytes_max and len(self._known) > 1:
            _, (_, gone) = self._known.popitem(last=False)
            self._bytes -= len(_bytes_of.pop(id(gone))[1])
        return message


def _forget(known: _Known) -> None:
    for _, message in known.values():
        del _bytes_of[id(message)]


def serializer(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """`serialize`, except of shared messages: their bytes are there already."""

    def serialized(message: Any) -> bytes:
        known = _bytes_of.get(id(message))
        return serialize(message) if known is None else known[1]

    return serialized
