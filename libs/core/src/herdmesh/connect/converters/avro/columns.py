"""Fast path for many Avro messages of one schema: reads field by field, each for all messages at once, with numpy.

Owns the choice of messages for this path: those of schemas without arrays, maps and real unions, when their numbers
have at most 64 bits and their lengths are correct. For everything else it raises, or has no fast path, and fastavro
reads the messages one by one: byte by byte from a stream, into a dict that `values` turns into a struct.

The messages are joined. Each step gets the position where the next field begins in each message and the message's end,
and returns the field's values and the field's end.

Invariant: a value from this path equals, in type too, the value that `values.reader` makes from fastavro's for the same
message; no step reads beyond a message's end, apart from the ten bytes that a number may have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from herdmesh.connect.converters.avro.options import AvroOptions
from herdmesh.connect.converters.avro.schemas import AvroTree, Node, is_null, kind_of
from herdmesh.connect.converters.avro.to_connect import plain_member
from herdmesh.connect.converters.avro.values import reader
from herdmesh.connect.model import Schema, StructColumn
from herdmesh.connect.registry import HEAD_BYTES

ReadAll = Callable[[Sequence[bytes]], Sequence[Any]]
Places = NDArray[np.int64]
"""One position in the joined messages for each message."""
_DEPTH_MAX = 20
_FIELDS_MAX = 10_000
"""Maximum number of fields of a schema: a named record is compiled wherever it is used, so a small schema may have
millions.
"""
MEAN_BYTES_MAX = 4096
"""Maximum mean size of a message: joining larger ones takes longer than reading them one by one. Measured with one long
text of six fields, microseconds of CPU a message on this path and one by one: 1.1 and 3.1 (1 kB), 2.3 and 3.8 (4 kB),
8.9 and 5.9 (16 kB); with a text that is not all ASCII 1.9 and 4.0, 5.8 and 6.4, 20 and 14.
"""
_BEHIND = bytes(16)
"""Zero bytes after the last message, for a number that is truncated at its end."""
_TOP_BITS, _LOW_BITS = np.uint64(0x8080808080808080), np.uint64(0x0101010101010101)
_PACKING = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Masks and shifts that join the seven bits of each of eight bytes: of two bytes, of four, of eight."""


class _Messages:
    """Joined messages."""

    def __init__(self, data: Sequence[bytes]) -> None:
        """Raises ValueError when the messages are too large for the fast path."""
        lengths = np.fromiter(map(len, data), np.int64, len(data))
        self.ends: Places = np.cumsum(lengths)
        if self.ends[-1] > MEAN_BYTES_MAX * len(data):
            raise ValueError
        self.data = b"".join([*data, _BEHIND])
        self.begins: Places = self.ends - lengths
        self.octets = np.frombuffer(self.data, np.uint8)
        #: For each position the eight bytes from there on, as a number.
        self.words: NDArray[np.uint64] = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

    @cached_property
    def text(self) -> str:
        """A text with one character for each byte."""
        return self.data.decode("latin-1")


_Step = Callable[[_Messages, Places, Places], tuple[Sequence[Any], Places]]
"""Function of the messages, the field's start and the end in each; returns the values and the field's end. Raises one
of `registered.UNFIT` or DataError.
"""


def column_reader(tree: AvroTree, options: AvroOptions, schema: Schema) -> ReadAll | None:
    """The reader of whole messages, including the schema id; None = the schema has no fast path. It raises DataError or
    one of `registered.UNFIT` when the reference path must read or refuse a message.
    """
    step = _Compiler(tree, options).step(schema, tree.root, 0)
    if step is None:
        return None

    def read_all(data: Sequence[bytes]) -> Sequence[Any]:
        messages = _Messages(data)
        return step(messages, messages.begins + HEAD_BYTES, messages.ends)[0]

    return read_all


class _Compiler:
    """Compiler of the steps of one schema."""

    def __init__(self, tree: AvroTree, options: AvroOptions) -> None:
        self._tree, self._options = tree, options
        self._steps = 0

    def step(self, schema: Schema, node: Node, depth: int) -> _Step | None:
        """The step for values of the node; None = the node has no fast path."""
        self._steps += 1
        if depth > _DEPTH_MAX or self._steps > _FIELDS_MAX:
            return None
        node = self._tree.resolve(node)
        kind = kind_of(node)
        if kind == "union":
            return self._of_union(schema, node, depth)
        if kind == "record":
            return self._of_record(schema, node, depth)
        if kind == "fixed":
            step = _fixed(int(node["size"]))
        else:
            step = _enum(node["symbols"]) if kind == "enum" else _SIMPLE.get(kind)
        if step is None:
            return None
        change = reader(self._tree, self._options, schema, node)
        return step if change is None else _changed(step, change)

    def _of_union(self, schema: Schema, node: Any, depth: int) -> _Step | None:
        plain = plain_member(self._tree, node, self._options)
        step = None if plain is None else self.step(schema, plain, depth + 1)
        if step is None:
            return None
        absent = [index * 2 for index, one in enumerate(node) if is_null(one)]
        return _optional(step, 2 - absent[0], absent[0]) if absent else _optional(step, 0, 0)

    def _of_record(self, schema: Schema, node: Any, depth: int) -> _Step | None:
        steps: list[_Step] = []
        for field, avro in zip(schema.fields, node["fields"], strict=True):
            step = self.step(field.schema, avro["type"], depth + 1)
            if step is None:
                return None
            steps.append(step)
        return _structs(schema, steps)


def _structs(schema: Schema, steps: Sequence[_Step]) -> _Step:
    def read(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
        fields: list[Sequence[Any]] = []
        for step in steps:
            field, at = step(messages, at, ends)
            fields.append(field)
        return StructColumn(schema, fields, len(at)), at

    return read


def _optional(step: _Step, present: int, absent: int) -> _Step:
    """`present` and `absent` are the union's branch bytes; they are equal where null is impossible."""

    def read(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
        branch = messages.octets[at]
        at = _after(at, 1, ends)
        there = branch == present
        if not np.count_nonzero(~there):
            return step(messages, at, ends)
        if np.count_nonzero(~there & (branch != absent)):
            raise ValueError
        made: list[Any] = [None] * len(at)
        rows = there.nonzero()[0]
        if len(rows):
            values, at[rows] = step(messages, at[rows], ends[rows])
            for row, value in zip(rows.tolist(), values, strict=True):
                made[row] = value
        return made, at

    return read


def _changed(step: _Step, change: Callable[[Any], Any]) -> _Step:
    def read(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
        values, at = step(messages, at, ends)
        return list(map(change, values)), at

    return read


def _booleans(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    after = _after(at, 1, ends)
    return (messages.octets[at] != 0).tolist(), after


def _integers(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    numbers, at = _numbers(messages, at, ends)
    return ((numbers >> 1) ^ -(numbers & 1)).view(np.int64).tolist(), at


def _floats(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    after = _after(at, 4, ends)
    return messages.words[at].astype("<u4").view("<f4").tolist(), after


def _doubles(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    after = _after(at, 8, ends)
    return messages.words[at].view("<f8").tolist(), after


def _strings(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    begins, after = _lengths(messages, at, ends)
    text = messages.text
    places = begins.tolist(), after.tolist()
    values = [text[begin:end] for begin, end in zip(*places, strict=True)]
    if not "".join(values).isascii():
        data = messages.data
        values = [data[begin:end].decode() for begin, end in zip(*places, strict=True)]
    return values, after


def _byte_strings(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
    begins, after = _lengths(messages, at, ends)
    return _slices(messages, begins, after), after


def _fixed(size: int) -> _Step:
    def read(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
        after = _after(at, size, ends)
        return _slices(messages, at, after), after

    return read


def _enum(symbols: Sequence[str]) -> _Step:
    def read(messages: _Messages, at: Places, ends: Places) -> tuple[Sequence[Any], Places]:
        numbers, at = _numbers(messages, at, ends)
        return [symbols[one] for one in _counts(numbers).tolist()], at

    return read


_SIMPLE: dict[str, _Step] = {
    "boolean": _booleans, "int": _integers, "long": _integers, "float": _floats, "double": _doubles,
    "string": _strings, "bytes": _byte_strings,
}  # fmt: skip


def _slices(messages: _Messages, begins: Places, ends: Places) -> list[bytes]:
    data = messages.data
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _after(at: Places, sizes: Places | int, ends: Places) -> Places:
    """Positions after that many bytes. Raises EOFError when a message has fewer."""
    if np.count_nonzero(sizes > ends - at):  # not at + sizes, which may have more than 64 bits; any() takes longer
        raise EOFError
    return at + sizes


def _lengths(messages: _Messages, at: Places, ends: Places) -> tuple[Places, Places]:
    """The start and end of length-prefixed bytes."""
    numbers, begins = _numbers(messages, at, ends)
    return begins, _after(begins, _counts(numbers), ends)


def _counts(numbers: NDArray[np.uint64]) -> Places:
    """Decode numbers that cannot be negative. Raises ValueError for a negative number."""
    if np.count_nonzero(numbers & 1):
        raise ValueError
    return (numbers >> 1).view(np.int64)


def _numbers(messages: _Messages, at: Places, ends: Places) -> tuple[NDArray[np.uint64], Places]:
    """Raw numbers of one to ten bytes, the sign in the lowest bit. Raises ValueError for a number of more than 64
    bits."""
    first = messages.octets[at]
    if first.max() < 128:
        return first.astype(np.uint64), _after(at, 1, ends)
    words = messages.words[at]
    stops = ~words & _TOP_BITS
    below = (stops & -stops) - 1  # all bits up to the last byte's seventh; all 64 of a longer number
    sizes = ((below & _LOW_BITS) * _LOW_BITS) >> 56
    numbers = words & below & ~_TOP_BITS
    for low, high, shift in _PACKING:
        numbers = (numbers & low) | ((numbers & high) >> shift)
    long = (stops == 0).nonzero()[0]
    if len(long):
        ninth = messages.octets[at[long] + 8].astype(np.uint64)
        tenth = np.where(ninth < 128, 0, messages.octets[at[long] + 9]).astype(np.uint64)
        if np.count_nonzero(tenth > 1):
            raise ValueError
        numbers[long] |= ((ninth & 127) << 56) | (tenth << 63)
        sizes[long] = np.where(ninth < 128, 9, 10)
    return numbers, _after(at, sizes.view(np.int64), ends)
