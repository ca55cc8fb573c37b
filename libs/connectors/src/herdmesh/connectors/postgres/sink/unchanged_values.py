"""Recognition of placeholders of unchanged values in rows, by their columns' schemas.

Owns recognizing them. The placeholder: `unchanged_placeholder`. A sink leaves such a column of its row unchanged.

The cost is one search of each column that can have a placeholder, at the speed of C: a hundredth of a millisecond or
two for a thousand texts. Columns of single numbers, dates and booleans never have one.

Invariant: a value counts as a placeholder only if it equals the placeholder of a column with its schema, or a
schemaless value that a converter made of such a placeholder.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any, Final, cast

from herdmesh.connect.java import wrap_int64
from herdmesh.connect.model import FLOAT64
from herdmesh.connectors.postgres.unchanged_placeholder import Placeholder
from herdmesh.sdk import Schema

Found = dict[tuple[int, ...], list[int]]
"""Rows by their unchanged columns."""
_NUMBERS: Final = frozenset((float, int, NoneType))
_SCALES: Final = 100
"""Number of scales, from 0, of decimals that are written as JSON numbers."""
_NUMBER_BYTES_MIN: Final = 16
_TEXTS: Final = frozenset((str, NoneType))
_POINT: Final = ("x", "y", "wkb", "srid")


class Unchanged:
    """Recognizes one placeholder."""

    def __init__(self, configured: str) -> None:
        self._placeholder = placeholder = Placeholder(configured)
        raw = placeholder.raw
        #: as texts: the placeholder, that of an hstore, and the results of binary.handling.mode and JSON for bytes.
        self._texts = list(dict.fromkeys((
            placeholder.text, placeholder.hstore, base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode(), raw.hex(),
        )))  # fmt: skip
        self._set_of_texts = frozenset(self._texts)
        self._by_schema: dict[Schema, list[Any]] = {}
        self._numbers = self._schemaless_numbers()
        self._schemaless = self._schemaless_by_type()

    def found(self, schemas: Sequence[Schema | None], columns: Sequence[Sequence[Any]], start: int) -> Found | None:
        """Return the rows with placeholders, and the rows without (under the empty tuple), each in order; None = no row
        has one. Columns before `start` are skipped.
        """
        places: dict[int, list[int]] = {}
        for at in range(start, len(columns)):
            column = columns[at]
            placeholders = self._of(schemas[at], column)
            if placeholders is self._texts and self._has_no_text(column):
                continue
            for placeholder in placeholders:
                if placeholder in column:
                    for row, value in enumerate(column):
                        if value == placeholder:
                            places.setdefault(row, []).append(at)
        if not places:
            return None
        found: Found = {}
        for row in range(len(columns[start])):
            found.setdefault(tuple(places.get(row, ())), []).append(row)
        return found

    def _has_no_text(self, column: Sequence[Any]) -> bool:
        """Return whether none of the texts is in the column, in
        half the time of a search for each; False = unknown.
        """
        try:
            return self._set_of_texts.isdisjoint(column)
        except TypeError:  # a value that does not fit the schema, and is refused later
            return False

    def _of(self, schema: Schema | None, column: Sequence[Any]) -> Sequence[Any]:
        if schema is None:
            kinds = set(map(type, column))
            if kinds <= _TEXTS:
                return self._texts
            if float in kinds and kinds <= _NUMBERS:
                return list(self._numbers.intersection(column))
            found = [one for kind in kinds for one in self._schemaless.get(kind, ())]
            return [*found, *self._lists_of_numbers(column)] if list in kinds else found
        known = self._by_schema.get(schema)
        if known is None:
            known = self._by_schema[schema] = self._of_schema(schema)
        return known

    def _of_schema(self, schema: Schema) -> list[Any]:
        if schema.type == "STRING":
            return self._texts
        element = schema.value_schema if schema.type == "ARRAY" else None
        if element is not None and element.type == "STRING":
            return [[text] for text in self._texts]
        found = self._placeholder.of(schema)
        return [] if found is None else [found]

    def _schemaless_by_type(self) -> dict[type, list[Any]]:
        """Return the results of schemaless converters for placeholders:
        bytes and Decimals are Base64 in JSON, structs are maps.
        """
        raw = self._placeholder.raw
        encoded = base64.b64encode(raw).decode()
        decimal = {"scale": 0, "value": encoded}
        codes = [one - 256 if one > 127 else one for one in raw]
        points = [dict(zip(_POINT, self._point(float(one)), strict=True)) for one in raw]
        lists = [*([text] for text in self._texts), codes, list(raw), [bool(one & 1) for one in raw], [decimal], points]
        return {
            str: cast("list[Any]", self._texts),
            bytes: [raw],
            list: lists,
            dict: [decimal],
            float: [self._placeholder.of(FLOAT64)],
            int: [one for one in self._numbers if type(one) is int],
        }

    def _lists_of_numbers(self, column: Sequence[Any]) -> list[Any]:
        """Return the one-element lists that decimal.format=NUMERIC makes of an array of Decimals."""
        lists: list[list[Any]] = [one for one in column if type(one) is list]
        return [one for one in lists if len(one) == 1 and type(one[0]) in _NUMBERS and one[0] in self._numbers][:1]

    def _schemaless_numbers(self) -> frozenset[float]:
        """Return the results of decimal.format=NUMERIC for placeholders of Decimals: the
        FLOAT64 placeholder, and, unless the placeholder is so short that ordinary
        numbers may equal them, doubles by scale, and for integers the last 64 bits.
        """
        number, found = self._placeholder.number, {float(self._placeholder.of(FLOAT64))}
        if len(self._placeholder.raw) >= _NUMBER_BYTES_MIN:
            found |= {float(f"{number}e-{scale}") for scale in range(_SCALES)} - {math.inf, -math.inf}
            found.add(wrap_int64(number))
        return frozenset(found)

    def _point(self, number: float) -> tuple[float, float, str, None]:
        return number, number, base64.b64encode(self._placeholder.point_bytes(number, number)).decode(), None
