"""Encoded views: messages that many callers receive alike, encoded to protobuf bytes once and shared.

Owns a bounded cache of encoded messages, the joining of encoded fields into one response, and the server's serializer,
which sends bytes unchanged. Knows no service: every servicer of snapshots, lists and watches uses it.

Invariants: encoded bytes are never changed. A cached entry was made from the very object given with its key, never from
an equal one; a newer object replaces it. A protobuf message may be joined from its encoded fields: a reader accepts
them in any order and appends repeated ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol, TypeVar, cast

#: wire type of messages, strings and bytes: a length comes first.
_DELIMITED: Final = 2


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...


_MessageT = TypeVar("_MessageT", bound=_Message)


def field(number: int, message: bytes) -> bytes:
    """Encode a message as field `number` of its outer message."""
    return b"".join((_varint(number << 3 | _DELIMITED), _varint(len(message)), message))


def response(kind: type[_MessageT], *fields: bytes) -> _MessageT:
    """A response of that kind from encoded fields. The result is bytes, typed as the message that the client will see:
    a servicer only returns or yields it, and does not access its fields.
    """
    return cast(_MessageT, fields[0] if len(fields) == 1 else b"".join(fields))


def serializer(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A serializer like `serialize` that passes bytes through."""

    def serialized(message: Any) -> bytes:
        return message if type(message) is bytes else serialize(message)

    return serialized


class EncodedViews:
    """Cache of encoded messages of at most `bytes_max`; it evicts the least recently used first. Use on one event loop.

    `made_count` is the number of messages encoded so far.
    """

    def __init__(self, bytes_max: int) -> None:
        self.made_count = 0
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[Hashable, tuple[object, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable, made_from: object, make: Callable[[], _Message]) -> bytes:
        """The bytes of `make()`, cached for this key as long as it comes with the same object."""
        known = self._known.get(key)
        if known is not None and known[0] is made_from:
            self._known.move_to_end(key)
            return known[1]
        if known is not None:
            del self._known[key]
            self._bytes -= len(known[1])
        data = make().SerializeToString()
        self.made_count += 1
        self._known[key] = (made_from, data)
        self._bytes += len(data)
        while self._bytes > self._bytes_max and len(self._known) > 1:
            _, (_, gone) = self._known.popitem(last=False)
            self._bytes -= len(gone)
        return data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
