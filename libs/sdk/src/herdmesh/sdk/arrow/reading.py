"""The conversion from Arrow: a RecordBatch as records of a source.

Owns the Connect schema for each Arrow type, and the reading of values.

Invariant: no value is changed; a value without an exact form in Connect is refused, and the error names its column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import DAY_MS
from herdmesh.connect.model import (
    DATE,
    TIME,
    TIMESTAMP,
    JavaDate,
    LazyColumn,
    Schema,
    Struct,
    StructColumn,
    date_schema,
    decimal_schema,
    map_key,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.spi import SourceBatch

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements."""
_PLAIN: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (pa.types.is_int8, "INT8"),
    (pa.types.is_int16, "INT16"),
    (pa.types.is_int32, "INT32"),
    (pa.types.is_int64, "INT64"),
    (pa.types.is_uint8, "INT16"),
    (pa.types.is_uint16, "INT32"),
    (pa.types.is_uint32, "INT64"),
    (pa.types.is_float16, "FLOAT32"),
    (pa.types.is_float32, "FLOAT32"),
    (pa.types.is_float64, "FLOAT64"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_string_view, "STRING"),
    (pa.types.is_binary, "BYTES"),
    (pa.types.is_large_binary, "BYTES"),
    (pa.types.is_binary_view, "BYTES"),
    (pa.types.is_fixed_size_binary, "BYTES"),
)
_LOGICAL: Final = frozenset((DATE, TIME, TIMESTAMP))


def arrow_source_batch(
    topic: str,
    rows: pyarrow.RecordBatch,
    source_partition: Mapping[str, Any] | None,
    source_offset: Mapping[str, Any] | None,
    *,
    key: str = "",
    partition: int | None = None,
    name: str | None = None,
) -> SourceBatch:
    """A batch with one struct for each row. The data stays in columns unless a step of the chain reads the structs.

    Args:
        source_offset: the source's offset after the last row.
        key: column whose values are also the records' keys; "" = no keys.
        partition: Kafka partition, None = the producer chooses by key.
        name: of the struct schema, for registries.

    Raises:
        DataError: a column without an exact form in Connect; the error names it.
    """
    schema = connect_schema(rows.schema, name)
    columns = [
        LazyColumn(range(rows.num_rows), _reader(rows.column(at), field.name, field.schema))
        for at, field in enumerate(schema.fields)
    ]
    for at, field in enumerate(schema.fields):
        if rows.column(at).null_count and not field.schema.optional:
            raise DataError(f"column {field.name} has nulls, and its schema allows none")
        _check_exact(rows.column(at), field.name)
    keys: Sequence[Any] = ()
    key_schema = None
    if key:
        found = schema.field(key)
        if found is None:
            raise DataError(f"no column {key} for the keys; there are: {', '.join(schema.places)}")
        keys, key_schema = columns[found.index], found.schema
    values = StructColumn(schema, columns, rows.num_rows)
    return SourceBatch(
        topic, values, source_partition, source_offset, keys=keys, key_schema=key_schema, value_schema=schema,
        partition=partition,
    )  # fmt: skip


def connect_schema(schema: pyarrow.Schema, name: str | None = None) -> Schema:
    """The struct schema of rows of this schema; a nullable column is optional.

    Raises:
        DataError: a column without a form in Connect; the error names it.
    """
    columns: list[Any] = list(schema)
    names = [one.name for one in columns]
    if len(set(names)) < len(names):
        raise DataError(f"two columns of one name, and a struct has one field of each: {', '.join(names)}")
    fields = [(one.name, _schema_of(one.type, one.nullable, one.name)) for one in columns]
    return Schema("STRUCT", name=name, fields=fields)


def _of(schema: Schema | None) -> Schema:
    if schema is None:
        raise DataError("an array or a map without a schema for its elements has no Arrow type")
    return schema


def _schema_of(kind: Any, optional: bool, where: str) -> Schema:
    types = pa.types
    for is_kind, name in _PLAIN:
        if is_kind(kind):
            return Schema(name, optional)
    if types.is_decimal(kind):
        return decimal_schema(kind.scale, optional=optional)
    if types.is_date(kind):
        return date_schema(optional=optional)
    if types.is_time(kind):
        return time_schema(optional=optional)
    if types.is_timestamp(kind):
        return timestamp_schema(optional=optional)
    if types.is_dictionary(kind):
        return _schema_of(kind.value_type, optional, where)
    if types.is_null(kind):
        return Schema("STRING", optional=True)
    if _is_list(kind):
        return Schema("ARRAY", optional, value_schema=_schema_of(kind.value_type, kind.value_field.nullable, where))
    if types.is_map(kind):
        return Schema(
            "MAP", optional,
            key_schema=_schema_of(kind.key_type, False, where),
            value_schema=_schema_of(kind.item_type, kind.item_field.nullable, where),
        )  # fmt: skip
    if types.is_struct(kind):
        members: list[Any] = list(kind)
        fields = [(one.name, _schema_of(one.type, one.nullable, f"{where}.{one.name}")) for one in members]
        return Schema("STRUCT", optional, fields=fields)
    raise DataError(f"column {where}: Connect has no type for the Arrow type {kind}; cast it to another")


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _reader(array: Any, where: str, schema: Schema) -> Callable[[Sequence[int]], list[Any]]:
    return lambda _places: _items(array, schema, where)


def _check_exact(array: Any, where: str) -> None:
    """Refuse now all values that `_items` would refuse later, because only now can the author fix them."""
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date64(kind):
        _as_milliseconds(array, where)
    elif pa.types.is_struct(kind):
        for at, member in enumerate(kind):
            _check_exact(array.field(at), f"{where}.{member.name}")
    elif _is_list(kind):
        _check_exact(array.flatten(), where)
    elif pa.types.is_map(kind):
        _check_exact(_entries(array).flatten(), where)


def _items(array: Any, schema: Schema, where: str) -> list[Any]:
    """The values of an array in Connect's types."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _items(array.dictionary_decode(), schema, where)
    if schema.name in _LOGICAL:
        return _dates(_as_milliseconds(array, where))
    if schema.type == "STRUCT":
        members = [_items(array.field(one.index), one.schema, f"{where}.{one.name}") for one in schema.fields]
        rows = zip(*members, strict=True) if members else [()] * len(array)
        present = array.is_valid().to_pylist()
        return [Struct(schema, list(row)) if there else None for row, there in zip(rows, present, strict=True)]
    if schema.type == "ARRAY":
        return _lists(array, _of(schema.value_schema), where)
    if schema.type == "MAP":
        key, value = _of(schema.key_schema), _of(schema.value_schema)
        entry = Schema("STRUCT", fields=[("key", key), ("value", value)])
        made = _lists(_entries(array), entry, where)
        return [None if one is None else {map_key(item.values[0]): item.values[1] for item in one} for one in made]
    return array.to_pylist()


def _lists(array: Any, element: Schema, where: str) -> list[Any]:
    items = _items(array.flatten(), element, where)
    made: list[Any] = []
    begin = 0
    for length in _lengths(array):
        if length is None:
            made.append(None)
            continue
        made.append(items[begin : begin + length])
        begin += length
    return made


def _lengths(array: Any) -> list[int | None]:
    import pyarrow.compute

    compute: Any = pyarrow.compute
    return compute.list_value_length(array).to_pylist()


def _entries(array: Any) -> Any:
    """The entries of a map as a list."""
    kind = array.type
    entry = pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])
    return array.cast(pa.list_(entry))


def _as_milliseconds(array: Any, where: str) -> Any:
    """Dates, times and timestamps as int64: milliseconds since the epoch, or of the day."""
    kind, milliseconds = array.type, pa.int64()
    try:
        if pa.types.is_date32(kind):
            days = array.cast(pa.int32()).to_pylist()
            return pa.array([None if day is None else day * DAY_MS for day in days], milliseconds)
        if pa.types.is_date64(kind):
            whole = array.cast(pa.date32())
            if not whole.cast(kind).equals(array):
                raise DataError(f"column {where}: a date with a time in it; cast it to a timestamp")
            return array.cast(milliseconds)
        if pa.types.is_time(kind):
            return array.cast(pa.time32("ms")).cast(pa.int32()).cast(milliseconds)
        return array.cast(pa.timestamp("ms", kind.tz)).cast(milliseconds)
    except pa.ArrowInvalid as error:
        raise DataError(f"column {where}: {error}; Connect knows milliseconds: round it yourself") from error


def _dates(milliseconds: Any) -> list[JavaDate | None]:
    return [None if one is None else JavaDate(one) for one in milliseconds.to_pylist()]
