"""The diagnosis of a failed batch: the first given item that is not a record, or has a field of a wrong type.

Owns the check of each record. The rules are in `engine.source.record_check`. Called only when a batch could not be
created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.spi import SourceBatch, shown
from herdmesh.engine.source import check_given


def iterated(given: Any) -> Iterator[Any]:
    """Iterate over the result of `poll_records`. Raises DataError when it is not an iterable of records."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise DataError(f"poll_records returned {shown(given)}: return a list of SourceRecord, or None for nothing")
    return iter(cast("Iterable[Any]", given))


def check_records(given: Sequence[Any], kinds: tuple[type, ...]) -> None:
    """Raise DataError for the first item that is of none of these types, or has a field of a wrong type."""
    for one in given:
        if not isinstance(one, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise DataError(f"the task gave {shown(one)} in the place of a record: give a {names}")
        headers: Any = one.headers
        batch = SourceBatch(
            one.topic,
            () if one.topic is None and one.headers == () and not hasattr(one, "value") else (one,),
            one.source_partition,
            one.source_offset,
            timestamps_ms=() if one.timestamp_ms is None else (one.timestamp_ms,),
            key_schema=one.key_schema,
            value_schema=one.value_schema,
            partition=one.partition,
            headers=() if headers is None else (headers,),
        )
        if batch.values:
            check_given(batch, "SourceRecord")
