"""Fast path for writing columns of values of one schema: msgspec encodes them, checked column by column.

Owns the choice of values for this path: those of exactly the types that the schema names, whose text is the same in
msgspec and Jackson; numbers that Java prints in another way are passed as text. Everything else is `Unusual`, and
`texts` writes it.

Invariant: a payload from this path equals the one from `texts` for the same value, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from herdmesh.connect.converters.json.texts import Texts
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.java import PRINTS_SHORTEST_FROM, double_text, float32, float_text
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    LOGICAL,
    TIME,
    JavaDate,
    Schema,
    Struct,
    StructColumn,
    days_of,
    decimal_text,
    decimal_to_bytes,
    time_of,
)

Column = Sequence[Any]
Prepare = Callable[[Column], Column]
"""Function from a column of values to a column that msgspec writes as Jackson writes the values. Raises Unusual."""

_BITS = {"INT8": 7, "INT16": 15, "INT32": 31, "INT64": 63}
_DEPTH_MAX = 20
_KINDS: dict[str, type] = {"STRING": str, "BOOLEAN": bool, "BYTES": bytes, "FLOAT32": float, "FLOAT64": float}
_NULL = type(None)
_WHOLE = 2.0**52
_schema_of, _values_of = attrgetter("schema"), attrgetter("values")


class Unusual(Exception):
    """Raised for values, or a schema, that need the reference path."""


class Encoder:
    """Compiled writer of values of one schema."""

    def __init__(self, schema: Schema, texts: Texts) -> None:
        """Raises Unusual when the schema has no fast path."""
        try:
            self._prepare = _prepare(schema, texts, 0)
        except (TypeError, ValueError) as error:
            raise Unusual from error  # field names that msgspec does not support
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def write_all(self, values: Column) -> list[bytes]:
        """The payload of each value. Raises Unusual when one of them needs the reference path."""
        payloads = self.lines(values).split(b"\n")
        payloads.pop()
        return payloads

    def lines(self, values: Column) -> bytes:
        """The payloads, each followed by a line feed and with no line feed inside. Raises Unusual as `write_all`."""
        try:
            data = self._encode_lines(self._prepare(values))
        except (OverflowError, UnicodeEncodeError, RecursionError, TypeError, ConnectError) as error:
            raise Unusual from error
        if jackson.differs(data):
            raise Unusual
        return data


def _prepare(schema: Schema | None, texts: Texts, depth: int) -> Prepare:
    """The function for a position where null is allowed."""
    if schema is None or depth > _DEPTH_MAX:
        raise Unusual
    kind, check = _plain(schema, texts, depth)
    only, with_null = {kind}, {kind, _NULL}
    default = schema.default if texts.replace_null else None

    def prepare(column: Column) -> Column:
        kinds = {Struct} if isinstance(column, StructColumn) else set(map(type, column))
        if kinds == only:
            return column if check is None else check(column)
        if not column:
            return column
        if not kinds <= with_null:
            raise Unusual
        if default is not None:
            column = [default if value is None else value for value in column]
            if set(map(type, column)) != only:
                raise Unusual
            return column if check is None else check(column)
        if not schema.optional:
            raise Unusual
        if check is None:
            return column
        present = [value for value in column if value is not None]
        checked = iter(check(present) if present else ())
        return [None if value is None else next(checked) for value in column]

    return prepare


def _plain(schema: Schema, texts: Texts, depth: int) -> tuple[type, Prepare | None]:
    """The Python type of the values, and the encoding of a column of them."""
    if schema.name in LOGICAL:
        return _logical(schema, texts)
    kind = schema.type
    if kind in _BITS:
        end = 1 << _BITS[kind]
        return int, lambda column: _in_range(column, end)
    match kind:
        case "FLOAT64":
            return float, _doubles
        case "FLOAT32":
            return float, lambda column: [_float(value) for value in column]
        case "ARRAY":
            return list, _of_lists(_prepare(schema.value_schema, texts, depth + 1))
        case "MAP":
            if schema.key_schema is None or schema.key_schema.type != "STRING" or schema.key_schema.name in LOGICAL:
                raise Unusual
            return dict, _of_maps(_prepare(schema.value_schema, texts, depth + 1))
        case "STRUCT":
            return Struct, _of_structs(schema, texts, depth)
        case _:
            return _KINDS[kind], None


def _in_range(column: Column, end: int) -> Column:
    if min(column) < -end or max(column) >= end:
        raise Unusual
    return column


def _doubles(column: Column) -> Column:
    """Recognise small doubles of up to six decimals by arithmetic, which takes a third of the time of checking their
    text: a whole number of millionths (found by adding and subtracting 2**52), divided by a million, is the nearest
    double to a decimal number of at most six digits.
    """
    return [
        value
        if PRINTS_SHORTEST_FROM <= value < 1e7
        or (1e-3 <= value < PRINTS_SHORTEST_FROM and (value * 1e6 + _WHOLE - _WHOLE) / 1e6 == value)
        else _double(value)
        for value in column
    ]


def _double(value: float) -> Any:
    if jackson.same_double_text(value):
        return value
    text = double_text(value)
    return msgspec.Raw(text.encode()) if math.isfinite(value) else text


def _float(value: float) -> Any:
    if 1e-3 <= value < 1e7 or -1e7 < value <= -1e-3:
        near = float(f"{value:.6g}")
        if float32(near) == value:
            return near  # up to 6 digits, Java's algorithm and the shortest text agree (checked over a million)
    text = float_text(value)
    return text if text[-1] in "Ny" else msgspec.Raw(text.encode())  # NaN, and numbers beyond a float's range


def _of_lists(prepare: Prepare) -> Prepare:
    """Encode all elements of all lists as one column."""

    def lists(column: Column) -> Column:
        flat = [item for items in column for item in items]
        if not flat:
            return column
        checked = prepare(flat)
        if checked is flat:
            return column
        left = iter(checked)
        return [[next(left) for _ in items] for items in column]

    return lists


def _of_maps(prepare: Prepare) -> Prepare:
    """Encode all values of all maps as one column; the keys must be texts."""

    def maps(column: Column) -> Column:
        if any(not {str}.issuperset(map(type, members)) for members in column):
            raise Unusual
        flat = [item for members in column for item in members.values()]
        if not flat:
            return column
        checked = prepare(flat)
        if checked is flat:
            return column
        left = iter(checked)
        return [{name: next(left) for name in members} for members in column]

    return maps


def _of_structs(schema: Schema, texts: Texts, depth: int) -> Prepare:
    """Encode field by field, then as msgspec structs with the fields' names."""
    columns = [_prepare(field.schema, texts, depth + 1) for field in schema.fields]
    names = {f"f{field.index}": field.name for field in schema.fields}
    row = msgspec.defstruct("Payload", [(at, Any) for at in names], rename=names, gc=False)

    def structs(column: Column) -> Column:
        fields: Iterable[Column] | None = None
        if isinstance(column, StructColumn) and column.schema is schema:
            fields = column.fields
        if fields is None:
            # Equal schemas are the same object; `count` compares identity first.
            if list(map(_schema_of, column)).count(schema) != len(column):
                raise Unusual
            fields = zip(*map(_values_of, column), strict=True)
        if not columns:
            return [row() for _ in range(len(column))]
        return list(map(row, *[prepare(field) for prepare, field in zip(columns, fields, strict=True)]))

    return structs


def _logical(schema: Schema, texts: Texts) -> tuple[type, Prepare | None]:
    if schema.name == DECIMAL:
        if texts.numeric:
            return Decimal, lambda column: [msgspec.Raw(decimal_text(value).encode()) for value in column]
        return Decimal, lambda column: [decimal_to_bytes(schema, value) for value in column]
    if schema.name == DATE:
        return JavaDate, lambda column: [days_of(value) for value in column]
    if schema.name == TIME:
        return JavaDate, lambda column: [time_of(value) for value in column]
    return JavaDate, lambda column: list(map(int, column))
