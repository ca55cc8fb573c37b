"""Comparison operators of Jayway's JsonPath 2.9.0.

Owns the operators.

Invariant: `MISSING` equals nothing, itself included, and no operator raises for any value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

from herdmesh.connect.java import double_text
from herdmesh.connect.model import Struct


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Value of a missing field."""
Operator = Callable[[Any, Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(number: Any) -> str:
    return double_text(number) if isinstance(number, float) else str(number)


def _exact(number: Any) -> Any:
    """A number for the comparison of decimals and doubles by their printed text."""
    return Decimal(_text(number)) if isinstance(number, float) and number - number == 0 else number


def _compared(left: Any, right: Any, how: Callable[[Any, Any], bool]) -> bool:
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        left, right = _exact(left), _exact(right)
    try:
        return how(left, right)
    except InvalidOperation:  # NaN
        return False


def equal(left: Any, right: Any) -> bool:
    """Equality; a text equals a number whose printed text it is."""
    if left is MISSING or right is MISSING:
        return False
    if _is_number(left):
        if isinstance(right, str):
            try:
                right = Decimal(right)
            except InvalidOperation:
                return False
        return _is_number(right) and _compared(left, right, operator.eq)
    if isinstance(left, str):
        return left == (_text(right) if _is_number(right) else right)
    if isinstance(left, list) and isinstance(right, list):
        ours, theirs = cast("list[Any]", left), cast("list[Any]", right)
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return type(cast("object", left)) is type(cast("object", right)) and bool(left == right)


def _ordered(how: Callable[[Any, Any], bool]) -> Operator:
    def compare(left: Any, right: Any) -> bool:
        if _is_number(left) and _is_number(right):
            return _compared(left, right, how)
        return isinstance(left, str) and isinstance(right, str) and how(left, right)

    return compare


def _within(left: Any, right: Any) -> bool:
    return isinstance(right, list) and any(equal(left, one) for one in cast("list[Any]", right))


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return _within(right, left)


def _of_lists(how: Callable[[list[Any], list[Any]], bool]) -> Operator:
    def compare(left: Any, right: Any) -> bool:
        if not isinstance(left, list) or not isinstance(right, list):
            return False
        return how(cast("list[Any]", left), cast("list[Any]", right))

    return compare


def _subset(left: list[Any], right: list[Any]) -> bool:
    return all(_within(one, right) for one in left)


def _overlap(left: list[Any], right: list[Any]) -> bool:
    return any(_within(one, right) for one in left)


def _size(value: Any) -> int | None:
    if isinstance(value, Struct):
        return len(value.values)
    return len(cast("Any", value)) if isinstance(value, str | list | dict) else None


def _sized(left: Any, right: Any) -> bool:
    size = _size(left)
    return size is not None and _is_number(right) and size == right


def _is_empty(left: Any, right: Any) -> bool:
    size = _size(left)
    return size is not None and (size == 0) is right


OPERATORS: Final[Mapping[str, Operator]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": _within,
    "nin": lambda left, right: not _within(left, right),
    "contains": _contains,
    "subsetof": _of_lists(_subset),
    "anyof": _of_lists(_overlap),
    "noneof": _of_lists(lambda left, right: not _overlap(left, right)),
    "size": _sized,
    "empty": _is_empty,
}
"""Operators by their names in conditions; `=~` has a pattern on its right (`matches`)."""


def matches(pattern: Any) -> Callable[[Any], bool]:
    """A test of a whole text, or of a number's or boolean's text, against the pattern."""

    def check(value: Any) -> bool:
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif _is_number(value):
            value = _text(value)
        return isinstance(value, str) and pattern.fullmatch(value) is not None

    return check
