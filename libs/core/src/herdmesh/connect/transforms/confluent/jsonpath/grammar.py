"""Parser of JSONPath conditions: a path whose steps are names, indexes, `*` and filters.

Owns the supported part of the grammar of Jayway's JsonPath 2.9.0.

Invariant: an accepted condition has the same meaning as in Jayway's library. Deep scans, slices, functions, and filters
within filters are refused by name, everything else as a syntax error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.java import compiled, syntax_error
from herdmesh.connect.transforms.confluent.jsonpath.comparing import MISSING, OPERATORS, matches

Steps = tuple[str | int, ...]
"""Field names and indexes, starting at an element or at the record."""
ALL = None
"""Step to all elements."""

_NAME = re.compile(r"""\.?\s*([^\s.\[\]()<>=!~&|,'"*?@$]+)""")
_PLACE = re.compile(r"\.?\[\s*(-?\d+)\s*\]")
_QUOTED = re.compile(r"""\.?\[\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*\]""")
_ALL = re.compile(r"\.?\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(r"\.?\[\s*\?\s*\(")
_FILTER_END = re.compile(r"\s*\)\s*\]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_WORD = re.compile(r"(?:true|false|null)\b")
_OPERATOR = re.compile(r"==|!=|<=|>=|=~|<|>|(?:in|nin|contains|subsetof|anyof|noneof|size|empty)\b")
_PATTERN = re.compile(r"/((?:[^/\\]|\\.)+)/([a-zA-Z]*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_OF_PYTHON = frozenset(("==", "!=", "<", "<=", ">", ">="))
_WORDS = {"true": True, "false": False, "null": None}
_FLAGS = "dixmsuU"
_UNBUILT = {"..": "deep scans (..)", "min(": "functions", "length(": "functions"}


class Unreadable(ValueError):
    """An unsupported or invalid condition; the text gives reason and position."""


@dataclass(slots=True)
class Filter:
    """A filter: the fields that it reads, and its test of their values (MISSING where there is none)."""

    fields: list[tuple[bool, Steps]] = field(default_factory=list[tuple[bool, Steps]])
    """True for a field that starts at the record, False at the element; and the steps from there."""
    needed: set[int] = field(default_factory=set[int])
    """Indexes in `fields` of the required fields: all but those tested for null or absence."""
    expression: str = "True"
    """The filter's test, as Python over the values `v0`, `v1`, ... of `fields` and over `constants`."""
    constants: dict[str, Any] = field(default_factory=dict[str, Any])

    def bind(self, value: Any) -> str:
        """Add a constant; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def place(self, absolute: bool, steps: Steps) -> int:
        """Index of the field in `fields`; adds the field if it is new."""
        known = absolute, steps
        if known not in self.fields:
            self.fields.append(known)
        return self.fields.index(known)


Step = str | int | Filter | None


@dataclass(frozen=True, slots=True)
class _Operand:
    value: Any = None
    place: int | None = None

    def text(self, into: Filter) -> str:
        """Expression for the operand."""
        return into.bind(self.value) if self.place is None else f"v{self.place}"


class ConditionParser:
    """Parser state for one condition."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._at = 0

    def path(self) -> list[Step]:
        """Parse the whole condition into steps. Raises Unreadable."""
        if not self._text:
            raise Unreadable("it is empty")
        if self._text[0] in "$@":
            self._at = 1
        steps: list[Step] = []
        while self._at < len(self._text):
            if self._take(_FILTER):
                made = Filter()
                made.expression = self._or(made)
                if not self._take(_FILTER_END):
                    raise self._wrong("expected )]")
                steps.append(made)
            elif self._take(_ALL):
                steps.append(ALL)
            else:
                steps += [self._step()]
        return steps

    def _step(self) -> str | int:
        if found := self._take(_QUOTED):
            return _unquoted(found[1])
        if found := self._take(_PLACE):
            return int(found[1])
        found = self._take(_NAME)
        if found is None:
            raise self._wrong("expected .name, ['name'], [0], [*] or [?(...)]")
        if self._text.startswith("(", self._at):
            raise self._wrong("functions are not supported")
        return found[1]

    def _or(self, into: Filter) -> str:
        tests = [self._and(into)]
        while self._skip("||"):
            tests.append(self._and(into))
        return " or ".join(tests)

    def _and(self, into: Filter) -> str:
        tests = [self._not(into)]
        while self._skip("&&"):
            tests.append(self._not(into))
        return " and ".join(tests)

    def _not(self, into: Filter) -> str:
        self._blanks()
        if self._text.startswith("!", self._at) and not self._text.startswith("!=", self._at):
            self._at += 1
            needed = set(into.needed)
            inner = self._not(into)
            if self._only_exists:
                into.needed.intersection_update(needed)
            return f"(not {inner})"
        if self._skip("("):
            inner = self._or(into)
            if not self._skip(")"):
                raise self._wrong("expected )")
            self._only_exists = False
            return f"({inner})"
        return self._comparison(into)

    _only_exists = False

    def _comparison(self, into: Filter) -> str:
        left = self._operand(into)
        self._blanks()
        found = self._take(_OPERATOR)
        self._only_exists = found is None
        if found is None:
            if left.place is None:
                raise self._wrong("expected an operator")
            into.needed.add(left.place)
            return f"(v{left.place} is not {into.bind(MISSING)})"
        if found[0] == "=~":
            test = into.bind(matches(self._pattern()))
            into.needed.update(() if left.place is None else (left.place,))
            return f"{test}({left.text(into)})"
        right = self._operand(into)
        is_null = any(one.place is None and one.value is None for one in (left, right))
        if not (is_null and found[0] in ("==", "!=")):
            into.needed |= {one.place for one in (left, right) if one.place is not None}
        return _compared(into, left, found[0], right)

    def _operand(self, into: Filter) -> _Operand:
        self._blanks()
        rest = self._text[self._at : self._at + 1]
        if rest and rest in "@$":
            self._at += 1
            steps: list[str | int] = []
            while self._text.startswith((".", "["), self._at):
                if _FILTER.match(self._text, self._at) or _ALL.match(self._text, self._at):
                    raise self._wrong("within a filter only names and indexes are supported")
                steps.append(self._step())
            return _Operand(place=into.place(rest == "$", tuple(steps)))
        return _Operand(self._literal())

    def _literal(self) -> Any:
        self._blanks()
        if found := self._take(_NUMBER):
            return int(found[0]) if found[0].lstrip("-").isdigit() else _number(found[0])
        if found := self._take(_TEXT):
            return _unquoted(found[0])
        if found := self._take(_WORD):
            return _WORDS[found[0]]
        if self._skip("["):
            items: list[Any] = []
            while not self._skip("]"):
                items.append(self._literal())
                if not self._skip(",") and not self._text.startswith("]", self._at):
                    raise self._wrong("expected , or ]")
            return items
        raise self._wrong("expected @.field, a string in quotes, a number, true, false, null or a list of them")

    def _pattern(self) -> Any:
        self._blanks()
        found = self._take(_PATTERN)
        if found is None:
            raise self._wrong("expected /pattern/")
        flags = found[2]
        if flags.strip(_FLAGS):
            raise self._wrong(f"flags of a pattern must be among {_FLAGS}")
        text = f"(?{flags}){found[1]}" if flags else found[1]
        wrong = syntax_error(text)
        if wrong is not None:
            raise self._wrong(wrong)
        return compiled(text)

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        for text, what in _UNBUILT.items():
            if text == ".." and self._text.startswith(text, self._at):
                raise self._wrong(f"{what} are not supported")
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _skip(self, text: str) -> bool:
        self._blanks()
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _blanks(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _wrong(self, why: str) -> Unreadable:
        rest = self._text[self._at : self._at + 20]
        return Unreadable(f"{why} at {rest!r}" if rest else f"{why} at its end")


def _number(text: str) -> Any:
    number = float(text)
    return number if Decimal(text) == Decimal(repr(number)) else Decimal(text)


def _compared(into: Filter, left: _Operand, operator: str, right: _Operand) -> str:
    one, other = left.text(into), right.text(into)
    general = f"{into.bind(OPERATORS[operator])}({one}, {other})"
    if left.place is None or right.place is not None or operator not in _OF_PYTHON:
        return general
    # Nearly all values are of the constant's own type, and Python compares those as Jayway does.
    kind: type[object] = type(cast("object", right.value))
    if kind is str:
        return f"({one} {operator} {other} if type({one}) is str else {general})"
    if kind in (int, float):
        return f"({one} {operator} {other} if type({one}) is int or type({one}) is float else {general})"
    return general


def _unquoted(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escape = found[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(plain, text[1:-1])
