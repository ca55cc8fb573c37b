"""Random schemas and values of them, for the tests of converters.

Owns the hypothesis strategies. Owns no test. Invariant: a value drawn for a schema fits it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from herdmesh.connect.java.number_reading import float32
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.logical import DAY_MS
from herdmesh.connect.model.schemas import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Schema

TEXT = st.one_of(
    st.text(max_size=8), st.text('ab"\\/\n\x01\x7f\u2028é😀', max_size=6), st.text(st.characters(codec="utf-8"))
)
_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_PLAIN = ["INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64", "BOOLEAN", "STRING", "BYTES"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Schema:
    """Any schema a converter may get; defaults only on primitive schemas, and only ones that survive JSON."""
    nested = ["ARRAY", "MAP", "STRUCT", "STRUCT"] if depth else []
    kind = draw(st.sampled_from([*_PLAIN, "LOGICAL", *nested]))
    optional = draw(st.booleans())
    if kind == "LOGICAL":
        return draw(_logical(optional=optional))
    name = draw(st.none() | st.sampled_from(["n", "a.b", 'q"\U0001f600']))
    if kind == "ARRAY":
        return Schema("ARRAY", optional, name, value_schema=draw(schemas(depth - 1)))
    if kind == "MAP":
        key = draw(st.sampled_from([Schema("STRING"), Schema("STRING"), Schema("INT32"), Schema("BOOLEAN")]))
        return Schema("MAP", optional, name, key_schema=key, value_schema=draw(schemas(depth - 1)))
    if kind == "STRUCT":
        names = draw(st.lists(TEXT.filter(bool), max_size=4, unique=True))
        return Schema("STRUCT", optional, name, fields=[(field, draw(schemas(depth - 1))) for field in names])
    made = Schema(kind, optional, name, draw(st.none() | st.integers(0, 9)), draw(st.none() | TEXT))
    if draw(st.integers(0, 3)):
        return made
    return made.replace(default=draw(values(made.replace(optional=False), json_exact=True)))


@st.composite
def _logical(draw: st.DrawFn, *, optional: bool) -> Schema:
    name = draw(st.sampled_from([DECIMAL, DATE, TIME, TIMESTAMP]))
    if name == DECIMAL:
        return Schema("BYTES", optional, DECIMAL, 1, parameters={SCALE: str(draw(st.integers(-3, 12)))})
    return Schema("INT64" if name == TIMESTAMP else "INT32", optional, name, 1)


def doubles() -> st.SearchStrategy[float]:
    """Doubles of every size and of few digits."""
    return st.one_of(st.floats(), st.floats(-1e8, 1e8), st.integers(-(10**9), 10**9).map(lambda n: n / 1000))


@st.composite
def values(draw: st.DrawFn, schema: Schema, *, json_exact: bool = False) -> Any:
    """A value of the schema. `json_exact`: one that survives JSON unchanged (no null where a default replaces it,
    no number that is not finite, no negative zero).
    """
    if schema.optional and (schema.default is None or not json_exact) and draw(st.integers(0, 4)) == 0:
        return None
    if schema.name == DECIMAL:
        unscaled = draw(st.integers(-(10**20), 10**20))
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -int((schema.parameters or {})[SCALE])))
    if schema.name == DATE:
        return JavaDate(draw(st.integers(-(2**31), 2**31 - 1)) * DAY_MS)
    if schema.name == TIME:
        return JavaDate(draw(st.integers(0, DAY_MS)))
    if schema.name == TIMESTAMP:
        return JavaDate(draw(st.integers(-(2**63), 2**63 - 1)))
    kind = schema.type
    if kind in _BITS:
        half = 2 ** (_BITS[kind] - 1)
        return draw(st.integers(-half, half - 1))
    if kind in ("FLOAT32", "FLOAT64"):
        number = draw(doubles())
        number = float32(number) if kind == "FLOAT32" else number
        return 0.5 if json_exact and (not math.isfinite(number) or number == 0) else number
    if kind == "ARRAY":
        return draw(st.lists(values(_known(schema.value_schema), json_exact=json_exact), max_size=4))
    if kind == "MAP":
        key, item = _known(schema.key_schema), _known(schema.value_schema)
        return draw(st.dictionaries(values(key), values(item, json_exact=json_exact), max_size=4))
    if kind == "STRUCT":
        return Struct(schema, [draw(values(field.schema, json_exact=json_exact)) for field in schema.fields])
    simple: dict[str, st.SearchStrategy[Any]] = {
        "BOOLEAN": st.booleans(),
        "STRING": TEXT,
        "BYTES": st.binary(max_size=9),
    }
    return draw(simple[kind])


def _known(schema: Schema | None) -> Schema:
    assert schema is not None
    return schema


@st.composite
def cases(draw: st.DrawFn, *, json_exact: bool = False) -> tuple[Schema, list[Any]]:
    """A schema and a column of its values."""
    schema = draw(schemas())
    return schema, draw(st.lists(values(schema, json_exact=json_exact), min_size=1, max_size=4))
