"""Property tests of random schemas with random values, written and read by every converter, and through every sink: the
right values result, or the record is refused if docs/reference/values.md says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.converters import make_converter
from herdmesh.connect.converters.base import Converter
from herdmesh.connect.model.data import JavaDate, Struct
from herdmesh.connect.model.schemas import INT32, TIME, Schema
from herdmesh.connectors.values.columns import text_of
from libs.connectors.tests.values.round_trips import (
    DAY_MS,
    OF_JSON,
    SINKS,
    Refused,
    batch_of,
    context_of,
    read_csv,
    read_json,
    read_parquet,
    same_arrow,
    same_cell,
    same_json,
)
from libs.core.tests.connect.converters.converter_values import cases
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import EXAMPLES, converter, optional, structs, typed
from tests.support.sizes import soak_or

_JSON_EXAMPLES, _REGISTRY_EXAMPLES, _PROTOBUF_EXAMPLES = soak_or(30, 300), soak_or(20, 200), soak_or(5, 50)


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


def through_all(values: list[Any], schema: Schema | None) -> None:
    """Put values as a batch to each sink, and compare the output with them."""
    for name, write in SINKS.items():
        refused = Refused()
        with tempfile.TemporaryDirectory() as folder:
            data = write(Path(folder) / "out", [batch_of(values, schema)], context_of(refused))
        is_columns = name in ("parquet", "spark")
        kept = [one for one in values if not is_columns or schema is None or _has_type(one, schema)]
        kept_offsets = [at for at, one in enumerate(values) if one not in kept]
        assert refused.offsets == (kept_offsets if len(kept) < len(values) else []), (name, refused.errors)
        if name in OF_JSON:
            read = read_json(data)
            present = [one for one in kept if name != "http" or one is not None]
            assert len(read) == len(present), name
            assert all(same_json(row, value, schema) for row, value in zip(read, present, strict=True)), (name, data)
        elif is_columns and kept:
            _check_columns(read_parquet(data), kept, schema)
        elif name == "csv":
            _check_cells(read_csv(data), kept, schema)


def _check_columns(read: list[Any], values: list[Any], schema: Schema | None) -> None:
    assert len(read) == len(values)
    for row, value in zip(read, values, strict=True):
        if isinstance(value, Struct):
            assert all(
                same_arrow(row[field.name], item, field.schema)
                for field, item in zip(value.schema.fields, value.values, strict=True)
            ), (row, value)
        elif schema is not None and value is not None:
            assert same_arrow(row["value"], value, schema), (row, value)
        elif isinstance(value, dict):
            for key, item in cast("dict[str, Any]", value).items():
                _check_found(row.get(key), item)


def _check_found(read: Any, value: Any) -> None:
    """Check a value whose type was inferred: the value, or its text."""
    if isinstance(read, str) and not isinstance(value, str):
        assert read == text_of(value) or same_json(json.loads(read, parse_float=Decimal), value, None), (read, value)
    elif isinstance(value, float) and value != value:
        assert read != read
    else:
        assert read == value


def _check_cells(read: list[Any], values: list[Any], schema: Schema | None) -> None:
    for row, value in zip(read, values, strict=True) if len(read) == len(values) else ():
        if isinstance(value, Struct):
            pairs = zip(value.schema.fields, value.values, strict=True)
            assert all(same_cell(row[field.name], item, field.schema) for field, item in pairs), (row, value)
        elif schema is not None and value is not None:
            assert same_cell(row["value"], value, schema), (row, value)


def _has_type(value: Any, schema: Schema) -> bool:
    """Return whether Parquet has a type for the value: not for a
    struct without fields, nor for a time of day of 24 hours.
    """
    if value is None:
        return schema.type != "STRUCT" or _holds(schema)
    key_schema, value_schema = Schema.inner(schema)
    if schema.name == TIME:
        return 0 <= cast("JavaDate", value) < DAY_MS
    if schema.type == "STRUCT":
        fields = schema.fields
        return _holds(schema) and all(
            _has_type(item, field.schema) for field, item in zip(fields, value.values, strict=True)
        )
    if value_schema is not None and schema.type == "ARRAY":
        return _holds(value_schema) and all(_has_type(item, value_schema) for item in value)
    if key_schema is not None and value_schema is not None:
        pairs = cast("dict[Any, Any]", value).items()
        return _holds(value_schema) and all(
            _has_type(key, key_schema) and _has_type(item, value_schema) for key, item in pairs
        )
    return True


def _holds(schema: Schema) -> bool:
    """Return whether the schema has no struct without fields."""
    if schema.type == "STRUCT":
        return bool(schema.fields) and all(_holds(field.schema) for field in schema.fields)
    return all(_holds(one) for one in Schema.inner(schema) if one is not None)


def read_again(made: Converter, values: list[Any], schema: Schema | None) -> tuple[list[Any], Schema | None]:
    """Return the values as a sink gets them from a topic that
    the converter wrote. All values read must have one schema.
    """
    written = [made.write(value, schema) for value in values]
    read = [made.read(data) for data in written]
    schemas = {id(one): one for one, _ in read}
    assert len(schemas) == 1
    return [value for _, value in read], read[0][0]


def json_converter(*, schemas: bool) -> Converter:
    config = {"value.converter": "JsonConverter", "value.converter.schemas.enable": str(schemas).lower()}
    return make_converter("value.converter", config, role="value")


def _record(schema: Schema, values: list[Any]) -> tuple[Schema, list[Any]]:
    """Wrap each value as a field of a struct, beside a number."""
    record = Schema("STRUCT", fields=[("id", INT32), ("f", schema)])
    return record, [Struct(record, [number, value]) for number, value in enumerate(values)]


@given(cases(json_exact=True))
@settings(max_examples=_JSON_EXAMPLES, **EXAMPLES)
def test_json_with_schemas(case: tuple[Schema, list[Any]]) -> None:
    schema, values = _record(*case)
    through_all(*read_again(json_converter(schemas=True), values, schema))


@given(cases(json_exact=True))
@settings(max_examples=_JSON_EXAMPLES, **EXAMPLES)
def test_json_without_schemas(case: tuple[Schema, list[Any]]) -> None:
    schema, values = _record(*case)
    through_all(*read_again(json_converter(schemas=False), values, schema))


@given(cases())
@settings(max_examples=_JSON_EXAMPLES, **EXAMPLES)
def test_results_of_transformations(case: tuple[Schema, list[Any]]) -> None:
    """Values that no converter reads: NaN, nulls beside defaults."""
    schema, values = _record(*case)
    through_all(values, schema)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n")), min_size=1, max_size=4))
@settings(max_examples=_JSON_EXAMPLES, **EXAMPLES)
def test_texts(values: list[str]) -> None:
    made = make_converter("value.converter", {"value.converter": "StringConverter"}, role="value")
    read, schema = read_again(made, values, None)
    values = [value.encode(errors="replace").decode() for value in values]  # a lone surrogate becomes ?, as in Java
    for name in ("text", "file stream"):
        with tempfile.TemporaryDirectory() as folder:
            data = SINKS[name](Path(folder) / "out", [batch_of(read, schema)], context_of(None))
        assert b"".join(data) == "".join(f"{value}\n" for value in values).encode()
    for name in ("parquet", "spark"):
        with tempfile.TemporaryDirectory() as folder:
            data = SINKS[name](Path(folder) / "out", [batch_of(read, schema)], context_of(None))
        assert read_parquet(data) == [{"value": value} for value in values]


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("AvroConverter", _REGISTRY_EXAMPLES),
        ("JsonSchemaConverter", _REGISTRY_EXAMPLES),
        ("ProtobufConverter", _PROTOBUF_EXAMPLES),
    ],
)
def test_schema_registry_converters(registry: FakeRegistry, name: str, examples: int) -> None:
    kinds = typed(other_keys=name == "AvroConverter", of_protobuf=name == "ProtobufConverter")
    parts = st.lists(kinds.map(optional), min_size=1, max_size=3).map(structs)
    numbers = iter(range(1 << 30))

    @given(parts.flatmap(lambda one: st.tuples(st.just(one[0]), st.lists(one[1], min_size=1, max_size=3))))
    @settings(max_examples=examples, **EXAMPLES)
    def check(case: tuple[Schema, list[Any]]) -> None:
        made = converter(name, registry.url).for_topic(f"{name}-{next(numbers)}")
        through_all(*read_again(made, case[1], case[0]))

    check()
