"""Arrow columns of rows without a schema: one column per
top-level field, its type inferred from the data and widened.

Owns the inference and the widening between chunks of one file. Knows nothing of files or Kafka.

    null < bool | int64, float < double | decimal | string | binary    conflicts become string, nested objects and
                                                                       arrays are JSON text

A row is a dict (an object), None (a tombstone: no field has a value), or any other value, which goes into one column
`value`. The text of a value that is no string is its JSON (`payloads`).

Invariant: only the form of a value changes: an int that a double cannot hold exactly makes its column a string.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow

from herdmesh.connect.model import Float32, java_text
from herdmesh.connectors.values.payloads import payloads
from herdmesh.sdk import DataError
from herdmesh.sdk.arrow.writing import column_name

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements, which are known only at run time."""
Array = Any
Chunk = dict[str, Array]
"""Columns of equal length by name."""

VALUE_COLUMN = "value"
_values_of: Any = dict[str, Any].values
_EXACT_IN_DOUBLE = 1 << 53
_INT64 = range(-(1 << 63), 1 << 63)
"""For exact ints only: a membership test of another class would search the whole range."""
_TAKEN_AS_WELL: dict[Any, frozenset[type]] = {pa.binary(): frozenset((str,)), pa.float64(): frozenset((bool, Float32))}
"""Values that Arrow silently converts to another type: the
bytes of a string, 1.0 for true, all digits of a float.
"""
_NESTED: frozenset[type] = frozenset((dict, list, type(None)))
_NUMBERS = frozenset((pa.int64(), pa.float32(), pa.float64()))
_PLAIN = frozenset((pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary()))


def chunk_of(rows: Sequence[Any]) -> Chunk:
    """Return the columns of one batch of rows, in the order in which fields first appear."""
    if any(type(row) is not dict for row in rows):
        rows = [_as_object(row) for row in rows]
    keys = list(rows[0]) if rows else []
    if keys and all(map(_has_exactly(keys), rows)):
        columns: Iterable[Sequence[Any]] = zip(*map(_values_of, rows), strict=True)
        return {name: column_of(values) for name, values in zip(_names_of(keys), columns, strict=True)}
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {name: column_of([row.get(key) for row in rows]) for name, key in zip(_names_of(keys), keys, strict=True)}


def _names_of(keys: Sequence[Any]) -> list[str]:
    """Return the field names. Raises DataError for two keys with one name
    (the number 1 and the text "1"): one of their values would be lost.
    """
    names = list(map(column_name, keys))
    if len(set(names)) < len(names):
        name = next(one for one in names if names.count(one) > 1)
        raise DataError(f"two keys of a map have the same name {name!r}, and a file can have only one such column")
    return names


def _has_exactly(names: list[str]) -> Callable[[dict[str, Any]], bool]:
    """Return a check for an object with exactly these fields in this order."""
    return lambda row: list(row) == names


def _as_object(row: Any) -> dict[str, Any]:
    if isinstance(row, dict):
        return row  # pyright: ignore[reportUnknownVariableType]
    return {} if row is None else {VALUE_COLUMN: row}


def column_of(values: Sequence[Any]) -> Array:
    """Return the values of one field in the narrowest plain type that fits all of them."""
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return _careful_column(values)
    taken_as_well = _TAKEN_AS_WELL.get(column.type)
    if taken_as_well is not None and not taken_as_well.isdisjoint(set(map(type, values))):
        return _careful_column(values)
    return column if column.type in _PLAIN else _careful_column(values)


def _careful_column(values: Sequence[Any]) -> Array:
    if _NESTED.issuperset(map(type, values)):
        present = [value for value in values if value is not None]
        texts = iter(payloads().texts(present, None))
        return pa.array([None if value is None else str(next(texts), "utf-8") for value in values], pa.string())
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"bytes"}:
        return pa.array(values, pa.binary())
    if kinds == {"float32"}:
        return pa.array(values, pa.float32())
    if kinds == {"decimal"} and (column := _decimals(values)) is not None:
        return column
    if kinds <= {"int", "float", "float32"} and all(_fits_double(value) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else text_of(value) for value in values], pa.string())


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float32" if isinstance(value, Float32) else "float"
    if isinstance(value, Decimal):
        return "decimal"
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes"
    return "text"


def _decimals(values: Sequence[Any]) -> Array | None:
    """Return decimals in the narrowest of Arrow's types that
    has the digits of all of them; None = there is none.
    """
    scale = max(0, *(-value.as_tuple().exponent for value in values if value is not None))
    for kind, digits in ((pa.decimal128, 38), (pa.decimal256, 76)):
        try:
            return pa.array(values, kind(digits, scale))
        except (pa.ArrowException, ValueError):
            continue
    return None


def _fits_double(value: Any) -> bool:
    return not isinstance(value, int) or abs(value) <= _EXACT_IN_DOUBLE


def text_of(value: Any) -> str:
    """Return a value as text: strings unchanged, bytes as Base64,
    NaN and infinities by their names, all else as JSON.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # a lone surrogate has no UTF-8
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(cast("bytes", value)).decode()
    if isinstance(value, int) and not isinstance(value, bool) and int(value) not in _INT64:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return java_text(value)
    return payloads().texts((value,), None)[0].decode()


def table_of(
    chunks: Sequence[Chunk], row_counts: Sequence[int], number_texts: Callable[[Array], Array] | None = None
) -> pyarrow.Table:
    """Join all chunks to one table: a field that a chunk lacks is null there, types are widened over all.

    A field without a single value has no type and is left out: an invented type would clash with the type in another
    file (Spark cannot merge them, but accepts a missing column). Rows of nothing but nulls have a column `value`.
    `number_texts`: converts numbers to text for a text format, if the chunks have different number types; without it
    such numbers become doubles.
    """
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for chunk in chunks for name in chunk):
        parts = [chunk.get(name, pa.nulls(count)) for chunk, count in zip(chunks, row_counts, strict=True)]
        column = _joined(parts, number_texts)
        if column.type != pa.null():
            columns[name] = column
    return pa.table(columns or {VALUE_COLUMN: pa.nulls(sum(row_counts), pa.string())})


def _joined(parts: list[Array], number_texts: Callable[[Array], Array] | None) -> Any:
    kinds = {part.type for part in parts if part.type != pa.null()}
    if not kinds:
        return pa.chunked_array(parts, pa.null())
    if len(kinds) == 1:
        kind = kinds.pop()
        return pa.chunked_array([part.cast(kind) for part in parts], kind)
    if kinds <= _NUMBERS:
        if number_texts is not None:
            return pa.chunked_array(list(map(number_texts, parts)), pa.large_string())
        try:
            return pa.chunked_array([part.cast(pa.float64()) for part in parts], pa.float64())
        except pa.ArrowInvalid:  # an int beyond 2^53
            pass
    return pa.chunked_array([_as_text(part) for part in parts], pa.string())


def _as_text(part: Array) -> Array:
    if part.type == pa.string():
        return part
    values: list[Any] = part.to_pylist()
    if part.type == pa.float32():  # a float32 prints its own digits, not a double's
        values = [None if value is None else Float32(value) for value in values]
    return pa.array([None if value is None else text_of(value) for value in values], pa.string())
