"""Dead letter of one record: key, value, headers, time, and the shorter forms for a topic that rejects the whole.

Owns the cuts and the header that marks them. Sends nothing.

A dead letter is cut in two steps. The first keeps the beginning of key and value, the record's own headers if they are
small, and the beginning of stack trace and message. The second keeps only the headers with the record's place and
the failure. Both have `CUT_HEADER` and Connect's context headers, whatever the value of
`errors.deadletterqueue.context.headers.enable`, because the record can only be found by its place.

Invariant: a dead letter without `CUT_HEADER` has every byte of the record.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from herdmesh.connect.topics import ERROR_HEADER_PREFIX

Header = tuple[str, bytes | None]

CUT_HEADER = "__herdmesh.cut"
"""Its value is JSON with fields of the record: key_bytes, value_bytes (null = there was none) and headers (their
number).
"""
DATA_BYTES_MAX = 1_024
"""Maximum size of key and of value, in the first step."""
TEXT_BYTES_MAX = 1_024
"""Maximum size of stack trace and message, in the first step."""
OWN_HEADERS_BYTES_MAX = 2_048
SHORT_TEXT_BYTES_MAX = 128
OVERHEAD_BYTES = 128
"""Maximum overhead of a record batch of one record: its header has 61 bytes, the record's lengths a few each."""
HEADER_OVERHEAD_BYTES = 10
_LONG = frozenset((f"{ERROR_HEADER_PREFIX}exception.stacktrace", f"{ERROR_HEADER_PREFIX}exception.message"))
_STACK_TRACE = f"{ERROR_HEADER_PREFIX}exception.stacktrace"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter before it is written."""

    key: bytes | None
    value: bytes | None
    own: Sequence[Header]
    """Headers of the record."""
    context: Sequence[Header]
    """Connect's headers of the failure."""
    time_ms: int | None
    place: str
    """Place of the record, for an error's text: `topic t, partition 0, offset 5`."""
    cause: str
    """Reason of the record's failure, in one line."""
    with_context: bool = True
    """False = the context is written only when the dead letter is cut."""
    is_cut: bool = False

    @property
    def headers(self) -> list[Header]:
        """All headers to write."""
        return [*self.own, *(self.context if self.with_context or self.is_cut else ())]

    @property
    def size_bytes(self) -> int:
        """Its size in a topic without compression, at least."""
        headers = sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + OVERHEAD_BYTES

    def forms(self) -> tuple[DeadLetter, DeadLetter, DeadLetter]:
        """The whole dead letter, the cut one, and the one cut down to its place."""
        told = {
            "key_bytes": None if self.key is None else len(self.key),
            "value_bytes": None if self.value is None else len(self.value),
            "headers": len(self.own),
        }
        mark: Header = (CUT_HEADER, json.dumps(told).encode())
        own_bytes = sum(len(name.encode()) + len(value or b"") for name, value in self.own)
        cut = replace(
            self,
            key=_beginning(self.key, DATA_BYTES_MAX),
            value=_beginning(self.value, DATA_BYTES_MAX),
            own=[*(self.own if own_bytes <= OWN_HEADERS_BYTES_MAX else ()), mark],
            context=_shortened(self.context, TEXT_BYTES_MAX),
            is_cut=True,
        )
        place_only = replace(
            self,
            key=_beginning(self.key, 0),
            value=_beginning(self.value, 0),
            own=[mark],
            context=[one for one in _shortened(self.context, SHORT_TEXT_BYTES_MAX) if one[0] != _STACK_TRACE],
            is_cut=True,
        )
        return self, cut, place_only


def _shortened(context: Sequence[Header], most: int) -> list[Header]:
    return [(name, _beginning(value, most) if name in _LONG else value) for name, value in context]


def _beginning(data: bytes | None, most: int) -> bytes | None:
    """The first bytes, up to the end of a character if they are UTF-8."""
    if data is None or len(data) <= most:
        return data
    end = most
    while most - end < 3 and end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
