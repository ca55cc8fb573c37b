"""Columns of generated values, each a pure function of a key and of record numbers.

Owns the random draws and the generators of plain columns. `avro_schema` selects the generators for a schema;
`regex_texts` generates texts that match a pattern.

A draw is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) at a position of
its stream, so record n needs no record before it. The elements of a list have positions of their own: record n uses the
positions n * stride to (n + 1) * stride - 1.

Invariant: a generator gives the same value for a record number, whichever other numbers are in the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from herdmesh.connect.model import StructColumn, decimal_of
from herdmesh.sdk import Schema

Numbers = NDArray[np.uint64]
Maker = Callable[[Numbers], Sequence[Any]]
"""Function from ascending record numbers, or positions, to their values."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIT: Final = 2.0**-53
_WORD: Final = 1 << 64
_INT64: Final = range(-(1 << 63), 1 << 63)


def key_of(*names: object) -> int:
    """Return the key of a stream: one for each place in a schema, task and seed."""
    text = "\0".join(map(str, names))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def draws(key: int, numbers: Numbers) -> Numbers:
    """Return 64 random bits for each number."""
    state = (numbers + np.uint64(1)) * _STEP + np.uint64(key)
    state ^= state >> np.uint64(30)
    state *= _FIRST
    state ^= state >> np.uint64(27)
    state *= _SECOND
    state ^= state >> np.uint64(31)
    return state


def units(key: int, numbers: Numbers) -> NDArray[np.float64]:
    """Return a random number from 0 (inclusive) to 1 (exclusive) for each number."""
    return (draws(key, numbers) >> np.uint64(11)).astype(np.float64) * _UNIT


def places_of(numbers: Numbers, stride: int) -> Numbers:
    """Return `stride` consecutive element positions for each number, in order."""
    return (numbers[:, np.newaxis] * np.uint64(stride) + np.arange(stride, dtype=np.uint64)).ravel()


def choices(key: int, options: Sequence[Any]) -> Maker:
    """Maker of values chosen from `options`."""
    if len(options) == 1:
        return lambda numbers: [options[0]] * len(numbers)
    pick = options.__getitem__
    return lambda numbers: list(map(pick, (draws(key, numbers) % np.uint64(len(options))).tolist()))


def integers(key: int, least: int, beyond: int) -> Maker:
    """Maker of integers from `least` (inclusive) to `beyond` (exclusive), both within signed 64 bits."""
    span, shift = beyond - least, np.uint64(least % _WORD)

    def make(numbers: Numbers) -> list[int]:
        drawn = draws(key, numbers)
        if span < _WORD:
            drawn %= np.uint64(span)
        return (drawn + shift).view(np.int64).tolist()  # modulo 2^64, so that a negative `least` gives the right result

    return make


def floats(key: int, least: float, beyond: float, *, single: bool) -> Maker:
    """Maker of floats from `least` (inclusive) to `beyond` (exclusive); `single`: only values that fit 32 bits."""
    kind: Any = np.float32 if single else np.float64
    greatest = np.nextafter(kind(beyond), kind(least))

    def make(numbers: Numbers) -> list[float]:
        drawn = units(key, numbers)
        made = (least * (1.0 - drawn) + beyond * drawn).astype(kind)  # no `beyond - least`: it could be infinite
        return np.clip(made, kind(least), greatest).astype(np.float64).tolist()

    return make


def booleans(key: int, odds: float) -> Maker:
    """Maker of booleans that are True with probability `odds`."""
    return lambda numbers: (units(key, numbers) < odds).tolist()


def counted(start: int, beyond: int, step: int, initial: int) -> Maker:
    """Maker of a sequence: record 0 has `initial`, each following record `step` more; after reaching `beyond` the
    sequence wraps to `start`. With a negative step `beyond` is below `start`.
    """
    span = beyond - start

    def make(numbers: Numbers) -> list[int]:
        if not len(numbers):
            return []
        first, last = (initial + int(numbers[at]) * step for at in (0, -1))
        inside = start <= min(first, last) and max(first, last) < beyond
        if inside and step > 0 and last in _INT64:
            return (numbers.astype(np.int64) * step + initial).tolist()
        return [start + (initial - start + number * step) % span for number in numbers.tolist()]

    return make


def counted_floats(start: float, beyond: float, step: float, initial: float) -> Maker:
    """Like `counted`, for floats."""
    span = beyond - start
    return lambda numbers: (
        start + np.remainder(initial - start + numbers.astype(np.float64) * step, span)
    ).tolist()  # fmt: skip


def single(maker: Maker) -> Maker:
    """Maker that rounds each number to 32 bits."""
    return lambda numbers: np.asarray(maker(numbers), np.float32).astype(np.float64).tolist()


def alternating(start: bool) -> Maker:
    """Maker of alternating booleans, beginning with `start`."""
    return lambda numbers: ((numbers % np.uint64(2) == 0) == start).tolist()


def lengths(key: int, least: int, most: int) -> Callable[[Numbers], list[int]]:
    """Function to random lengths from `least` to `most`, both inclusive."""
    if least == most:
        return lambda numbers: [least] * len(numbers)
    return lambda numbers: (draws(key, numbers) % np.uint64(most - least + 1) + np.uint64(least)).tolist()


def texts(key: int, letters: str, least: int, most: int) -> Maker:
    """Maker of texts of `least` to `most` of these letters."""
    if not most:
        return lambda numbers: [""] * len(numbers)
    kind, encoding = (np.dtype("u1"), "ascii") if letters.isascii() else (np.dtype("<u4"), "utf-32-le")
    known = np.frombuffer(letters.encode(encoding), kind)
    length_of, letters_key = lengths(key_of(key, "length"), least, most), key_of(key, "letters")

    def make(numbers: Numbers) -> list[str]:
        drawn = draws(letters_key, places_of(numbers, most)) % np.uint64(len(known))
        text = known[drawn.astype(np.int64)].tobytes().decode(encoding)
        starts = range(0, len(text), most)
        return [text[at : at + length] for at, length in zip(starts, length_of(numbers), strict=True)]

    return make


def octets(key: int, least: int, most: int) -> Maker:
    """Maker of byte strings of `least` to `most` bytes."""
    if not most:
        return lambda numbers: [b""] * len(numbers)
    length_of, data_key = lengths(key_of(key, "length"), least, most), key_of(key, "octets")

    def make(numbers: Numbers) -> list[bytes]:
        data = draws(data_key, places_of(numbers, most)).astype(np.uint8).tobytes()
        starts = range(0, len(data), most)
        return [data[at : at + length] for at, length in zip(starts, length_of(numbers), strict=True)]

    return make


def decimals(key: int, precision: int, scale: int) -> Maker:
    """Maker of decimals with `precision` digits (at most 18), `scale` of them after the point."""
    unscaled = integers(key, 0, 10 ** min(precision, 18))

    def make(numbers: Numbers) -> list[Decimal]:
        return [decimal_of(one, scale) for one in unscaled(numbers)]

    return make


def changed(maker: Maker, change: Callable[[Any], Any]) -> Maker:
    """Maker that applies `change` to each value."""
    return lambda numbers: list(map(change, maker(numbers)))


def optional(maker: Maker, key: int) -> Maker:
    """Maker that replaces half of the values by None."""
    absent = booleans(key, 0.5)
    return lambda numbers: [
        None if none else value for value, none in zip(maker(numbers), absent(numbers), strict=True)
    ]  # fmt: skip


def lists(item: Maker, key: int, least: int, most: int) -> Maker:
    """Maker of lists of `least` to `most` items."""
    if not most:
        return lambda numbers: [[] for _ in range(len(numbers))]
    length_of = lengths(key, least, most)

    def make(numbers: Numbers) -> list[list[Any]]:
        items = list(item(places_of(numbers, most)))
        starts = range(0, len(items), most)
        return [items[at : at + length] for at, length in zip(starts, length_of(numbers), strict=True)]

    return make


def maps(name: Maker, value: Maker, key: int, least: int, most: int) -> Maker:
    """Maker of maps of `least` to `most` entries; equal names reduce the number."""
    # Both use the same key, so that a record has as many names as values.
    names_of, values_of = lists(name, key, least, most), lists(value, key, least, most)
    return lambda numbers: [
        dict(zip(names, values, strict=True))
        for names, values in zip(names_of(numbers), values_of(numbers), strict=True)
    ]  # fmt: skip


def structs(schema: Schema, fields: Sequence[Maker]) -> Maker:
    """Maker of structs of that schema, from one maker for each field."""
    return lambda numbers: StructColumn(schema, [make(numbers) for make in fields], len(numbers))
