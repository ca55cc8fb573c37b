"""Random Connect schemas with values that fit them, and converters over a fake registry; for the tests of each format.

`leaves` are the schemas without inner schemas that every format can write.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zlib import crc32

from hypothesis import HealthCheck
from hypothesis import strategies as st

from herdmesh.connect.converters import make_converter
from herdmesh.connect.converters.base import Converter
from herdmesh.connect.json_text.record_json import schema_to
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)

#: One registry serves all examples.
EXAMPLES: Any = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
}
Typed = tuple[Schema, st.SearchStrategy[Any]]
_INTEGERS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
LEAVES: list[Typed] = [
    *((schema, st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)) for schema, bits in _INTEGERS.items()),
    (BOOLEAN, st.booleans()), (STRING, st.text(max_size=5)), (BYTES, st.binary(max_size=5)),
    (FLOAT64, st.floats(allow_nan=False, allow_infinity=False)),
    (FLOAT32, st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (decimal_schema(2), st.integers(-(10**12), 10**12).map(lambda n: Decimal(n).scaleb(-2))),
    (date_schema(), st.integers(-9999, 9999).map(lambda n: JavaDate(n * 86_400_000))),
    (time_schema(), st.integers(0, 86_399_999).map(JavaDate)),
    (timestamp_schema(), st.integers(-(2**40), 2**40).map(JavaDate)),
]  # fmt: skip


def typed(*, other_keys: bool = True, of_protobuf: bool = False, nulls: bool = True) -> st.SearchStrategy[Typed]:
    """A schema and its values; `other_keys` for maps with keys that are no strings, `of_protobuf` without null in a
    list and with each list or map within another in a struct, as Protobuf requires.
    """
    keys = [one for one in LEAVES if one[0].type not in ("FLOAT32", "FLOAT64")] if other_keys else [LEAVES[5]]

    def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
        return _nested(inner, inner | inner.map(optional) if nulls else inner, keys, of_protobuf=of_protobuf)

    return st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)


def structs(parts: list[Typed]) -> Typed:
    """A struct of these parts."""
    schema = Schema("STRUCT", fields=[(f"f{at}", one) for at, (one, _) in enumerate(parts)])
    return schema, st.tuples(*(values for _, values in parts)).map(lambda v: Struct(schema, list(v)))


def optional(one: Typed) -> Typed:
    """The same schema as optional, with null among its values."""
    schema = one[0].replace(optional=True)
    values = one[1].map(lambda v: Struct(schema, v.values)) if schema.type == "STRUCT" else one[1]
    return schema, st.none() | values


def _nested(
    required: st.SearchStrategy[Typed], inner: st.SearchStrategy[Typed], keys: list[Typed], *, of_protobuf: bool
) -> st.SearchStrategy[Typed]:
    """Structs, lists and maps of `inner`; lists of `required` for Protobuf."""

    def item(one: Typed) -> Typed:
        return structs([one]) if of_protobuf and one[0].type in ("ARRAY", "MAP") else one

    def array(one: Typed) -> Typed:
        return Schema("ARRAY", value_schema=one[0]), st.lists(one[1], max_size=3)

    def mapped(pair: tuple[Typed, Typed]) -> Typed:
        key, value = pair
        schema = Schema("MAP", key_schema=key[0], value_schema=value[0])
        if key[0].type != "STRING":  # Avro writes these as records, and two that differ need two names
            schema = schema.replace(name=f"m{crc32(repr(schema_to(schema)).encode())}")
        return schema, st.dictionaries(key[1], value[1], max_size=3)

    return (
        st.lists(inner, min_size=1, max_size=3).map(structs)
        | (required if of_protobuf else inner).map(item).map(array)
        | st.tuples(st.sampled_from(keys), inner.map(item)).map(mapped)
    )


def plain(value: Any) -> Any:
    """The value without its schema: a struct as the list of its values."""
    if isinstance(value, Struct):
        return [plain(one) for one in value.values]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [plain(one) for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def converter(kind: str, url: str, *, role: Any = "value", **more: Any) -> Converter:
    """The converter of that name; options with underscores for dots."""
    field = f"{role}.converter"
    given = {"schema.registry.url": url, "max.retries": "0", **more}
    options = {f"{field}.{key.replace('_', '.')}": value for key, value in given.items()}
    return make_converter(field, {field: kind, **options}, role=role)
