r"""Generator of texts that match a regular expression, for the common part of Java's syntax, column by column.

Owns parsing patterns and drawing texts. Supported: letters, `.`, classes with ranges and `^`, `\d`, `\w`, `\s`, groups,
`|`, and `? * + {n} {n,} {n,m}`. Everything else (look-around, back references, lazy and possessive quantifiers, anchors
except around the whole, intersections of classes) is refused by name.

An unbounded quantifier repeats at most 8 times more than its minimum. Where a part has few texts, all are equally
likely; the length of a repetition is drawn first, and all lengths are equally likely.

Invariant: every generated text matches the whole pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import assert_never

import numpy as np

from herdmesh.connectors.datagen.columns import Maker, Numbers, choices, draws, key_of, lists, texts

_ENDLESS_MORE = 8
_COUNT_MAX = 1_000
_LETTERS_MAX = 10_000
_FOLDED_MAX = 4_096
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_DIGITS, _SPACES = "0123456789", " \t"
_WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _DIGITS + "_abcdefghijklmnopqrstuvwxyz"
_CLASSES = {
    "d": _DIGITS, "w": _WORD, "s": _SPACES,
    "D": "".join(c for c in _PRINTABLE if c not in _DIGITS),
    "W": "".join(c for c in _PRINTABLE if c not in _WORD),
    "S": "".join(c for c in _PRINTABLE if c not in _SPACES),
}  # fmt: skip
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPECIAL = frozenset(".[](){}*+?|^$\\")


class PatternError(ValueError):
    """A pattern that is invalid or needs an unsupported feature."""


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One letter out of these."""

    of: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repetition of a part, `least` to `most` times."""

    part: Part
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Concatenation of parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Alternation of parts."""

    parts: tuple[Part, ...]


Part = CharacterSet | Repeat | Chain | Either


def text_maker(pattern: str, *names: object) -> Maker:
    """Return the maker of texts that match the pattern; `names`
    are those of the place in the schema. Raises PatternError.
    """
    return _maker(parsed(pattern), names)


def text_weight(pattern: str) -> int:
    """Return the maximum length of a text in letters, a measure of its cost. Raises PatternError."""
    return _weight(parsed(pattern))


def parsed(pattern: str) -> Part:
    """Return the parts of a pattern. Raises PatternError."""
    try:
        found = _Reader(pattern).read()
        letters = _weight(found)
    except RecursionError as error:
        raise PatternError(f"the pattern {pattern[:60]}... is nested too deeply") from error
    if letters > _LETTERS_MAX:
        raise PatternError(
            f"the pattern {pattern} can generate {letters} characters, more than the maximum of {_LETTERS_MAX}"
        )
    return found


class _Reader:
    """Parser of one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._text = pattern.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        self._at = 0

    def read(self) -> Part:
        """Parse the whole pattern."""
        found = self._either()
        if self._at < len(self._text):
            raise self._wrong("a ')' without its '('")
        return found

    def _either(self) -> Part:
        parts = [self._chain()]
        while self._next_is("|"):
            self._at += 1
            parts.append(self._chain())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _chain(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._counted(self._atom()))
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _atom(self) -> Part:
        letter = self._take()
        match letter:
            case "(":
                return self._group()
            case "[":
                return CharacterSet(self._class())
            case ".":
                return CharacterSet(_PRINTABLE)
            case "\\":
                return CharacterSet(self._escape())
            case "^" | "$":
                raise self._wrong("an anchor within the pattern")
            case "*" | "+" | "?" | "{":
                raise self._wrong(f"a '{letter}' with nothing before it")
            case _:
                return CharacterSet(letter)

    def _group(self) -> Part:
        if self._next_is("?"):
            if self._text[self._at : self._at + 2] != "?:":
                raise self._wrong("a group that begins with (?")
            self._at += 2
        found = self._either()
        if self._take() != ")":
            raise self._wrong("an unclosed group")
        return found

    def _escape(self) -> str:
        letter = self._take()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isalnum():
            raise self._wrong(f"the escape \\{letter}")
        return letter

    def _class(self) -> str:
        negative = self._next_is("^")
        self._at += negative
        found: dict[str, None] = {}
        first = True
        while first or not self._next_is("]"):
            first = False
            letter = self._take()
            if letter == "[" or self._text[self._at - 1 : self._at + 1] == "&&":
                raise self._wrong("a character class within a character class")
            letters = self._escape() if letter == "\\" else letter
            if len(letters) == 1 and self._next_is("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                last = self._escape() if last == "\\" else last
                if len(last) != 1 or last < letters or last == "[":
                    raise self._wrong(f"the range {letters}-{last}")
                letters = "".join(map(chr, range(ord(letters), ord(last) + 1)))
            found.update(dict.fromkeys(letters))
        self._at += 1
        chosen = [c for c in _PRINTABLE if c not in found] if negative else list(found)
        if not chosen or any("\ud800" <= c <= "\udfff" for c in chosen):
            raise self._wrong("a character class without printable characters")
        return "".join(chosen)

    def _counted(self, part: Part) -> Part:
        if self._at >= len(self._text) or self._text[self._at] not in "?*+{":
            return part
        least, most = self._count()
        if self._at < len(self._text) and self._text[self._at] in "?+*":
            raise self._wrong("a lazy or possessive quantifier")
        return Repeat(part, least, most)

    def _count(self) -> tuple[int, int]:
        sign = self._take()
        if sign != "{":
            return {"?": (0, 1), "*": (0, _ENDLESS_MORE), "+": (1, 1 + _ENDLESS_MORE)}[sign]
        body, closing, _ = self._text[self._at :].partition("}")
        least, comma, most = body.partition(",")
        if not closing or not (least.isdecimal() and (not most or most.isdecimal())):
            raise self._wrong(f"the count {{{body}}}")
        self._at += len(body) + 1
        low = int(least)
        high = int(most) if most else low + _ENDLESS_MORE if comma else low
        if high < low or high > _COUNT_MAX:
            raise self._wrong(f"the quantifier {{{body}}}: at most {_COUNT_MAX}, and its minimum not above its maximum")
        return low, high

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("an unexpected end")
        self._at += 1
        return self._text[self._at - 1]

    def _next_is(self, letter: str) -> bool:
        return self._text[self._at : self._at + 1] == letter

    def _wrong(self, what: str) -> PatternError:
        return PatternError(f"the pattern {self._pattern}: {what} is not supported or not valid")


def _maker(part: Part, names: Sequence[object]) -> Maker:
    key = key_of(*names)
    few = _all_texts(part)
    if few is not None:
        return choices(key, few)
    match part:
        case CharacterSet(of):
            return choices(key, of)
        case Repeat(CharacterSet(of), least, most):
            return texts(key, of, least, most)
        case Repeat(inner, least, most):
            repeated = lists(_maker(inner, (*names, "part")), key, least, most)
            return lambda numbers: list(map("".join, repeated(numbers)))
        case Chain(parts):
            columns = [_maker(one, (*names, at)) for at, one in enumerate(_joined(parts))]
            return lambda numbers: list(map("".join, zip(*(make(numbers) for make in columns), strict=True)))
        case Either(parts):
            branches = [_maker(one, (*names, at)) for at, one in enumerate(parts)]

            def either(numbers: Numbers) -> list[str]:
                drawn = (draws(key, numbers) % np.uint64(len(branches))).tolist()
                made = [make(numbers) for make in branches]
                return [made[branch][at] for at, branch in enumerate(drawn)]

            return either
        case _:
            assert_never(part)


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Merge neighbours with few texts together into one part, which needs only one draw."""
    found: list[Part] = []
    for part in parts:
        together = Chain((*_parts_of(found[-1]), part)) if found else part
        if found and _all_texts(together) is not None:
            found[-1] = together
        else:
            found.append(part)
    return found


def _parts_of(part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, Chain) else (part,)


def _all_texts(part: Part) -> list[str] | None:
    """Return all texts of a fixed-length part; None if its length varies or it has many texts."""
    letters = _letters_of(part)
    if letters is None or prod(map(len, letters)) > _FOLDED_MAX:
        return None
    return list(map("".join, product(*letters)))


def _letters_of(part: Part) -> list[str] | None:
    """Return the possible letters of each position of a fixed-length part; None if its length varies."""
    match part:
        case CharacterSet(of):
            return [of]
        case Repeat(inner, least, most) if least == most:
            letters = _letters_of(inner)
            return None if letters is None else letters * least
        case Chain(parts):
            found: list[str] = []
            for one in parts:
                letters = _letters_of(one)
                if letters is None:
                    return None
                found += letters
            return found
        case Repeat() | Either():
            return None
        case _:
            assert_never(part)


def _weight(part: Part) -> int:
    match part:
        case CharacterSet():
            return 1
        case Repeat(inner, _, most):
            return most * _weight(inner)
        case Chain(parts) | Either(parts):
            return sum(map(_weight, parts))
        case _:
            assert_never(part)
