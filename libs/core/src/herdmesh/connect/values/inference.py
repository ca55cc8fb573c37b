"""Schema inference for values without a schema (`Values.inferSchema`).

Owns the rule.

Invariant: a value with an inferred schema can be converted without naming one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from herdmesh.connect.errors import SchemaBuilderError
from herdmesh.connect.model import PRIMITIVES, Schema, Struct, schema_type


def infer_schema(value: Any) -> Schema | None:
    """The schema of a primitive, a struct, or a list or map whose elements have one type; None for others: dates,
    decimals, empty collections. The element schema is optional when an element is null. Raises SchemaBuilderError when
    all elements are null.
    """
    kind = schema_type(value)
    if isinstance(value, Struct):
        return value.schema
    if kind in PRIMITIVES:
        return Schema(kind)
    if isinstance(value, list | tuple) and value:
        element = _common(cast("list[Any]", value))
        return None if element is None else Schema("ARRAY", value_schema=element)
    if isinstance(value, dict) and value:
        members = cast("dict[Any, Any]", value)
        key, item = _common(members), _common(members.values())
        return None if key is None or item is None else Schema("MAP", key_schema=key, value_schema=item)
    return None


def _common(values: Iterable[Any]) -> Schema | None:
    optional, known = False, ""
    for value in values:
        if value is None:
            optional = True
            continue
        schema = infer_schema(value)
        if schema is None or (known and schema.type != known):
            return None
        known = schema.type
    if not known:
        raise SchemaBuilderError("type cannot be null")
    return Schema(known, optional)  # by the type alone, as in Connect: the elements of a list are not compared
