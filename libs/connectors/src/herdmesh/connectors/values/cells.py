"""CSV cells of values with a schema: a column for each field.

Owns the form of a cell. Numbers, booleans and texts are unchanged; the rest is as in JSON (`payloads`).

    Decimal              all its digits, without an exponent
    Date                 days since 1970; Time: milliseconds of the day; Timestamp: milliseconds since 1970
    bytes                Base64
    array, map, struct   JSON

Invariant: a `pa.string` column is to be quoted, a `pa.large_string` column has finished cells.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import pyarrow

from herdmesh.connect.model import DECIMAL, TEMPORAL, to_internal
from herdmesh.connectors.values.payloads import Payloads, payloads
from herdmesh.sdk import ConnectError, JavaDate, Schema, Struct
from herdmesh.sdk.arrow.writing import ArrowWriter, Column, ColumnCompiler, Make

pa: Any = pyarrow
"""Untyped: the stubs type an array by its elements."""
_NESTED: dict[str, type] = {"ARRAY": list, "MAP": dict, "STRUCT": Struct}


@lru_cache(maxsize=1_000)
def cell_writer(schema: Schema, *, defaults: bool = True) -> ArrowWriter:
    """Return the writer of a schema's columns; create it once for each schema."""
    return ArrowWriter(schema, _Cells(defaults=defaults))


class _Cells(ColumnCompiler):
    def __init__(self, *, defaults: bool) -> None:
        super().__init__(defaults=defaults)
        self._payloads = payloads(defaults=defaults)

    def plain(self, schema: Schema, where: str) -> tuple[type, Make]:
        if schema.name == DECIMAL:
            return Decimal, _decimals
        if schema.name in TEMPORAL:
            return JavaDate, _temporals(schema)
        kind = _NESTED.get(schema.type)
        if kind is not None:
            return kind, _nested(schema, self._payloads)
        made, make = super().plain(schema, where)
        return made, _base64(make) if schema.type == "BYTES" else make


def _decimals(values: Column) -> Any:
    return pa.array([None if value is None else format(value, "f") for value in values], pa.large_string())


def _temporals(schema: Schema) -> Make:
    def temporals(values: Column) -> Any:
        try:
            return pa.array([None if value is None else to_internal(schema, value) for value in values], pa.int64())
        except ConnectError as error:
            raise ValueError(error) from error

    return temporals


def _nested(schema: Schema, writer: Payloads) -> Make:
    def nested(values: Column) -> Any:
        present = [value for value in values if value is not None]
        try:
            texts = iter(writer.texts(present, schema) if present else ())
        except ConnectError as error:
            raise ValueError(error) from error
        return pa.array([None if value is None else next(texts).decode() for value in values], pa.string())

    return nested


def _base64(make: Make) -> Make:
    def encoded(values: Column) -> Any:
        data = cast("list[bytes | None]", make(values).to_pylist())
        return pa.array([None if one is None else base64.b64encode(one).decode() for one in data], pa.string())

    return encoded
