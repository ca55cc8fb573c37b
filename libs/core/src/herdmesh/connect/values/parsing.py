"""Parser of values in text: header text and InsertHeader's literal (docs/reference/connect/transforms-converters.md,
section 6.2).

Owns the order in which the kinds of value are tried, and the schema of the result. Tokens: `tokens`.

Invariant: a text of no other kind is a string as a whole. The Python types of list and map elements determine their
Java classes.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import BLANKS, exact_float32, read_decimal
from herdmesh.connect.model import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    decimal_schema,
    map_key,
)
from herdmesh.connect.values.conversions import convert
from herdmesh.connect.values.temporals import read_temporal
from herdmesh.connect.values.tokens import Tokens

Parsed = tuple[Schema | None, Any]
"""A schema and a value under it; both None = null."""

_NULL: Parsed = (None, None)
_LITERALS: dict[str, Parsed] = {"null": _NULL, "true": (BOOLEAN, True), "false": (BOOLEAN, False)}
_LITERAL_STARTS = frozenset(text[0] for text in _LITERALS)
_INTEGERS: tuple[tuple[int, type[int], Schema], ...] = (
    (8, Int8, INT8), (16, Int16, INT16), (32, Int32, INT32), (64, Int64, INT64),
)  # fmt: skip
_WIDTHS = {"INT8": 0, "INT16": 1, "INT32": 2, "INT64": 3, "FLOAT32": 4, "FLOAT64": 5}
_WHOLE_DIGITS = 19  # the maximum of a long


def parse_text(text: str) -> Parsed:
    """The value and schema of a text. Raises RecursionError for a text that is nested too deeply."""
    # Most headers have words or short whole numbers.
    if not text or (text[0].isalpha() and text[0] not in _LITERAL_STARTS):
        return STRING, text
    if len(text) < _WHOLE_DIGITS and text.isascii() and text.isdigit():
        return next((schema, int(text)) for bits, _, schema in _INTEGERS if int(text) < 1 << bits - 1)
    schema, value = _value(Tokens(text), embedded=False)
    if isinstance(value, Int8 | Int16 | Int32 | Int64):
        return schema, int(value)  # its schema determines the class
    return schema, float(value) if isinstance(value, float) else value


def _value(tokens: Tokens, *, embedded: bool) -> Parsed:
    """Parse the value at the cursor. Raises DataError when an embedded text is no value."""
    if not tokens.has_next():
        return _NULL
    if embedded and tokens.consume('"'):
        return _quoted(tokens)
    for text, literal in _LITERALS.items():
        start = tokens.mark()
        if tokens.consume(text) and (embedded or not tokens.has_next()):
            return literal
        tokens.rewind(start)  # goes back before skipped blanks too
    start = tokens.mark()
    try:
        if tokens.consume("["):
            return _array(tokens)
        if tokens.consume("{"):
            return _map(tokens)
    except DataError:
        tokens.rewind(start)
    token = tokens.next()
    trimmed = token.strip(BLANKS)
    return _token(tokens, trimmed, embedded=embedded) if trimmed else (STRING, token)


def _quoted(tokens: Tokens) -> Parsed:
    parts: list[str] = []
    while tokens.has_next() and not tokens.consume('"'):
        parts.append(tokens.next())
    text = "".join(parts)
    return read_temporal(text) or (STRING, text)


def _token(tokens: Tokens, token: str, *, embedded: bool) -> Parsed:
    first = token[0]
    if first.isdecimal() and first <= "\uffff":
        # A time or a timestamp with unescaped colons is five tokens.
        start = tokens.mark()
        rest = tokens.take(4)
        temporal = None if rest is None else read_temporal(token + rest)
        if temporal is None:
            tokens.rewind(start)
            temporal = read_temporal(token)
        if temporal is not None:
            return temporal
    elif first not in "+-":
        return _string(tokens, embedded=embedded)
    try:
        return _number(read_decimal(token))
    except ValueError:
        return _string(tokens, embedded=embedded)


def _string(tokens: Tokens, *, embedded: bool) -> Parsed:
    if embedded:
        raise DataError("Failed to parse embedded value")
    return STRING, tokens.text


def _number(number: Decimal) -> Parsed:
    """The smallest type for a number: exact for a whole number, a float for any other, which loses digits."""
    exponent = cast("int", number.as_tuple().exponent)
    if not number or (number.adjusted() < _WHOLE_DIGITS and number == number.to_integral_value()):
        whole = int(number) if number else 0
        for bits, kind, schema in _INTEGERS:
            if -(1 << bits - 1) <= whole < 1 << bits - 1:
                return schema, kind(whole)
    if exponent == 0:
        return decimal_schema(0), number
    single = exact_float32(number)
    if math.isfinite(single):
        return FLOAT32, Float32(single)
    double = float(number)
    return (FLOAT64, Float64(double)) if math.isfinite(double) else (decimal_schema(-exponent), number)


def _array(tokens: Tokens) -> Parsed:
    values: list[Any] = []
    merged = _Merged()
    while tokens.has_next():
        if tokens.consume("]"):
            element = merged.schema
            if element is not None:
                values = [convert(element, value) for value in values]
            return Schema("ARRAY", value_schema=element), values
        if tokens.consume(","):
            raise DataError(f"Unable to parse an empty array element: {tokens.text}")
        schema, value = _value(tokens, embedded=True)
        merged.add(schema)
        values.append(value)
        before = tokens.mark()
        if tokens.consume("]"):
            tokens.rewind(before)
        elif not tokens.consume(","):
            raise DataError(f"Array elements missing ',' delimiter: {tokens.text}")
    raise DataError(f"Array is missing terminating ']': {tokens.text}")


def _map(tokens: Tokens) -> Parsed:
    values: dict[Any, Any] = {}
    keys, items = _Merged(), _Merged()
    while tokens.has_next():
        if tokens.consume("}"):
            return _map_of(keys.schema, items.schema, values)
        if tokens.consume(","):
            raise DataError(f"Unable to parse a map entry with no key or value: {tokens.text}")
        key_schema, key = _value(tokens, embedded=True)
        if key is None:
            raise DataError(f"Map entry may not have a null key: {tokens.text}")
        if not tokens.consume(":"):
            raise DataError(f"Map entry is missing ':' at {tokens.position} in {tokens.text}")
        item_schema, item = _value(tokens, embedded=True)
        values[map_key(key)] = item
        tokens.consume(",")
        keys.add(key_schema)
        items.add(item_schema)
    raise DataError(f"Map is missing terminating '}}': {tokens.text}")


def _map_of(key: Schema | None, item: Schema | None, values: dict[Any, Any]) -> Parsed:
    if key is None:
        return Schema("MAP"), values
    return Schema("MAP", key_schema=key, value_schema=item), {
        convert(key, name): value if item is None else convert(item, value) for name, value in values.items()
    }


class _Merged:
    """Common schema of several values, ignoring nulls; None when there is none."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._apart = False

    def add(self, schema: Schema | None) -> None:
        if schema is None or self._apart:
            return
        before = self.schema
        self.schema = schema if before is None else _common(before, schema)
        self._apart = self.schema is None


def _common(one: Schema, other: Schema) -> Schema | None:
    """The wider of two number types, the later of two schemas of one type; None for other types."""
    if one.type == other.type:
        return other
    left, right = _WIDTHS.get(one.type), _WIDTHS.get(other.type)
    if left is None or right is None:
        return None
    return other if right > left else one
