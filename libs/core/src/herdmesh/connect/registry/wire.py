"""Wire format of registered schemas: one zero byte, the schema's id in four bytes (big endian), the payload.

Owns these five bytes. Source: Confluent's `AbstractKafkaSchemaSerDe`, "Wire format" in its documentation.

Invariant: `schema_id_of(frame(id) + payload)` is the id, and the payload begins at `HEAD_BYTES`.
"""

from __future__ import annotations

import struct

from herdmesh.connect.errors import DataError

HEAD_BYTES = 5
_head = struct.Struct(">bI")


def frame(schema_id: int) -> bytes:
    """The bytes before a payload."""
    return _head.pack(0, schema_id)


def schema_id_of(data: bytes) -> int:
    """The id before a payload. Raises DataError when the bytes do not come from a registry's serializer."""
    if len(data) < HEAD_BYTES:
        raise DataError(
            f"No schema id: {len(data)} bytes, the registry's wire format has at least {HEAD_BYTES}. "
            "Was this written without a schema registry? Use the converter it was written with."
        )
    magic, schema_id = _head.unpack_from(data)
    if magic:
        raise DataError(
            f"Unknown magic byte {magic & 0xFF}: the registry's wire format begins with 0. "
            "Was this written without a schema registry? Use the converter it was written with."
        )
    return schema_id
