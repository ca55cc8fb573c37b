"""Check of a record that a source task returned, made only after sending it failed: names the field that is wrong.

Owns the rules of types and their error texts. Not called for a batch that was sent: records are examined one by one
only if the run ends anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, NoReturn

from herdmesh.connect.config import escaped
from herdmesh.connect.errors import DataError
from herdmesh.connect.model import Header, Schema
from herdmesh.connect.spi import SourceBatch, shown
from herdmesh.connect.topics import offsets_topic

_Fault = tuple[str, Any, str]
"""A field, its value, and the required type."""


def check_given(batch: SourceBatch, owner: str = "SourceBatch") -> None:
    """Raise DataError for the first field of a batch that cannot become part of a Kafka record; `owner` has the
    field."""
    for field, value, wanted in _faults(batch):
        refuse(owner, field, value, wanted, batch)


def refuse(owner: str, field: str, value: Any, wanted: str, at: Any) -> NoReturn:
    """Raise the DataError that names a field, and the record by its place in the source (`at` has its fields)."""
    raise DataError(
        f"{owner}.{field} is {shown(value)}: it must be {wanted}. The record has topic {shown(at.topic)}, source "
        f"partition {shown(at.source_partition)} and source offset {shown(at.source_offset)}"
    )


def _faults(batch: Any) -> Iterator[_Fault]:
    """Yield the faults of a batch. `batch`: declared as SourceBatch, but its fields may have any type."""
    if not isinstance(batch.topic, str) or (len(batch) and not batch.topic):
        yield "topic", batch.topic, "the name of a topic, as a string"
    if batch.partition is not None and not _is_whole(batch.partition):
        yield "partition", batch.partition, "a whole number, or None for the producer's choice"
    for field in ("key_schema", "value_schema"):
        schema = getattr(batch, field)
        if schema is not None and not isinstance(schema, Schema):
            yield field, schema, "a Schema, or None"
    for field in ("source_partition", "source_offset"):
        value: Any = getattr(batch, field)
        if value is not None and not isinstance(value, Mapping):
            yield field, value, "a dict, or None"
        elif why := _why_no_json(batch, field):
            yield field, value, f"a map of strings to primitives ({why})"
    yield from _columns(batch)


def _columns(batch: Any) -> Iterator[_Fault]:
    for field in ("keys", "timestamps_ms", "headers"):
        column: Any = getattr(batch, field)
        if not hasattr(column, "__len__"):
            yield field, column, "a sequence"
        elif len(column) not in (0, len(batch)):
            yield field, column, f"empty, or as long as the values, which are {len(batch)}"
    for time_ms in batch.timestamps_ms:
        if time_ms is not None and not _is_whole(time_ms):
            yield "timestamp_ms", time_ms, "milliseconds since 1970 as a whole number, or None"
    for headers in batch.headers:
        if isinstance(headers, str | bytes | Mapping) or not hasattr(headers, "__iter__"):
            yield "headers", headers, "a sequence of Header(key, value)"
            continue
        for one in headers:
            if not isinstance(one, Header):
                yield "headers", one, "a sequence of Header(key, value), and this is one of its members"
            elif type(key := one.key) not in (str, bytes):
                yield "headers", key, "a sequence of Header(key, value) with a string as key, and this is a key"


def _is_whole(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Integral)


def _why_no_json(batch: Any, field: str) -> str:
    try:
        offsets_topic.encode_value(getattr(batch, field))
    except Exception as error:  # noqa: BLE001 - any error is the reason
        return escaped(str(error)[:100])
    return ""
