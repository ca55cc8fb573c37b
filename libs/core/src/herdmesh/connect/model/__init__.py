"""Connect's data model: schemas, values, headers, records, logical types, and the columns that a batch keeps them in.

Owns the types, the check that a value fits its schema, and the Java names and texts of values. Does not convert bytes
(`converters`), transform records (`transforms`) or read a config.

Invariant: imports `java` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.model.checks import BITS as BITS
    from herdmesh.connect.model.checks import all_fit as all_fit
    from herdmesh.connect.model.checks import check_struct as check_struct
    from herdmesh.connect.model.checks import check_value as check_value
    from herdmesh.connect.model.checks import fits as fits
    from herdmesh.connect.model.data import NO_TIMESTAMP_MS as NO_TIMESTAMP_MS
    from herdmesh.connect.model.data import Batch as Batch
    from herdmesh.connect.model.data import BigInteger as BigInteger
    from herdmesh.connect.model.data import ConnectRecord as ConnectRecord
    from herdmesh.connect.model.data import Float32 as Float32
    from herdmesh.connect.model.data import Float64 as Float64
    from herdmesh.connect.model.data import Header as Header
    from herdmesh.connect.model.data import Int8 as Int8
    from herdmesh.connect.model.data import Int16 as Int16
    from herdmesh.connect.model.data import Int32 as Int32
    from herdmesh.connect.model.data import Int64 as Int64
    from herdmesh.connect.model.data import JavaDate as JavaDate
    from herdmesh.connect.model.data import Struct as Struct
    from herdmesh.connect.model.data import map_key as map_key
    from herdmesh.connect.model.headers import Headers as Headers
    from herdmesh.connect.model.java_values import decimal_text as decimal_text
    from herdmesh.connect.model.java_values import hash_map_order as hash_map_order
    from herdmesh.connect.model.java_values import java_class as java_class
    from herdmesh.connect.model.java_values import java_text as java_text
    from herdmesh.connect.model.java_values import schema_type as schema_type
    from herdmesh.connect.model.java_values import type_of as type_of
    from herdmesh.connect.model.java_values import utf8_text as utf8_text
    from herdmesh.connect.model.lazy_column import LazyColumn as LazyColumn
    from herdmesh.connect.model.logical import TEMPORAL as TEMPORAL
    from herdmesh.connect.model.logical import big_endian as big_endian
    from herdmesh.connect.model.logical import days_of as days_of
    from herdmesh.connect.model.logical import decimal_from_bytes as decimal_from_bytes
    from herdmesh.connect.model.logical import decimal_of as decimal_of
    from herdmesh.connect.model.logical import decimal_to_bytes as decimal_to_bytes
    from herdmesh.connect.model.logical import from_internal as from_internal
    from herdmesh.connect.model.logical import parts_of as parts_of
    from herdmesh.connect.model.logical import scale_of as scale_of
    from herdmesh.connect.model.logical import time_of as time_of
    from herdmesh.connect.model.logical import to_internal as to_internal
    from herdmesh.connect.model.packed_texts import Numbers as Numbers
    from herdmesh.connect.model.packed_texts import PackedBytes as PackedBytes
    from herdmesh.connect.model.packed_texts import PackedTexts as PackedTexts
    from herdmesh.connect.model.packed_texts import UnreadTexts as UnreadTexts
    from herdmesh.connect.model.packed_texts import is_utf8 as is_utf8
    from herdmesh.connect.model.schemas import BOOLEAN as BOOLEAN
    from herdmesh.connect.model.schemas import BYTES as BYTES
    from herdmesh.connect.model.schemas import DATE as DATE
    from herdmesh.connect.model.schemas import DECIMAL as DECIMAL
    from herdmesh.connect.model.schemas import FLOAT32 as FLOAT32
    from herdmesh.connect.model.schemas import FLOAT64 as FLOAT64
    from herdmesh.connect.model.schemas import FLOATS as FLOATS
    from herdmesh.connect.model.schemas import INT8 as INT8
    from herdmesh.connect.model.schemas import INT16 as INT16
    from herdmesh.connect.model.schemas import INT32 as INT32
    from herdmesh.connect.model.schemas import INT64 as INT64
    from herdmesh.connect.model.schemas import INTEGERS as INTEGERS
    from herdmesh.connect.model.schemas import LOGICAL as LOGICAL
    from herdmesh.connect.model.schemas import OPTIONAL_BOOLEAN as OPTIONAL_BOOLEAN
    from herdmesh.connect.model.schemas import OPTIONAL_BYTES as OPTIONAL_BYTES
    from herdmesh.connect.model.schemas import OPTIONAL_FLOAT32 as OPTIONAL_FLOAT32
    from herdmesh.connect.model.schemas import OPTIONAL_FLOAT64 as OPTIONAL_FLOAT64
    from herdmesh.connect.model.schemas import OPTIONAL_INT16 as OPTIONAL_INT16
    from herdmesh.connect.model.schemas import OPTIONAL_INT32 as OPTIONAL_INT32
    from herdmesh.connect.model.schemas import OPTIONAL_INT64 as OPTIONAL_INT64
    from herdmesh.connect.model.schemas import OPTIONAL_STRING as OPTIONAL_STRING
    from herdmesh.connect.model.schemas import PRIMITIVES as PRIMITIVES
    from herdmesh.connect.model.schemas import SCALE as SCALE
    from herdmesh.connect.model.schemas import STRING as STRING
    from herdmesh.connect.model.schemas import TIME as TIME
    from herdmesh.connect.model.schemas import TIMESTAMP as TIMESTAMP
    from herdmesh.connect.model.schemas import Field as Field
    from herdmesh.connect.model.schemas import Schema as Schema
    from herdmesh.connect.model.schemas import SchemaBuilder as SchemaBuilder
    from herdmesh.connect.model.schemas import SchemaType as SchemaType
    from herdmesh.connect.model.schemas import date_schema as date_schema
    from herdmesh.connect.model.schemas import decimal_schema as decimal_schema
    from herdmesh.connect.model.schemas import time_schema as time_schema
    from herdmesh.connect.model.schemas import timestamp_schema as timestamp_schema
    from herdmesh.connect.model.struct_column import StructColumn as StructColumn
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "checks": (
                "BITS",
                "all_fit",
                "check_struct",
                "check_value",
                "fits",
            ),
            "data": (
                "Batch",
                "BigInteger",
                "ConnectRecord",
                "Float32",
                "Float64",
                "Header",
                "Int16",
                "Int32",
                "Int64",
                "Int8",
                "JavaDate",
                "NO_TIMESTAMP_MS",
                "Struct",
                "map_key",
            ),
            "headers": ("Headers",),
            "java_values": (
                "decimal_text",
                "hash_map_order",
                "java_class",
                "java_text",
                "schema_type",
                "type_of",
                "utf8_text",
            ),
            "lazy_column": ("LazyColumn",),
            "logical": (
                "TEMPORAL",
                "big_endian",
                "days_of",
                "decimal_from_bytes",
                "decimal_of",
                "decimal_to_bytes",
                "from_internal",
                "parts_of",
                "scale_of",
                "time_of",
                "to_internal",
            ),
            "packed_texts": (
                "Numbers",
                "PackedBytes",
                "PackedTexts",
                "UnreadTexts",
                "is_utf8",
            ),
            "schemas": (
                "BOOLEAN",
                "BYTES",
                "DATE",
                "DECIMAL",
                "FLOAT32",
                "FLOAT64",
                "FLOATS",
                "Field",
                "INT16",
                "INT32",
                "INT64",
                "INT8",
                "INTEGERS",
                "LOGICAL",
                "OPTIONAL_BOOLEAN",
                "OPTIONAL_BYTES",
                "OPTIONAL_FLOAT32",
                "OPTIONAL_FLOAT64",
                "OPTIONAL_INT16",
                "OPTIONAL_INT32",
                "OPTIONAL_INT64",
                "OPTIONAL_STRING",
                "PRIMITIVES",
                "SCALE",
                "STRING",
                "Schema",
                "SchemaBuilder",
                "SchemaType",
                "TIME",
                "TIMESTAMP",
                "date_schema",
                "decimal_schema",
                "time_schema",
                "timestamp_schema",
            ),
            "struct_column": ("StructColumn",),
        },
    )
