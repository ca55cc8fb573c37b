"""The conversion to Arrow: values of a sink as columns, typed by their schema.

Owns the Arrow type for each Connect schema, and the creation of columns: one writer is compiled for each schema, which
works column by column. Values without a schema get the types that Arrow infers.

    Decimal    decimal128(p, s), p from the schema's `connect.decimal.precision` or 38; decimal256(76, s) where a value
               of the column needs it. A negative scale is 0 there
    Date       date32; Time: time32(ms); Timestamp: timestamp(ms, UTC)
    null       the schema's default, unless `defaults` is false; every column is nullable, as a tombstone is all nulls

Invariant: a value is never changed: one that does not fit its schema, or Arrow's type, raises a DataError that names
the field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, cast

import pyarrow

from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import (
    DATE,
    DECIMAL,
    LOGICAL,
    TIME,
    TIMESTAMP,
    JavaDate,
    Schema,
    Struct,
    StructColumn,
    fits,
    java_class,
    java_text,
    logical,
)
from herdmesh.connect.spi import SinkBatch

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements."""
VALUE_COLUMN: Final = "value"
DECIMAL_DIGITS_MAX: Final = 76
"""Arrow's own limit; the limit of many readers (Spark) is 38."""
_DIGITS_128: Final = 38
_PRECISION: Final = "connect.decimal.precision"
_NULL: Final = type(None)
_ONLY_STRUCTS: Final = {Struct}
_ARROW: Final = {
    "INT8": pa.int8(), "INT16": pa.int16(), "INT32": pa.int32(), "INT64": pa.int64(), "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(), "BOOLEAN": pa.bool_(), "STRING": pa.string(), "BYTES": pa.binary(),
}  # fmt: skip
_KINDS: Final[dict[str, type]] = {
    "INT8": int, "INT16": int, "INT32": int, "INT64": int, "FLOAT32": float, "FLOAT64": float, "BOOLEAN": bool,
    "STRING": str, "BYTES": bytes, "ARRAY": list, "MAP": dict, "STRUCT": Struct,
}  # fmt: skip
_LOGICAL: Final = {DATE: pa.date32(), TIME: pa.time32("ms"), TIMESTAMP: pa.timestamp("ms", "UTC")}
_TAKEN_AS_WELL: Final[dict[Any, type]] = {pa.binary(): str, pa.float64(): bool}
"""Types whose values Arrow silently converts to another type: the bytes of a string, 1.0 to true."""
_REFUSED: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
Column = Sequence[Any]
Make = Callable[[Column], Any]
"""Creates an Arrow array from a column of values. Raises DataError."""
_schema_of, _values_of = attrgetter("schema"), attrgetter("values")


def to_arrow(batch: SinkBatch, *, defaults: bool = True) -> pyarrow.RecordBatch:
    """The values of a batch, one column for each field; one column `value` if they are neither structs nor maps.

    Under a schema, the types are the schema's. Without one they are inferred from the data, and a field missing in a
    map is null. A tombstone is a row of nulls; `batch.values` distinguishes it from other rows.

    Args:
        defaults: replace a null under a schema with a default by that default (`TaskContext.value_defaults`).

    Raises:
        DataError: a value that does not fit its schema or its Arrow type, or values without a schema that have no
            common type; the error names the field.
    """
    if batch.value_schema is None:
        return _found_columns(batch.values)
    return arrow_writer(batch.value_schema, defaults=defaults).rows(batch.values)


def arrow_schema(schema: Schema) -> pyarrow.DataType:
    """The Arrow type of a Connect schema. Raises DataError for a Decimal without a scale."""
    if schema.name == DECIMAL:
        return _decimal_type(schema)
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    match schema.type:
        case "ARRAY":
            return pa.list_(arrow_schema(_of(schema.value_schema)))
        case "MAP":
            return pa.map_(arrow_schema(_of(schema.key_schema)), arrow_schema(_of(schema.value_schema)))
        case "STRUCT":
            return pa.struct([pa.field(one.name, arrow_schema(one.schema)) for one in schema.fields])
        case plain:
            return _ARROW[plain]


class ArrowWriter:
    """Creates columns from values of one schema."""

    def __init__(self, schema: Schema, compiler: ColumnCompiler) -> None:
        """Compile the writer. Raises DataError when the schema has no Arrow type."""
        self._schema = schema
        self._is_struct = is_struct(schema)
        columns = [(one.name, one.schema) for one in schema.fields] if self._is_struct else [(VALUE_COLUMN, schema)]
        self._names = [column_name(name) for name, _ in columns]
        self._makes = [compiler.column(one, name) for name, one in columns]

    def columns(self, values: Column) -> dict[str, Any]:
        """An array for each field, or one `value`; no array for a struct without fields. Raises DataError with the
        field.
        """
        if not self._is_struct:
            return {VALUE_COLUMN: self._makes[0](values)}
        present, places = _present(values)
        columns = _fields(self._schema, present, VALUE_COLUMN)
        arrays = [make(column) for make, column in zip(self._makes, columns, strict=True)]
        if places is not None:
            arrays = [array.take(places) for array in arrays]
        return dict(zip(self._names, arrays, strict=True))

    def rows(self, values: Column) -> pyarrow.RecordBatch:
        """The same columns as a RecordBatch; a struct without fields gives one column `value` of nulls. Raises as
        `columns`.
        """
        arrays = self.columns(values) or {VALUE_COLUMN: pa.nulls(len(values), pa.string())}
        return pa.record_batch(list(arrays.values()), names=list(arrays))


def column_name(key: Any) -> str:
    """The column name for a field, or for a key of a map without a schema. Raises DataError for an unpaired surrogate,
    which Arrow's names (UTF-8) cannot represent.
    """
    name = key if isinstance(key, str) else java_text(key)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the field name {name!r} has half of a surrogate pair: rename it (ReplaceField)") from error
    return name


def is_struct(schema: Schema) -> bool:
    """Whether values under the schema have fields."""
    return schema.type == "STRUCT" and schema.name not in LOGICAL


@lru_cache(maxsize=1_000)
def arrow_writer(schema: Schema, *, defaults: bool = True, digits_max: int = DECIMAL_DIGITS_MAX) -> ArrowWriter:
    """The writer of a schema, cached. Raises as `ArrowWriter`."""
    return ArrowWriter(schema, ColumnCompiler(defaults=defaults, digits_max=digits_max))


class ColumnCompiler:
    """Compiles functions that create columns. It handles nulls, defaults and types that do not fit; `plain`, which a
    subclass may override, determines the array of all other values.
    """

    def __init__(self, *, defaults: bool = True, digits_max: int = DECIMAL_DIGITS_MAX) -> None:
        self._defaults = defaults
        self._digits_max = digits_max

    def column(self, schema: Schema, where: str) -> Make:
        """The function for a position that may have nulls. `where`: the field's name, for errors. Raises DataError when
        the schema has no Arrow type.
        """
        kind, make = self.plain(schema, where)
        only, with_null = {kind}, {kind, _NULL}
        default = schema.default if self._defaults else None

        def column(values: Column) -> Any:
            kinds = {Struct} if isinstance(values, StructColumn) else set(map(type, values))
            if kinds != only and kinds:
                if _NULL in kinds:
                    if default is not None:
                        values = [default if value is None else value for value in values]
                    elif not schema.optional:
                        raise DataError(f"field {where}: null, and its schema is not optional and has no default")
                if not kinds <= with_null:
                    _check(values, schema, where)
            try:
                return make(values)
            except _REFUSED as error:
                raise DataError(f"field {where}: a value that does not match {schema}: {error}") from error

        return column

    def plain(self, schema: Schema, where: str) -> tuple[type, Make]:
        """The usual Python type of the values, and a function that creates an array from values that fit, and nulls."""
        if schema.name == DECIMAL:
            return Decimal, self._decimals(schema, where)
        if schema.name == DATE:
            return JavaDate, _dates
        if schema.name == TIME:
            return JavaDate, _times
        if schema.name == TIMESTAMP:
            return JavaDate, lambda values: pa.array(values, _LOGICAL[TIMESTAMP])
        kind = schema.type
        match kind:
            case "STRING":
                return str, _texts
            case "ARRAY":
                return list, _lists(self.column(_of(schema.value_schema), where))
            case "MAP":
                key, value = _of(schema.key_schema), _of(schema.value_schema)
                return dict, _maps(self.column(key, where), self.column(value, where), where)
            case "STRUCT":
                fields = [(one.name, self.column(one.schema, f"{where}.{one.name}")) for one in schema.fields]
                return Struct, _structs(schema, fields, where)
            case _:
                arrow = _ARROW[kind]
                return _KINDS[kind], lambda values: pa.array(values, arrow)

    def _decimals(self, schema: Schema, where: str) -> Make:
        try:
            narrow = _decimal_type(schema, self._digits_max)
        except ConnectError as error:
            raise DataError(f"field {where}: {error}") from error
        widths = [narrow]
        scale = narrow.scale
        for digits, kind in ((_DIGITS_128, pa.decimal128), (DECIMAL_DIGITS_MAX, pa.decimal256)):
            if scale <= digits <= self._digits_max and digits > narrow.precision:
                widths.append(kind(digits, scale))

        def decimals(values: Column) -> Any:
            for width in widths[:-1]:
                try:
                    return pa.array(values, width)
                except pa.ArrowInvalid:
                    continue
            try:
                return pa.array(values, widths[-1])
            except pa.ArrowInvalid as error:
                raise ValueError(f"no decimal of {widths[-1].precision} digits, {scale} of them decimals") from error

        return decimals


def _decimal_type(schema: Schema, digits_max: int = DECIMAL_DIGITS_MAX) -> Any:
    scale = max(0, logical.scale_of(schema))
    if scale > digits_max:
        raise DataError(f"a Decimal of scale {scale} has no place here: {digits_max} decimals at most")
    text = (schema.parameters or {}).get(_PRECISION, "")
    precision = int(text) if text.isdecimal() and len(text) < 4 else _DIGITS_128
    precision = max(1, min(precision, digits_max), scale)
    return pa.decimal128(precision, scale) if precision <= _DIGITS_128 else pa.decimal256(precision, scale)


def _of(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or a map without a schema for its elements has no Arrow type")
    return schema


def _check(values: Column, schema: Schema, where: str) -> None:
    """Check each value separately, because some have an unusual type."""
    for value in values:
        if value is not None and not fits(schema, value):
            raise DataError(
                f"field {where}: a value that does not match {schema}: an object of class {java_class(value)}"
            )


def _texts(values: Column) -> Any:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # an unpaired surrogate has no UTF-8 form: encode it as Java does
        texts = [None if value is None else value.encode("utf-8", "replace").decode() for value in values]
        return pa.array(texts, pa.string())


def _dates(values: Column) -> Any:
    try:
        days = [None if value is None else logical.days_of(value) for value in values]
    except DataError as error:
        raise ValueError(error) from error
    return pa.array(days, _LOGICAL[DATE])


def _times(values: Column) -> Any:
    for value in values:
        if value is not None and not 0 <= value < DAY_MS:
            raise ValueError(f"{int(value)} ms is not a time of day")
    return pa.array(values, _LOGICAL[TIME])


def _lists(make: Make) -> Make:
    """Convert all elements of all lists as one column."""

    def lists(values: Column) -> Any:
        flat = [item for items in values if items is not None for item in items]
        return pa.ListArray.from_arrays(_offsets(values), make(flat))

    return lists


def _maps(make_keys: Make, make_items: Make, where: str) -> Make:
    """Convert all keys of all maps as one column, all their values as another."""

    def maps(values: Column) -> Any:
        present = [members for members in values if members is not None]
        keys = make_keys([name for members in present for name in members])
        if keys.null_count:
            raise DataError(f"field {where}: a map has null for a key")
        items = make_items([item for members in present for item in members.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items)

    return maps


def _offsets(values: Column) -> Any:
    """Offset of each list in the column of all elements; null where there is no list."""
    offsets: list[int | None] = []
    end = 0
    for items in values:
        offsets.append(None if items is None else end)
        end += 0 if items is None else len(items)
    offsets.append(end)
    return pa.array(offsets, pa.int32())


def _structs(schema: Schema, fields: Sequence[tuple[str, Make]], where: str) -> Make:
    """Convert structs field by field."""
    for name, _ in fields:
        column_name(name)

    def structs(values: Column) -> Any:
        present, places = _present(values)
        if not fields:
            return pa.array([None if value is None else {} for value in values], pa.struct([]))
        columns = _fields(schema, present, where)
        arrays = [make(column) for (_, make), column in zip(fields, columns, strict=True)]
        array = pa.StructArray.from_arrays(
            arrays, fields=[pa.field(name, array.type) for (name, _), array in zip(fields, arrays, strict=True)]
        )
        return array if places is None else array.take(places)

    return structs


def _present(values: Column) -> tuple[Column, Any]:
    """The structs that are not null, and, if some are null, the index of each value among them."""
    if isinstance(values, StructColumn) or _NULL not in set(map(type, values)):
        return values, None
    present = [value for value in values if value is not None]
    count = iter(range(len(present)))
    return present, pa.array([None if value is None else next(count) for value in values], pa.int64())


def _fields(schema: Schema, structs: Column, where: str) -> Sequence[Column]:
    """The columns of the fields of structs, none of them null. Raises DataError for a value that is not a struct of the
    schema.
    """
    if isinstance(structs, StructColumn) and structs.schema is schema and structs.fields is not None:
        return structs.fields
    if not len(structs):
        return [()] * len(schema.fields)
    # Equal schemas count as the same; `count` compares by identity first.
    if set(map(type, structs)) != _ONLY_STRUCTS or list(map(_schema_of, structs)).count(schema) != len(structs):
        raise DataError(f"field {where}: a value that is not a struct of {schema}")
    return list(zip(*map(_values_of, structs), strict=True))


def _found_columns(values: Column) -> pyarrow.RecordBatch:
    if not all(value is None or isinstance(value, dict) for value in values):
        return pa.record_batch([_guessed(values, VALUE_COLUMN)], names=[VALUE_COLUMN])
    rows = [cast("dict[str, Any]", value or {}) for value in values]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    names = list(map(column_name, keys))
    arrays = [_guessed([row.get(key) for row in rows], name) for key, name in zip(keys, names, strict=True)]
    if not names:
        return pa.record_batch([pa.nulls(len(rows))], names=[VALUE_COLUMN])
    return pa.record_batch(arrays, names=names)


def _guessed(values: Column, where: str) -> Any:
    try:
        array = pa.array(list(values))
    except _REFUSED as error:
        raise DataError(f"field {where}: its values have no type in common ({error}); give them a schema") from error
    taken_as_well = _TAKEN_AS_WELL.get(array.type)
    if taken_as_well is not None and taken_as_well in map(type, values):
        raise DataError(f"field {where}: its values have no type in common ({array.type} and {taken_as_well.__name__})")
    return array
