"""Projection of values from one version of a schema to another: the rows of Connect's SchemaProjectorTest."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError, SchemaProjectorError
from herdmesh.connect.model.checks import check_value
from herdmesh.connect.model.data import Int8, JavaDate, Struct
from herdmesh.connect.model.projector import project
from herdmesh.connect.model.schemas import (
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)

NUMBERS = ("INT8", "INT16", "INT32", "INT64", "FLOAT32", "FLOAT64")
VALUES: dict[str, Any] = {
    "BOOLEAN": True, "INT8": 127, "INT16": 255, "INT32": 32767, "INT64": 327890, "FLOAT32": 1.5, "FLOAT64": 1.2,
    "BYTES": b"foobar", "STRING": "abc",
}  # fmt: skip


@pytest.mark.parametrize("source", VALUES)
@pytest.mark.parametrize("target", VALUES)
def test_promotion_matrix(source: str, target: str) -> None:
    value = VALUES[source]
    widens = source in NUMBERS and target in NUMBERS and NUMBERS.index(source) <= NUMBERS.index(target)
    if source != target and not widens:
        with pytest.raises(SchemaProjectorError) as failed:
            project(Schema(source), value, Schema(target))
        assert str(failed.value) == f"Schema type mismatch. source type: {source} and target type: {target}"
        return
    found = project(Schema(source), value, Schema(target))
    assert found == value
    check_value(Schema(target), found)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_longs_become_the_nearest_float(value: int) -> None:
    found = project(INT64, value, Schema("FLOAT32"))
    check_value(Schema("FLOAT32"), found)
    assert abs(int(found) - value) <= max(abs(value) >> 24, 0) + 1


def test_a_widened_number_gets_the_class_of_its_new_schema() -> None:
    found = project(Schema("INT8"), Int8(5), INT64)
    assert type(found) is int


@pytest.mark.parametrize(
    ("source_optional", "target_optional", "default", "value", "wanted"),
    [
        (False, False, None, 12, 12),
        (False, True, None, 12, 12),
        (True, True, None, None, None),
        (True, True, 7, None, None),  # null is a value of the target
        (True, False, 7, None, 7),
        (True, False, 7, 12, 12),
        (False, False, 7, 12, 12),
        (False, False, 7, None, None),
    ],
)
def test_optional_and_default(
    source_optional: bool, target_optional: bool, default: int | None, value: int | None, wanted: int | None
) -> None:
    source = Schema("INT32", optional=source_optional)
    assert project(source, value, Schema("INT32", optional=target_optional, default=default)) == wanted


def test_an_optional_source_needs_a_default_in_a_required_target() -> None:
    with pytest.raises(SchemaProjectorError) as failed:
        project(OPTIONAL_INT32, 12, INT32)
    assert str(failed.value) == (
        "Writer schema is optional, however, target schema does not provide a default value."
    )  # fmt: skip


def struct(**fields: Schema) -> Schema:
    """A struct schema."""
    builder = SchemaBuilder("STRUCT")
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


def test_fields_are_added_and_removed() -> None:
    source = struct(kept=INT32, removed=STRING)
    defaulted = Schema("INT32", default=123)
    target = struct(kept=INT64, new=OPTIONAL_STRING, defaulted=defaulted)
    found = project(source, Struct(source, [1, "x"]), target)
    assert found == Struct(target, [1, None, 123])
    needed = struct(kept=INT32, needed=STRING)
    with pytest.raises(SchemaProjectorError) as failed:
        project(source, Struct(source, [1, "x"]), needed)
    assert str(failed.value) == "Required field `needed` is missing from source schema: Schema{STRUCT}"


def test_the_default_of_the_source_is_used_first() -> None:
    source = struct(f=Schema("INT32", optional=True, default=5))
    target = struct(f=OPTIONAL_INT32)
    assert project(source, Struct(source), target) == Struct(target, [5])


def test_null_in_a_field_that_the_target_requires_is_refused() -> None:
    source, target = struct(f=INT32), struct(f=INT64)
    with pytest.raises(DataError, match='null used for required field: "f"'):
        project(source, Struct(source), target)


def test_nested_values_are_projected() -> None:
    inner_source, inner_target = struct(a=INT32), struct(a=INT64, b=Schema("INT32", default=9))
    source = struct(
        s=inner_source, list=SchemaBuilder.array(INT32).build(), map=SchemaBuilder.map(INT32, inner_source).build()
    )
    target = struct(
        s=inner_target, list=SchemaBuilder.array(INT64).build(), map=SchemaBuilder.map(INT64, inner_target).build()
    )
    given_inner = Struct(inner_source, [1])
    found = project(source, Struct(source, [given_inner, [1, 2], {3: given_inner}]), target)
    wanted = Struct(inner_target, [1, 9])
    assert found == Struct(target, [wanted, [1, 2], {3: wanted}])
    with pytest.raises(SchemaProjectorError, match=r"^Error projecting s$") as failed:
        project(source, Struct(source, [given_inner, [], {}]), struct(s=struct(a=STRING)))
    assert str(failed.value.__cause__) == "Error projecting a"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (decimal_schema(2), Decimal("1.56")),
        (date_schema(), JavaDate(86_400_000)),
        (time_schema(), JavaDate(5)),
        (timestamp_schema(), JavaDate(1_700_000_000_123)),
    ],
)
def test_logical_types_are_projected(schema: Schema, value: Any) -> None:
    assert project(schema, value, schema) is value
    assert project(schema, value, schema.replace(version=2, doc="other")) is value
    plain = Schema(schema.type)
    for source, target in ((schema, plain), (plain, schema)):
        with pytest.raises(SchemaProjectorError) as failed:
            project(source, value, target)
        assert str(failed.value) == (
            f"Schema name mismatch. source name: {source.name or 'null'} and target name: {target.name or 'null'}"
        )


def test_parameters_must_be_equal() -> None:
    with pytest.raises(SchemaProjectorError) as failed:
        project(decimal_schema(2), Decimal("1.56"), decimal_schema(3))
    assert str(failed.value) == (
        "Schema parameters not equal. source parameters: {scale=2} and target parameters: {scale=3}"
    )
