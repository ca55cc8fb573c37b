"""Record format of the source offsets topic (docs/reference/connect/offsets-topic.md, section 1).

Owns keys `["connector",{partition}]`, offset values, and the rule for the types in both. Owns no log and no cache.

Invariant: the key's bytes identify a partition. The order of members counts, so `encode_key` keeps the order it is
given, and numbers are written as in Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import java_class, schema_type
from herdmesh.connect.topics.decoding import Undecodable

OffsetMap = Mapping[str, Any]

_PRIMITIVES = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES")


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The offset of one source partition; `offset` None is a reset (tombstone). A partition can be null (None)."""

    connector: str
    partition: OffsetMap | None
    offset: OffsetMap | None


def encode_key(connector: str, partition: OffsetMap | None) -> bytes:
    """The key's bytes. Raises DataError for a partition that Connect would refuse."""
    validate(partition)
    return jackson.dumps([connector, None if partition is None else dict(partition)])


def encode_value(offset: OffsetMap | None) -> bytes | None:
    """The value's bytes, None for a reset. Raises DataError for an offset that Connect would refuse."""
    validate(offset)
    return None if offset is None else jackson.dumps(dict(offset))


def encode(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    return encode_key(record.connector, record.partition), encode_value(record.offset)


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord | Undecodable:
    """Read one record. A key that is not `[name, partition]` is `Undecodable`; so is a value that is no offset."""
    parsed_key = decode_key(key)
    if isinstance(parsed_key, Undecodable):
        return parsed_key
    connector, partition = parsed_key
    try:
        return OffsetRecord(connector, partition, decode_value(value))
    except DataError as error:
        return Undecodable(str(error), "offset", connector)


def decode_key(key: bytes | None) -> tuple[str, OffsetMap | None] | Undecodable:
    """Connector and partition of a key (docs/reference/connect/offsets-topic.md, section 1.1)."""
    try:
        parsed = jackson.loads(key)
    except DataError as error:
        return Undecodable(str(error), "offset")
    if not isinstance(parsed, list):
        return Undecodable("the key is not a JSON array", "offset")
    parts = cast("list[Any]", parsed)
    if len(parts) != 2 or not isinstance(parts[0], str):
        return Undecodable("the key is not [connector name, partition]", "offset")
    if parts[1] is not None and not isinstance(parts[1], dict):
        return Undecodable("the partition in the key is not a JSON object", "offset", parts[0])
    return parts[0], cast("OffsetMap | None", parts[1])


def decode_value(value: bytes | None) -> OffsetMap | None:
    """The offset in a value; None when it was reset. Raises DataError for a value that Connect refuses."""
    offset = jackson.loads(value)
    validate(offset)
    return cast("OffsetMap | None", offset)


def validate(offset: Any) -> None:
    """Connect's rule for partitions and offsets: null, or a map of strings to primitives.

    Raises:
        DataError: with Connect's text.
    """
    if offset is None:
        return
    if not isinstance(offset, Mapping):
        raise DataError("Offsets must be specified as a Map")
    for key, value in cast("Mapping[Any, Any]", offset).items():
        if not isinstance(key, str):
            raise DataError("Offsets may only use String keys")
        if value is None:
            continue
        kind = schema_type(value)
        if kind is None:
            raise DataError(
                f"Offsets may only contain primitive types as values, but field {key} contains {java_class(value)}"
            )
        if kind not in _PRIMITIVES:
            raise DataError(f"Offsets may only contain primitive types as values, but field {key} contains {kind}")
