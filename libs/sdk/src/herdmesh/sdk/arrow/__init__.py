"""Arrow input and output: a RecordBatch as records of a source, records of a sink as a RecordBatch.

Owns the mapping between Arrow's types and Connect's schemas: `reading` from Arrow, `writing` to it. Needs pyarrow
(`herdmesh-sdk[arrow]`), which `herdmesh.sdk` does not.

| Arrow | Connect |
|---|---|
| int8 to int64, uint8, uint16, uint32 | INT8 to INT64; an unsigned type becomes the next larger |
| float16, float32; float64 | FLOAT32; FLOAT64 |
| bool, string, binary (each kind of them) | BOOLEAN, STRING, BYTES |
| decimal(p, s) | Decimal with scale s |
| date, time, timestamp | Date, Time, Timestamp: whole milliseconds |
| list, map, struct | ARRAY, MAP, STRUCT |
| dictionary | the type of its values |
| null | optional STRING |

Invariant: no value is changed. A value without an exact form on the other side is refused; the error names its column.
"""

from __future__ import annotations

from herdmesh.sdk.arrow.reading import arrow_source_batch, connect_schema
from herdmesh.sdk.arrow.writing import arrow_schema, to_arrow

__all__ = ["arrow_schema", "arrow_source_batch", "connect_schema", "to_arrow"]
