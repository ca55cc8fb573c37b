r"""Texts of Connect values for PostgreSQL's `COPY ... FROM STDIN` (text format).

Owns the text of each kind of value, column by column, and the lines of a COPY. The server converts text to a column's
type, as it does for literals: so a number goes into an `integer`, a `numeric` or a `text` column alike, and a value
that does not fit is the server's error. Types of created columns: `types`.

    numbers, decimals      as they are           bytes       \x6162
    FLOAT32                its shortest text, 0.1, where the column is no float
    booleans               true, false           Date        2024-02-29
    strings                as they are           Time        13:00:00.123
    arrays                 {1,2,"a b",NULL}      Timestamp   2024-02-29 13:00:00.123+00:00, in `db.timezone`
    structs, maps, lists   JSON

The column's type matters where it would give a text another meaning (`Takes`): a Date or Time in a column with a time
zone is UTC, whatever the session's zone; 5.0 and 5.00 in an integer column are 5; a number in a column of dates,
times or intervals is refused, as the server would read 130000 as 13:00, and any number as seconds; and in a column of
bytes all but bytes and `\x00ff`, as it would store the characters, of Base64 too.

Values of Debezium's semantic types have texts of their own if the column has the matching type (`debezium_texts`). A
list is an array in a column of an array type, else JSON. A string in a json column is JSON text.

Invariant: two values with the same text are the same to every column type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from decimal import Decimal
from enum import Enum, auto
from functools import partial
from typing import Any, cast

from herdmesh.connect.java import DAY_MS, float32
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import DATE, LOGICAL, TIME, BigInteger, Float32, Int8, Int16, Int32, Int64
from herdmesh.connectors.postgres.sink.date_texts import date_text, date_texts, moment_text, moment_texts, time_text
from herdmesh.connectors.postgres.sink.debezium_texts import INFINITE_DAYS, Write
from herdmesh.connectors.values.payloads import texts_of
from herdmesh.sdk import DataError, JavaDate, Schema, Struct

_INTEGERS = frozenset((int, Int8, Int16, Int32, Int64))
_KINDS: dict[str, frozenset[type]] = {
    "INT8": _INTEGERS, "INT16": _INTEGERS, "INT32": _INTEGERS, "INT64": _INTEGERS, "STRING": frozenset((str,)),
    "BOOLEAN": frozenset((bool,)), "BYTES": frozenset((bytes, bytearray, memoryview)),
    "FLOAT32": frozenset((float, Float32)), "FLOAT64": frozenset((float, Float32)),
}  # fmt: skip
"""The Python classes of values by the schema's type."""
_INFINITE = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""Infinity in milliseconds, as in the Java driver and the source (`types`)."""
_NORMAL_FLOAT32_MIN = 2.0**-126
"""Smallest number from which a float of 32 bits distinguishes all numbers of six digits."""
_WHOLE_DIGITS_MAX = 40
"""More digits than any integer column has."""
_NULL = "\\N"
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
Texts = list[str | None]
"""One text for each value of a column, None = null; not escaped."""


class Takes(Enum):
    """Kinds of columns, or elements, that give a text another meaning."""

    ANYTHING = auto()
    INTEGERS = auto()
    TIMES = auto()
    """Dates, times or intervals."""
    ZONED_TIMES = auto()
    """Times with a time zone, which is the session's if the text has none."""
    BYTES = auto()


_NUMBERS = frozenset((int, Int8, Int16, Int32, Int64, BigInteger, float, Float32, Decimal))
_CONVERTED: dict[Takes, frozenset[type]] = {
    Takes.ANYTHING: frozenset(), Takes.INTEGERS: frozenset((float, Float32, Decimal)), Takes.TIMES: _NUMBERS,
    Takes.ZONED_TIMES: _NUMBERS, Takes.BYTES: _NUMBERS | {bool, str},
}  # fmt: skip
"""The Python classes of values that `_converted` handles."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """Form of the values of one column."""

    schema: Schema | None
    """Schema of the values; None = schemaless."""
    is_array: bool = False
    """The column is of an array type."""
    zone: tzinfo = UTC
    """Time zone of timestamps."""
    is_float: bool = False
    """The column, or its elements, are `real` or `double
    precision`, for which any text of a number is equivalent.
    """

    write: Write | None = None
    """Function that writes a value, or an array's element, of a semantic type of Debezium's to this column."""
    delimiter: str = ","
    """Separator of the elements of an array."""
    takes: Takes = Takes.ANYTHING

    @property
    def narrows(self) -> bool:
        """True if floats have 32 bits, and must be written so."""
        return self.schema is not None and self.schema.type == "FLOAT32" and not self.is_float


def texts(values: Sequence[Any], form: TextForm) -> Texts:
    """Return the text of each value. Raises DataError for a value without one."""
    if form.write is not None and not form.is_array:
        return [None if value is None else _written(form.write, value) for value in values]
    is_text = form.schema is None or form.schema.type == "STRING"
    if is_text and str not in _CONVERTED[form.takes] and are_texts(values):
        return list(values)
    kinds = set(map(type, values))
    kinds.discard(type(None))
    _check(kinds, values, form.schema)
    if len(kinds) == 1 and kinds.isdisjoint(_CONVERTED[form.takes]):
        kind = kinds.pop()
        if kind is Float32 or (kind is float and form.narrows):
            return _by_column(values, _floats32)
        if kind is JavaDate and form.write is None:
            return _by_column(values, partial(_date_texts, form))
        write = _WRITERS.get(kind)
        if write is not None:
            return [None if value is None else write(value) for value in values]
        if kind is str:
            return list(values)
        if kind is list and form.is_array:
            inner = _inner(form)
            if inner.schema is not None:
                items = [item for value in values if value is not None for item in value if item is not None]
                _check(set(map(type, items)), items, inner.schema)
            return [None if value is None else _array(value, inner) for value in values]
    return [None if value is None else _text(value, form) for value in values]


def are_texts(values: Sequence[Any]) -> bool:
    """Return whether all values are texts without nulls; in
    a quarter of the time of checking the type of each.
    """
    try:
        "".join(values)
    except TypeError:
        return False
    return True


def _check(kinds: set[type], values: Sequence[Any], schema: Schema | None) -> None:
    """Raise DataError for a value that does not have the schema's type, because the column might accept it.

    `kinds`: classes of the values that are not None. The server checks
    the range of integers, except bytes, which are written to a smallint.
    """
    if schema is None or schema.name in LOGICAL:
        return
    fitting = _KINDS.get(schema.type)
    if fitting is not None and not fitting.issuperset(kinds):
        other = next(kind for kind in kinds if kind not in fitting)
        raise DataError(f"an object of class {other.__name__} is not a valid value for a schema of type {schema.type}")
    if schema.type == "INT8" and not all(value is None or -128 <= value <= 127 for value in values):
        raise DataError("a number beyond 8 bits is not a valid value for a schema of type INT8")


def _written(write: Write, value: Any) -> str:
    """Return the text. Raises DataError for a value that does not have its schema's type."""
    try:
        return write(value)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"a value cannot be written to PostgreSQL with the type of its schema: {error}") from error


def _text(value: Any, form: TextForm) -> str:
    if form.write is None and form.takes is not Takes.ANYTHING and type(value) in _CONVERTED[form.takes]:
        value = _converted(value, form.takes)
    if form.write is not None and not isinstance(value, list | tuple):
        return _written(form.write, value)
    if isinstance(value, str):
        return value
    if isinstance(value, JavaDate):
        return _date_text(value, form)
    if isinstance(value, list | tuple) and form.is_array:
        return _array(cast("Sequence[Any]", value), _inner(form))
    if isinstance(value, list | tuple | dict | Struct):
        return _json(value, form.schema)
    if isinstance(value, float) and form.narrows:
        return _float32(value)
    for kind in type(value).__mro__:
        write = _WRITERS.get(kind)
        if write is not None:
            return write(value)
    raise DataError(f"a value of type {type(value).__name__} cannot be written to PostgreSQL")


def _converted(value: float | Decimal | str, takes: Takes) -> float | Decimal | str:
    """Convert a number, or a text for bytes, to what the column needs. Raises DataError for a number without a unit, or
    a text that does not name its bytes.
    """
    if takes is Takes.BYTES or isinstance(value, str):
        if isinstance(value, str) and (not value or value.startswith("\\x")):
            return value
        raise DataError(
            f"{str(value)[:40]!r} is ambiguous as bytes (JSON without schemas has them in Base64): use a converter "
            "with schemas, or write \\x and hexadecimal digits"
        )
    if takes is not Takes.INTEGERS:
        raise DataError(
            "a number is ambiguous as a date, time or interval: use a converter with schemas, or convert it "
            "(TimestampConverter)"
        )
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value.adjusted() < _WHOLE_DIGITS_MAX and value == value.to_integral_value()
    else:
        is_whole = float(value).is_integer()
    return int(value) if is_whole else value


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _float32(value: float) -> str:
    """Return the shortest text that reads as this 32-bit float; as a double it would have spurious digits."""
    for digits in range(6 if abs(value) >= _NORMAL_FLOAT32_MIN else 1, 9):
        near = float(f"{value:.{digits}g}")
        if float32(near) == value:
            return repr(near)
    return repr(float(f"{value:.9g}"))


def _by_column(values: Sequence[Any], write: Callable[[list[Any]], list[str]]) -> Texts:
    """Return the texts that `write` returns for the values that are not None, and None for the others."""
    present = [value for value in values if value is not None]
    written = write(present)
    if len(present) == len(values):
        return cast("Texts", written)
    left = iter(written)
    return [None if value is None else next(left) for value in values]


def _floats32(values: list[float]) -> list[str]:
    """Return `_float32` of each, in a quarter of the time."""
    from herdmesh.connectors.postgres.sink.float_texts import shortest_texts

    written = shortest_texts(values)
    return list(map(_float32, values)) if written is None else written  # a double, although the schema is FLOAT32


def _date_texts(form: TextForm, values: list[JavaDate]) -> list[str]:
    """Return `_date_text` of each, in a quarter of the time if all are in the years 1 to 9999."""
    name = None if form.schema is None else form.schema.name
    written: list[str] | None = None
    if name == DATE and form.takes is not Takes.ZONED_TIMES:
        written = date_texts(values)
    elif name not in (DATE, TIME) and form.zone is UTC:
        written = moment_texts(values)
    return [_date_text(value, form) for value in values] if written is None else written


def _bytes(value: bytes | bytearray | memoryview) -> str:
    return "\\x" + bytes(value).hex()


_WRITERS: dict[type, Callable[[Any], str]] = {
    bool: _boolean,
    int: int.__repr__,
    float: float.__repr__,
    Float32: _float32,
    Decimal: _decimal,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
}


def _date_text(value: JavaDate, form: TextForm) -> str:
    """Format a date by the schema's name; without a schema it is a point in time, as in Java."""
    name = None if form.schema is None else form.schema.name
    if value in _INFINITE:
        return _INFINITE[value]
    if name == DATE:
        if value % DAY_MS and value // DAY_MS not in INFINITE_DAYS:
            raise DataError("a Date has a time of day")
        infinite = INFINITE_DAYS.get(value // DAY_MS)
        is_zoned = form.takes is Takes.ZONED_TIMES
        return infinite or (moment_text(int(value), UTC) if is_zoned else date_text(int(value)))
    if name == TIME:
        return time_text(int(value)) + ("+00" if form.takes is Takes.ZONED_TIMES else "")
    return moment_text(int(value), form.zone)


def _inner(form: TextForm) -> TextForm:
    """Return the form of an array's elements."""
    _, of_value = Schema.inner(form.schema)
    return replace(form, schema=of_value, is_array=True)


def _array(values: Sequence[Any], inner: TextForm) -> str:
    """Return PostgreSQL's array literal; nested lists are further dimensions."""
    return "{" + inner.delimiter.join(_element(value, inner) for value in values) + "}"


def _element(value: Any, form: TextForm) -> str:
    if value is None and form.schema is not None:
        value = form.schema.default
        if value is None and not form.schema.optional:
            raise DataError("null for an element of an array that is required and has no default")
    if value is None:
        return "NULL"
    text = _text(value, form)
    if isinstance(value, list | tuple):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: Any, schema: Schema | None) -> str:
    if schema is None and isinstance(value, Struct):
        schema = value.schema
    if schema is None:
        return jackson.dumps(value).decode()
    return texts_of([value], schema)[0].decode()


def escaped(column: Texts) -> list[str]:
    """Escape the texts as fields of a line."""
    has_null = None in column
    joined = "".join(text for text in column if text is not None) if has_null else "".join(cast("list[str]", column))
    needed = [pair for pair in _ESCAPED if pair[0] in joined]
    if not needed:
        return [_NULL if text is None else text for text in column] if has_null else cast("list[str]", column)
    return [_NULL if text is None else _replaced(text, needed) for text in column]


def _replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    for plain, written in pairs:
        text = text.replace(plain, written)
    return text


def lines(columns: Sequence[Texts]) -> bytes:
    """Return the data of a COPY: a line for each place of the columns, which have equal length, at least one.

    A lone surrogate, which UTF-8 cannot encode, is written so that the server refuses it.
    """
    data = _plain_lines(columns)
    if data is None:  # a null, or a character to escape
        data = _joined([escaped(column) for column in columns])
    return data.encode("utf-8", "surrogatepass")


def _joined(columns: Sequence[Sequence[str | None]]) -> str:
    """Join the columns to lines. Raises TypeError for a null."""
    rows = map("\t".join, cast("Iterator[list[str]]", zip(*columns, strict=True)))
    return "\n".join(rows) + "\n"


def _plain_lines(columns: Sequence[Texts]) -> str | None:
    """Return the lines if the texts have nothing to escape, else None. Checking all lines at once takes a third of the
    time of checking each column.
    """
    rows, nulls = len(columns[0]), 0
    try:
        data = _joined(columns)
    except TypeError:
        filled: list[Texts] = []
        for column in columns:
            if not are_texts(column):
                nulls += column.count(None)
                column = [_NULL if text is None else text for text in column]
            filled.append(column)
        data = _joined(filled)
    is_plain = data.count("\n") == rows and data.count("\t") == rows * (len(columns) - 1)
    return data if is_plain and data.count("\\") == nulls and "\r" not in data else None
